"""Arguments as a model wrote them: their schema, and reading them or saying what is wrong with them.

The only file of this room that needs pydantic. Import it inside functions: whoever only defines tools need not load it.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NotRequired, cast, get_args, get_origin

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, to_jsonable_python
from typing_extensions import TypedDict

from ..errors import SetupError, quote_names
from .base import ToolResult

_MOST_PROBLEMS = 20
_NO_PLACE_FOR_TITLES = ("const", "default", "enum", "examples")
_NAMES_OF_USERS = ("properties", "patternProperties", "$defs")

# These make types at run time, which a type checker can only take for ordinary values.
_annotated: Any = Annotated
_not_required: Any = NotRequired
_typed_dict: Any = TypedDict


class ArgumentParser:
    """The parameters of one tool that a model fills in, compiled once."""

    __slots__ = ("_names", "_tool", "_validate", "schema")

    def __init__(
        self, tool: str, hints: Mapping[str, Any], *, defaults: Mapping[str, Any], descriptions: Mapping[str, str]
    ) -> None:
        fields = {
            name: _field(hint, name, defaults=defaults, description=descriptions.get(name))
            for name, hint in hints.items()
        }
        self._tool = tool
        adapter, self.schema = _compiled(tool, fields)
        self._names = tuple(self.schema["properties"])
        self._validate = adapter.validator.validate_json

    def read(self, text: str) -> dict[str, Any] | ToolResult:
        """The arguments by parameter, those left out left out; or an outcome that tells the model what to mend."""
        try:
            return self._validate(text)
        except ValidationError as error:
            # Models write nothing at all when they have nothing to say. Rare enough to be looked at last.
            return self._problems(error) if text.strip() else self.read("{}")

    def _problems(self, error: ValidationError) -> ToolResult:
        details = error.errors(include_url=False, include_context=False)
        lines = [f"- {self._problem(detail)}" for detail in details[:_MOST_PROBLEMS]]
        if len(details) > _MOST_PROBLEMS:
            lines.append(f"- and {len(details) - _MOST_PROBLEMS} more")
        text = "\n".join((f"The arguments of `{self._tool}` do not fit:", *lines, "Correct them and call it again."))
        return ToolResult(text, is_error=True)

    def _problem(self, detail: ErrorDetails) -> str:
        place = _place(detail["loc"])
        match detail["type"]:
            case "missing":
                return f"{place} is required"
            case "extra_forbidden" if len(detail["loc"]) == 1:
                return f"{place} is not a parameter; the parameters are: {quote_names(self._names)}"
            case "json_invalid":
                return f"{detail['msg']}; write one JSON object"
            case _:
                given = _shortened(detail["input"])
                return f"{place}: {detail['msg']}, but it is {given}"


def _field(hint: Any, name: str, *, defaults: Mapping[str, Any], description: str | None) -> Any:
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
    else:
        base, notes = hint, []
    # Later notes win: the docstring's word, then Annotated[str, "…"], then Field(description=…).
    spoken = next((note for note in notes if isinstance(note, str)), description)
    notes = [Field(description=spoken), *notes] if spoken else notes
    if name not in defaults:
        return _annotated[(base, *notes)] if notes else base
    default = defaults[name]
    if isinstance(default, FieldInfo):
        # The function's own default is not a value, so pydantic puts the one in that it stands for.
        field = _annotated[(base, *notes, default)]
        return field if default.is_required() else _not_required[field]
    return _not_required[_annotated[(base, *notes, _ShownDefault(default))]]


class _ShownDefault:
    """Puts a default into the schema and nowhere else: the function itself supplies it."""

    def __init__(self, default: Any) -> None:
        self._default = default

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        # A default that JSON cannot hold means nothing to a model either.
        with suppress(ValueError):
            schema["default"] = to_jsonable_python(self._default)
        return schema


def _compiled(tool: str, fields: dict[str, Any]) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    try:
        return _adapted(fields)
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
        culprit = next((name for name, field in fields.items() if not _can_be_adapted({name: field})), None)
        which = f"parameter `{culprit}`" if culprit is not None else "one of its parameters"
        reason = str(error).partition("\n")[0]
        raise SetupError(
            f"`{tool}` cannot be a tool: {which} has a type that no JSON can be read into ({reason}); "
            "use plain types, dataclasses, TypedDicts or pydantic models, or take live objects from `ctx.context`"
        ) from error


def _adapted(fields: dict[str, Any]) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    # Not create_model: a parameter may be called `schema`, `copy` or `_x`, which a model could not have as a field.
    shape = _typed_dict("Arguments", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
    schema = _without_titles(adapter.json_schema())
    schema.setdefault("properties", {})
    return adapter, schema


def _can_be_adapted(fields: dict[str, Any]) -> bool:
    try:
        _adapted(fields)
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError):
        return False
    return True


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema without the titles that pydantic makes of names: they cost tokens and say nothing new."""
    return {key: _titles_removed(key, value) for key, value in schema.items() if key != "title"}


def _titles_removed(key: str, value: Any) -> Any:
    if key in _NO_PLACE_FOR_TITLES:
        return value
    if isinstance(value, dict):
        inner = cast(dict[str, Any], value)
        if key in _NAMES_OF_USERS:
            return {name: _titles_removed("", part) for name, part in inner.items()}
        return _without_titles(inner)
    if isinstance(value, list):
        return [_titles_removed("", part) for part in cast(list[Any], value)]
    return value


def _place(location: Sequence[str | int]) -> str:
    if not location:
        return "the whole"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return f"`{path.removeprefix('.')}`"


def _shortened(given: Any) -> str:
    text = json.dumps(given, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"
