"""The typed input of a handoff: the schema a model is shown, and the strict reading of what it gives.

JSON schemas as strict providers want them: every property required, nothing else allowed, unions as `anyOf`.

What a strict schema cannot say is either said more loosely (a tuple becomes a list of so many items, and who reads it
checks the rest) or refused here, where the author sees it, and not by a provider in the middle of a run.
"""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ..errors import SetupError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_DEEPEST = 20
_MOST_PARTS = 5000
_DEFINITIONS = "#/$defs/"
# Titles only repeat names; a default would make a property optional, and every property is required here.
_LEFT_OUT = ("$defs", "default", "discriminator", "title")
_SAYS_WHAT_FITS = ("type", "anyOf", "enum", "const")


def strict_schema(schema: dict[str, Any], what: str) -> dict[str, Any]:
    """A strict copy of the schema of an object. Raises SetupError if it is too deep, too large or cannot be strict."""
    copied = deepcopy(schema)
    return _StrictSchemaBuilder(what, copied.get("$defs", {})).whole(copied)


class _StrictSchemaBuilder:
    """Makes one schema strict; definitions are taken over when something refers to them."""

    def __init__(self, what: str, definitions: dict[str, Any]) -> None:
        self._what = what
        self._definitions = definitions
        self._used: dict[str, Any] = {}
        self._parts = 0

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with the definitions it still needs."""
        root, inlined = self._expanded(schema, frozenset(), is_root=True)
        strict = self._strict(root, (), inlined)
        return {**strict, "$defs": self._used} if self._used else strict

    def _strict(self, node: Any, place: tuple[str, ...], inlined: frozenset[str]) -> dict[str, Any]:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise SetupError(f"{self._what} is too large: its schema has more than {_MOST_PARTS} parts")
        if len(place) > _DEEPEST:
            raise SetupError(
                f"{self._what} is nested too deeply: more than {_DEEPEST} objects and lists in one another, "
                f"at {_shown(place[:3])} and below"
            )
        if not isinstance(node, dict):
            self._refuse("a value of any type", place, "say its type")
        schema, inlined = self._expanded(node, inlined)  # pyright: ignore[reportUnknownArgumentType]
        if "$ref" in schema:
            self._define(self._name(schema["$ref"]), place)
            return schema
        if "oneOf" in schema:
            schema["anyOf"] = schema.pop("oneOf")
        if "anyOf" in schema:
            schema["anyOf"] = [self._strict(option, place, inlined) for option in schema["anyOf"]]
        if _is_a("object", schema):
            self._close_object(schema, place, inlined)
        if _is_a("array", schema):
            self._close_list(schema, place, inlined)
        if not any(key in schema for key in _SAYS_WHAT_FITS):
            self._refuse("a value of any type", place, "say its type")
        return schema

    def _expanded(
        self, node: dict[str, Any], inlined: frozenset[str], *, is_root: bool = False
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """The schema with what it refers to in it, if anything stands beside the reference: nothing may."""
        schema = _without_extras(node)
        while True:
            if "allOf" in schema:
                if len(schema["allOf"]) != 1:
                    raise SetupError(f"{self._what} joins schemas with allOf, which strict schemas cannot say")
                schema = {**_without_extras(schema.pop("allOf")[0]), **schema}
            elif "$ref" in schema and (is_root or len(schema) > 1):
                name = self._name(schema.pop("$ref"))
                if name in inlined:
                    # A description of a part that contains itself is given up: to inline it would never end.
                    return {"$ref": _DEFINITIONS + name}, inlined
                schema = {**_without_extras(self._definitions[name]), **schema}
                inlined |= {name}
            else:
                return schema, inlined

    def _define(self, name: str, place: tuple[str, ...]) -> None:
        if name not in self._used:
            # Entered before it is made, so that a definition that refers to itself ends.
            self._used[name] = {}
            self._used[name] = self._strict(self._definitions[name], place, frozenset((name,)))

    def _name(self, reference: str) -> str:
        name = reference.removeprefix(_DEFINITIONS)
        if name not in self._definitions:
            raise SetupError(f"{self._what} refers to `{reference}`, which is not among the definitions of its schema")
        return name

    def _close_object(self, schema: dict[str, Any], place: tuple[str, ...], inlined: frozenset[str]) -> None:
        properties: dict[str, Any] = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        # With named properties, True only means that others do no harm; alone, it is all there is to the object.
        if "patternProperties" in schema or isinstance(others, dict) or (others and not properties):
            self._refuse("an object with arbitrary keys", place, "name the keys in a model, or take a list of pairs")
        schema["properties"] = {
            name: self._strict(child, (*place, name), inlined) for name, child in properties.items()
        }
        schema["required"] = list(properties)
        schema["additionalProperties"] = False

    def _close_list(self, schema: dict[str, Any], place: tuple[str, ...], inlined: frozenset[str]) -> None:
        inside = (*place, "[]")
        if "prefixItems" in schema:
            # No strict provider knows the types of single positions.
            kinds = [self._strict(kind, inside, inlined) for kind in schema.pop("prefixItems")]
            different = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
            schema["items"] = different[0] if len(different) == 1 else {"anyOf": different}
        elif "items" in schema:
            schema["items"] = self._strict(schema["items"], inside, inlined)
        else:
            self._refuse("a list of anything", place, "say what is in it")

    def _refuse(self, found: str, place: tuple[str, ...], remedy: str) -> NoReturn:
        raise SetupError(f"{self._what} has {found} at {_shown(place)}, which strict schemas cannot say; {remedy}")


def _without_extras(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _LEFT_OUT}


def _is_a(kind: str, schema: dict[str, Any]) -> bool:
    given = schema.get("type")
    return given == kind or (isinstance(given, list) and kind in given)


def _shown(place: tuple[str, ...]) -> str:
    return f"`{'.'.join(place).replace('.[]', '[]')}`" if place else "its root"


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
