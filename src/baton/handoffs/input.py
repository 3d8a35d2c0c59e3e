"""The typed input of a handoff: the schema a model is shown, and the strict reading of what it gives."""

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SetupError
from .strict import strict_schema

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_WRAPPER = "input"
_MOST_PROBLEMS = 20


class _Wrapped(msgspec.Struct):
    input: msgspec.Raw


_read_wrapped = msgspec.json.Decoder(_Wrapped).decode


class HandoffInputParser:
    """Reads the arguments of a handoff as one type, without coercion. A type that is no object is wrapped in one."""

    def __init__(self, target: str, input_type: Any, *, what: str = "") -> None:
        from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

        self._misfit = ValidationError
        what = what or f"the input_type of the handoff to `{target}`"
        try:
            self._adapter = TypeAdapter[Any](input_type)
            schema = self._adapter.json_schema()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise SetupError(f"{what} is {input_type!r}, which has no JSON schema: {error}") from None
        self.type_name = str(getattr(input_type, "__name__", input_type))
        self._is_wrapped = _root_of(schema).get("type") != "object"
        if self._is_wrapped:
            definitions = schema.pop("$defs", {})
            schema = {"type": "object", "properties": {_WRAPPER: schema}, "$defs": definitions}
        self.schema = strict_schema(schema, what)
        self._validate = self._adapter.validator.validate_json
        self._to_python = self._adapter.serializer.to_python

    def read(self, arguments: str) -> Any:
        """The input as a value of the type. Raises ValueError that lists what is wrong, without showing values.

        Only what a validator of your own says is passed on as it is.
        """
        text: str | bytes = _unwrapped(arguments) if self._is_wrapped else arguments
        try:
            value = self._validate(text, strict=True)
        except self._misfit as error:
            raise ValueError(_problems(error)) from None
        # Pydantic reads these as numbers; in JSON there are no such words, and a log could not hold them.
        if "NaN" in arguments or "Infinity" in arguments:
            _refuse_unless_json(arguments)
        return value

    def dump(self, value: Any) -> Any:
        """The value as plain JSON data, under the names the schema has."""
        return self._to_python(value, mode="json", by_alias=True)


def _root_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself; if the type refers to itself, what stands among the definitions."""
    return schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _unwrapped(arguments: str) -> bytes:
    try:
        return bytes(_read_wrapped(arguments).input)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ValueError(f'arguments must be {{"{_WRAPPER}": …}}') from None


def _refuse_unless_json(text: str) -> None:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"the input: {error}") from None


def _problems(error: "ValidationError") -> str:
    details = error.errors(include_url=False, include_input=False)
    lines = [_problem(detail) for detail in details[:_MOST_PROBLEMS]]
    if len(details) > _MOST_PROBLEMS:
        lines.append(f"and {len(details) - _MOST_PROBLEMS} more")
    return "; ".join(lines)


def _problem(detail: "ErrorDetails") -> str:
    place = ".".join(map(str, detail["loc"])) or "the input"
    if detail["type"] == "union_tag_invalid":
        # The one message of pydantic's own that quotes what was given.
        facts = detail.get("ctx", {})
        return f"{place}: {facts.get('discriminator')} should be one of {facts.get('expected_tags')}"
    return f"{place}: {detail['msg']}"
