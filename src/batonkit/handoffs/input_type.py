"""Typed input of handoffs: strict JSON schemas, and validation of the arguments that a model gives.

In a strict schema every property is required and no other is allowed. A type that it cannot express is either relaxed
(a tuple becomes a list, and validation checks the rest) or rejected here instead of by a provider during a run.
"""

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ..errors import SetupError
from ..messages import object_schema
from ..messages.messages import INVALID_JSON

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MAX_DEPTH = 20
_MAX_NODES = 5000
_DEFINITIONS = "#/$defs/"
# Titles only repeat names; a default would make a property optional, and every property is required here.
_REMOVED_KEYWORDS = ("$defs", "default", "discriminator", "title")
_TYPE_KEYWORDS = ("type", "anyOf", "enum", "const")


def strict_schema(schema: dict[str, Any], what: str) -> dict[str, Any]:
    """Return a strict copy of an object schema.

    Raises:
        SetupError: It is nested too deeply, too large, or cannot be strict.
    """
    copied = deepcopy(schema)
    return _StrictSchemaBuilder(what, copied.get("$defs", {})).build(copied)


class _StrictSchemaBuilder:
    """Makes one schema strict; only definitions that are referred to are copied."""

    def __init__(self, what: str, definitions: dict[str, Any]) -> None:
        self._what = what
        self._definitions = definitions
        self._used: dict[str, Any] = {}
        self._nodes = 0

    def build(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the strict schema with the definitions it needs."""
        root, inlined = self._expand(schema, frozenset(), is_root=True)
        strict = self._strict(root, (), inlined)
        return {**strict, "$defs": self._used} if self._used else strict

    def _strict(self, node: Any, place: tuple[str, ...], inlined: frozenset[str]) -> dict[str, Any]:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise SetupError(f"{self._what} is too large: its schema has more than {_MAX_NODES} nodes")
        if len(place) > _MAX_DEPTH:
            raise SetupError(
                f"{self._what} is nested too deeply: more than {_MAX_DEPTH} levels of objects and lists, "
                f"at {_format_place(place[:3])} and below"
            )
        if not isinstance(node, dict):
            self._reject("a value of any type", place, "give it a type")
        schema, inlined = self._expand(node, inlined)  # pyright: ignore[reportUnknownArgumentType]
        if "$ref" in schema:
            self._define(self._name(schema["$ref"]), place)
            return schema
        if "oneOf" in schema:
            schema["anyOf"] = schema.pop("oneOf")
        if "anyOf" in schema:
            schema["anyOf"] = [self._strict(option, place, inlined) for option in schema["anyOf"]]
        if _is_type("object", schema):
            self._close_object(schema, place, inlined)
        if _is_type("array", schema):
            self._close_list(schema, place, inlined)
        if not any(key in schema for key in _TYPE_KEYWORDS):
            self._reject("a value of any type", place, "give it a type")
        return schema

    def _expand(
        self, node: dict[str, Any], inlined: frozenset[str], *, is_root: bool = False
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """Inline a reference that has other keywords beside it, which strict schemas do not allow."""
        schema = _remove_keywords(node)
        while True:
            if "allOf" in schema:
                if len(schema["allOf"]) != 1:
                    raise SetupError(f"{self._what} uses allOf, which strict schemas cannot express")
                schema = {**_remove_keywords(schema.pop("allOf")[0]), **schema}
            elif "$ref" in schema and (is_root or len(schema) > 1):
                name = self._name(schema.pop("$ref"))
                if name in inlined:
                    # A recursive definition cannot be inlined; its keywords beside the reference are dropped.
                    return {"$ref": _DEFINITIONS + name}, inlined
                schema = {**_remove_keywords(self._definitions[name]), **schema}
                inlined |= {name}
            else:
                return schema, inlined

    def _define(self, name: str, place: tuple[str, ...]) -> None:
        if name not in self._used:
            # Registered before it is built, so that a recursive definition terminates.
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
        # With named properties, True only tolerates others; without, it is a mapping with arbitrary keys.
        if "patternProperties" in schema or isinstance(others, dict) or (others and not properties):
            self._reject("an object with arbitrary keys", place, "name the keys in a model, or take a list of pairs")
        schema["properties"] = {
            name: self._strict(child, (*place, name), inlined) for name, child in properties.items()
        }
        schema["required"] = list(properties)
        schema["additionalProperties"] = False

    def _close_list(self, schema: dict[str, Any], place: tuple[str, ...], inlined: frozenset[str]) -> None:
        inside = (*place, "[]")
        if "prefixItems" in schema:
            # Strict schemas cannot express the types of single positions.
            kinds = [self._strict(kind, inside, inlined) for kind in schema.pop("prefixItems")]
            different = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
            schema["items"] = different[0] if len(different) == 1 else {"anyOf": different}
        elif "items" in schema:
            schema["items"] = self._strict(schema["items"], inside, inlined)
        else:
            self._reject("a list of anything", place, "give the type of its items")

    def _reject(self, found: str, place: tuple[str, ...], remedy: str) -> NoReturn:
        raise SetupError(
            f"{self._what} has {found} at {_format_place(place)}, which strict schemas cannot express; {remedy}"
        )


def _remove_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _REMOVED_KEYWORDS}


def _is_type(kind: str, schema: dict[str, Any]) -> bool:
    given = schema.get("type")
    return given == kind or (isinstance(given, list) and kind in given)


def _format_place(place: tuple[str, ...]) -> str:
    return f"`{'.'.join(place).replace('.[]', '[]')}`" if place else "its root"


_WRAPPER = "input"
_MAX_PROBLEMS = 20


class _Wrapped(msgspec.Struct):
    input: msgspec.Raw


_read_wrapped = msgspec.json.Decoder(_Wrapped).decode


class IncompleteTypeError(SetupError):
    """A type names others that are not defined yet; they may be when it is first used."""


class TypedJson:
    """The JSON schema of a type, as an object: a type that is not an object is wrapped in one.

    Raises:
        SetupError: The type has no JSON schema.
    """

    def __init__(self, kind: Any, what: str, wrapper: str) -> None:
        from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

        try:
            self.adapter = TypeAdapter[Any](kind)
            schema = self.adapter.json_schema()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            is_incomplete = isinstance(error, PydanticUndefinedAnnotation) or error.code == "class-not-fully-defined"
            problem = IncompleteTypeError if is_incomplete else SetupError
            raise problem(f"{what} is {kind!r}, which has no JSON schema: {error}") from None
        self.type_name = str(getattr(kind, "__name__", kind))
        self.is_wrapped = _get_root(schema).get("type") != "object"
        if self.is_wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {**object_schema({wrapper: schema}), **definitions}
        self.json_schema = schema


class HandoffInputParser(TypedJson):
    """Validates the arguments of a handoff without coercion.

    A type that is not an object is wrapped in one.
    """

    def __init__(self, target: str, input_type: Any, *, what: str = "") -> None:
        from pydantic import ValidationError

        self._validation_error = ValidationError
        what = what or f"the input_type of the handoff to `{target}`"
        super().__init__(input_type, what, _WRAPPER)
        self.schema = strict_schema(self.json_schema, what)
        self._validate = self.adapter.validator.validate_json
        self._to_python = self.adapter.serializer.to_python

    def parse(self, arguments: str) -> Any:
        """Validate the arguments.

        Raises:
            ValueError: Lists the problems without quoting values, except in messages of custom validators.
        """
        text: str | bytes = _unwrap(arguments) if self.is_wrapped else arguments
        try:
            value = self._validate(text, strict=True)
        except self._validation_error as error:
            raise ValueError(describe_problems(error, "the input")) from None
        # Pydantic parses these as numbers, but they are not JSON, and a log could not hold them.
        if "NaN" in arguments or "Infinity" in arguments:
            _require_json(arguments)
        return value

    def load(self, data: Any) -> Any:
        """Validate JSON data that `dump` could have made.

        Raises:
            ValueError: Lists the problems.
        """
        wrapped = {_WRAPPER: data} if self.is_wrapped else data
        return self.parse(msgspec.json.encode(wrapped).decode())

    def dump(self, value: Any) -> Any:
        """Convert a value to JSON data, with the names of the schema."""
        return self._to_python(value, mode="json", by_alias=True)


def _get_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema itself, or for a recursive type its definition."""
    return schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _unwrap(arguments: str) -> bytes:
    try:
        return bytes(_read_wrapped(arguments).input)
    except INVALID_JSON:
        raise ValueError(f'arguments must be {{"{_WRAPPER}": …}}') from None


def _require_json(text: str) -> None:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"the input: {error}") from None


def describe_problems(error: "ValidationError", whole: str) -> str:
    """List the problems of a value without quoting it."""
    details = error.errors(include_url=False, include_input=False)
    lines = [_describe(detail, whole) for detail in details[:_MAX_PROBLEMS]]
    if len(details) > _MAX_PROBLEMS:
        lines.append(f"and {len(details) - _MAX_PROBLEMS} more")
    return "; ".join(lines)


def _describe(detail: "ErrorDetails", whole: str) -> str:
    place = ".".join(map(str, detail["loc"])) or whole
    if detail["type"] == "union_tag_invalid":
        # The only message of pydantic that quotes the value.
        facts = detail.get("ctx", {})
        return f"{place}: {facts.get('discriminator')} should be one of {facts.get('expected_tags')}"
    return f"{place}: {detail['msg']}"
