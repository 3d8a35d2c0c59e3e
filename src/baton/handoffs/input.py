"""The typed input of a handoff: the schema a model is shown, and the strict reading of what it gives."""

import re
from typing import Any

import msgspec

from ..errors import SetupError
from .strict import strict_schema

_WRAPPER = "input"


class InputReader:
    """Reads the arguments of a handoff as one type, without coercion. A type that is no object is wrapped in one."""

    def __init__(self, target: str, input_type: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter

        what = f"the input_type of the handoff to `{target}`"
        try:
            self._adapter = TypeAdapter[Any](input_type)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise SetupError(f"{what} is {input_type!r}, which has no JSON schema: {error}") from None
        self.type_name = str(getattr(input_type, "__name__", input_type))
        root = schema
        if "$ref" in schema:
            root = schema.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
        self._is_wrapped = root.get("type") != "object"
        if self._is_wrapped:
            definitions = schema.pop("$defs", None)
            schema = {"type": "object", "properties": {_WRAPPER: schema}}
            if definitions:
                schema["$defs"] = definitions
        self.schema = strict_schema(schema, what)

    def read(self, arguments: str) -> Any:
        """The input as a value of the type. Raises ValueError that lists what is wrong, without showing values."""
        from pydantic import ValidationError

        text = arguments
        if self._is_wrapped:
            try:
                text = bytes(msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])[_WRAPPER]).decode()
            except (msgspec.MsgspecError, KeyError):
                raise ValueError(f'arguments must be {{"{_WRAPPER}": …}}') from None
        try:
            return self._adapter.validate_json(text, strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            lines = (f"{'.'.join(map(str, each['loc'])) or 'the input'}: {each['msg']}" for each in problems)
            raise ValueError("; ".join(_without_values(line) for line in lines)) from None

    def dump(self, value: Any) -> Any:
        """The value as plain JSON data."""
        return self._adapter.dump_python(value, mode="json")


def _without_values(line: str) -> str:
    return re.sub(r"\s*\[type=.*\]$", "", line)
