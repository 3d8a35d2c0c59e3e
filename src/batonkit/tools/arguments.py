"""JSON schemas and validation of tool arguments; those of plain types need it only if they do not fit exactly.

The only module of the package that needs pydantic; import it inside functions, so that defining tools does not load it.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NotRequired, cast, get_args, get_origin

import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, to_jsonable_python
from typing_extensions import TypedDict

from ..errors import SetupError, quote_names
from .base_tool import ToolResult

_MAX_PROBLEMS = 20
_LITERAL_KEYWORDS = ("const", "default", "enum", "examples")
_NAME_KEYWORDS = ("properties", "patternProperties", "$defs")

# Types are built at run time from these; to a type checker they are ordinary values.
_annotated: Any = Annotated
_not_required: Any = NotRequired
_typed_dict: Any = TypedDict


class ArgumentParser:
    """The compiled schema and validator of the parameters that a model fills in."""

    __slots__ = ("_names", "_tool", "_validate", "schema")

    def __init__(
        self, tool: str, hints: Mapping[str, Any], *, defaults: Mapping[str, Any], descriptions: Mapping[str, str]
    ) -> None:
        fields = {
            name: _build_field(hint, name, defaults=defaults, description=descriptions.get(name))
            for name, hint in hints.items()
        }
        self._tool = tool
        adapter, self.schema = _compile(tool, fields)
        self._names = tuple(self.schema["properties"])
        self._validate = adapter.validator.validate_json

    def parse(self, text: str) -> dict[str, Any] | ToolResult:
        """Return the given arguments by parameter, or an error result for the model."""
        try:
            return self._validate(text)
        except pydantic.ValidationError as error:
            # Some models write nothing at all instead of {}.
            return self._error_result(error) if text.strip() else self.parse("{}")

    def _error_result(self, error: pydantic.ValidationError) -> ToolResult:
        details = error.errors(include_url=False, include_context=False)
        lines = [f"- {self._describe(detail)}" for detail in details[:_MAX_PROBLEMS]]
        if len(details) > _MAX_PROBLEMS:
            lines.append(f"- and {len(details) - _MAX_PROBLEMS} more")
        text = "\n".join((f"The arguments of `{self._tool}` do not fit:", *lines, "Correct them and call it again."))
        return ToolResult(text, is_error=True)

    def _describe(self, detail: ErrorDetails) -> str:
        path = _format_path(detail["loc"])
        match detail["type"]:
            case "missing":
                return f"{path} is required"
            case "extra_forbidden" if len(detail["loc"]) == 1:
                return f"{path} is not a parameter; the parameters are: {quote_names(self._names)}"
            case "json_invalid":
                return f"{detail['msg']}; write one JSON object"
            case _:
                return f"{path}: {detail['msg']}, but it is {_shorten(detail['input'])}"


def _build_field(hint: Any, name: str, *, defaults: Mapping[str, Any], description: str | None) -> Any:
    if get_origin(hint) is Annotated:
        base, *metadata = get_args(hint)
    else:
        base = hint
        metadata = []
    # Later metadata wins: the docstring, then Annotated[str, "…"], then Field(description=…).
    text = next((item for item in metadata if isinstance(item, str)), description)
    metadata = [pydantic.Field(description=text), *metadata] if text else metadata
    if name not in defaults:
        return _annotated[(base, *metadata)] if metadata else base
    default = defaults[name]
    if isinstance(default, FieldInfo):
        # Field(…) as a default: pydantic supplies the value, because the function's own default is not one.
        field = _annotated[(base, *metadata, default)]
        return field if default.is_required() else _not_required[field]
    return _not_required[_annotated[(base, *metadata, _SchemaDefault(default))]]


class _SchemaDefault:
    """Shows a default in the schema; the function itself supplies it."""

    def __init__(self, default: Any) -> None:
        self._default = default

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: pydantic.GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        # A default that is not JSON is left out.
        with suppress(ValueError):
            schema["default"] = to_jsonable_python(self._default)
        return schema


def _compile(tool: str, fields: dict[str, Any]) -> tuple[pydantic.TypeAdapter[dict[str, Any]], dict[str, Any]]:
    try:
        return _build_adapter(fields)
    except (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation, TypeError) as error:
        invalid = next((name for name, field in fields.items() if not _has_schema({name: field})), None)
        which = f"parameter `{invalid}`" if invalid is not None else "one of its parameters"
        reason = str(error).partition("\n")[0]
        raise SetupError(
            f"`{tool}` cannot be a tool: {which} has a type without a JSON schema ({reason}); "
            "use plain types, dataclasses, TypedDicts or pydantic models, or take live objects from `ctx.context`"
        ) from error


def _build_adapter(fields: dict[str, Any]) -> tuple[pydantic.TypeAdapter[dict[str, Any]], dict[str, Any]]:
    # Not create_model: a parameter may be called `schema`, `copy` or `_x`, which a model could not have as a field.
    typed_dict = _typed_dict("Arguments", fields)
    typed_dict.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    adapter: pydantic.TypeAdapter[dict[str, Any]] = pydantic.TypeAdapter(typed_dict)
    schema = _remove_titles(adapter.json_schema())
    schema.setdefault("properties", {})
    return adapter, schema


def _has_schema(fields: dict[str, Any]) -> bool:
    try:
        _build_adapter(fields)
    except (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation, TypeError):
        return False
    return True


def _remove_titles(schema: dict[str, Any]) -> dict[str, Any]:
    # Pydantic derives titles from names: they cost tokens and add nothing.
    return {key: _remove_titles_in(key, value) for key, value in schema.items() if key != "title"}


def _remove_titles_in(key: str, value: Any) -> Any:
    if key in _LITERAL_KEYWORDS:
        return value
    if isinstance(value, dict):
        mapping = cast(dict[str, Any], value)
        if key in _NAME_KEYWORDS:
            return {name: _remove_titles_in("", part) for name, part in mapping.items()}
        return _remove_titles(mapping)
    if isinstance(value, list):
        return [_remove_titles_in("", part) for part in cast(list[Any], value)]
    return value


def _format_path(location: Sequence[str | int]) -> str:
    if not location:
        return "the input"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return f"`{path.removeprefix('.')}`"


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"
