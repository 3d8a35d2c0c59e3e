"""Answers of a given type: the schema a model is shown, and the reading of what it wrote."""

import re
from typing import Any, cast

import msgspec

from ..errors import SetupError
from ..handoffs.strict import strict_schema
from ..models import OutputSchema

_FENCED = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?```\s*$", re.DOTALL)
_WRAPPER = "response"


class OutputParser:
    """Reads answers as one type. A type that is not a JSON object is wrapped in one, as providers demand."""

    def __init__(self, agent: str, output_type: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter

        try:
            self._adapter = TypeAdapter[Any](output_type)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise SetupError(f"`{agent}` has output_type={output_type!r}, which has no JSON schema: {error}") from None
        self.type_name = str(getattr(output_type, "__name__", output_type))
        self._is_wrapped = schema.get("type") != "object" and "$ref" not in schema
        if self._is_wrapped:
            definitions = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {_WRAPPER: schema},
                "required": [_WRAPPER],
                "additionalProperties": False,
                **({"$defs": definitions} if definitions else {}),
            }
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.type_name)[:64] or "output"
        self.schema = _strict_if_possible(agent, name, schema)

    def read(self, text: str) -> Any:
        """The answer as a value of the type. Raises ValueError that lists what is wrong with it."""
        from pydantic import ValidationError

        fenced = _FENCED.match(text)
        try:
            value: Any = msgspec.json.decode(fenced.group(1) if fenced else text)
        except msgspec.DecodeError as error:
            raise ValueError(f"it is not JSON ({error})") from None
        if self._is_wrapped and isinstance(value, dict) and _WRAPPER in value:
            value = cast("dict[str, Any]", value)[_WRAPPER]
        try:
            # Judged as JSON, so that a date may be a string and a tuple a list.
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, e['loc'])) or 'the answer'}: {e['msg']}" for e in error.errors())
            raise ValueError("; ".join(problems)) from None

    def dump(self, value: Any) -> Any:
        """The value as plain JSON data."""
        return self._adapter.dump_python(value, mode="json")


def _strict_if_possible(agent: str, name: str, schema: dict[str, Any]) -> OutputSchema:
    """The schema in the form that providers hold a model to; as it is, if it says what that form cannot."""
    try:
        return OutputSchema(name, strict_schema(schema, f"the output type of `{agent}`"), strict=True)
    except SetupError:
        return OutputSchema(name, schema)
