"""JSON schemas that a stranger may have written: checked before use, and applied with a limited amount of work.

A schema reads no file and opens no connection: references must lead to another part of it. The work is counted, not
timed, so that the outcome is the same on every machine.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from .._wording import show

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_MAX_SIZE = 64 << 10
"""The size of a schema as JSON, in bytes."""
_MAX_DEPTH = 64
"""The levels of a schema as JSON."""
_MAX_ALTERNATIVES = 1000
"""The schemas that apply to the same value, through references and combinations such as `anyOf`."""
_MAX_REFERENCES = 32
"""The references and combinations that follow one another for the same value."""
_MAX_PATTERN_WEIGHT = 25_000
"""The states of all patterns together, as `_weigh` estimates them: at most 60 ms to compile."""
_MAX_WORK = 50_000
"""The units of work to check one value: 1 to 2 µs each."""
_MAX_PROBLEMS = 5
_MAX_MESSAGE = 300

_Type: TypeAlias = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_Count: TypeAlias = Annotated[float, Meta(ge=0)] | UnsetType
_Schema: TypeAlias = "_Keywords | bool | UnsetType"
_Schemas: TypeAlias = "list[_Keywords | bool] | UnsetType"
_SchemasByName: TypeAlias = "dict[str, _Keywords | bool] | UnsetType"


class SchemaError(ValueError):
    """A schema cannot be used, or a value takes too much work to check."""


class _Keywords(Struct, rename="camel"):
    """The keywords that have a meaning, and their types; others are ignored."""

    type: _Type | list[_Type] | UnsetType = UNSET
    enum: list[Any] | UnsetType = UNSET
    const: Any = UNSET
    multiple_of: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    maximum: float | UnsetType = UNSET
    exclusive_maximum: float | UnsetType = UNSET
    minimum: float | UnsetType = UNSET
    exclusive_minimum: float | UnsetType = UNSET
    max_length: _Count = UNSET
    min_length: _Count = UNSET
    pattern: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET
    max_items: _Count = UNSET
    min_items: _Count = UNSET
    unique_items: bool | UnsetType = UNSET
    max_contains: _Count = UNSET
    min_contains: _Count = UNSET
    max_properties: _Count = UNSET
    min_properties: _Count = UNSET
    required: list[str] | UnsetType = UNSET
    dependent_required: dict[str, list[str]] | UnsetType = UNSET
    ref: str | UnsetType = field(default=UNSET, name="$ref")
    all_of: _Schemas = UNSET
    any_of: _Schemas = UNSET
    one_of: _Schemas = UNSET
    not_: _Schema = field(default=UNSET, name="not")
    if_: _Schema = field(default=UNSET, name="if")
    then: _Schema = UNSET
    else_: _Schema = field(default=UNSET, name="else")
    dependent_schemas: _SchemasByName = UNSET
    prefix_items: _Schemas = UNSET
    items: _Schema = UNSET
    contains: _Schema = UNSET
    properties: _SchemasByName = UNSET
    pattern_properties: dict[Annotated[str, Meta(max_length=1000)], "_Keywords | bool"] | UnsetType = UNSET
    additional_properties: _Schema = UNSET
    property_names: _Schema = UNSET
    defs: _SchemasByName = field(default=UNSET, name="$defs")
    definitions: _SchemasByName = UNSET


_KEYWORDS = frozenset(_Keywords.__struct_encode_fields__)
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas apply to the value itself, not to a part of it."""
_PARTS = ("prefixItems", "items", "contains", "additionalProperties", "propertyNames")
_NAMED_PARTS = ("properties", "patternProperties", "$defs", "definitions")


class JSONSchema:
    """A schema that has been checked.

    Args:
        schema: The schema, as JSON data.

    Raises:
        SchemaError: It is no schema, too large, or uses what the limits above exclude.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = _copy(schema)
        self._parts = {id(part): part for part in _subschemas(self._root)}
        for part in self._parts.values():
            _keep_known_keywords(part)
        self._patterns = _Patterns({each for part in self._parts.values() for each in _patterns_of(part)})
        self._sizes: dict[int, int] = {}
        for part in self._parts.values():
            self._measure(part, 0)

    def problems(self, what: str, value: Any) -> list[str]:
        """Return what is wrong with a value, at most a few problems.

        Args:
            what: What the value is, for messages.
            value: The value, as JSON data.

        Raises:
            SchemaError: It takes too much work to check.
        """
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        work = _Work()
        extend: Any = getattr(validators, "extend")  # noqa: B009 - it has no complete types
        no_resources: Any = Registry[Any]()
        given: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
        checks = {keyword: partial(_counted, work, keyword, check) for keyword, check in given.items()}
        checks |= self._patterns.checks(work, checks["additionalProperties"])
        validator: Any = extend(Draft202012Validator, checks)(self._root, registry=no_resources)
        try:
            found = islice(validator.iter_errors(value), _MAX_PROBLEMS)
            return [_describe(what, problem) for problem in found]
        except (RecursionError, ArithmeticError, Unresolvable) as error:
            raise SchemaError("the value takes too much work to check") from error

    def _measure(self, part: Any, depth: int) -> int:
        """Return how many schemas apply to a value if this one does."""
        if not isinstance(part, dict):
            return 1
        schema = cast("dict[str, Any]", part)
        if id(schema) in self._sizes:
            return self._sizes[id(schema)]
        if depth > _MAX_REFERENCES:
            raise SchemaError("the schema refers to itself without end, or its references are nested too deeply")
        alternatives = [*_children(schema, _SAME_VALUE)]
        if "$ref" in schema:
            alternatives.append(self._target(schema["$ref"]))
        size = 1 + sum([self._measure(each, depth + 1) for each in alternatives])
        if size > _MAX_ALTERNATIVES:
            raise SchemaError(f"the schema combines more than {_MAX_ALTERNATIVES} schemas for one value")
        self._sizes[id(schema)] = size
        return size

    def _target(self, reference: str) -> Any:
        """Return the part of the schema that a reference leads to."""
        from urllib.parse import unquote

        node: Any = self._root
        pointer = unquote(reference.removeprefix("#"))
        steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        try:
            for step in steps:
                is_list = isinstance(node, list)
                node = node[int(step) if is_list else step]
        except (LookupError, TypeError, ValueError):
            node = None
        is_inside = reference.startswith("#") and pointer[:1] in ("", "/")
        if not is_inside or not (isinstance(node, bool) or id(node) in self._parts):
            raise SchemaError(f"the schema refers to {show(reference)}, which is no part of it")
        return node


def _copy(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema as plain JSON, if its size and the types of its keywords are right."""
    try:
        text = msgspec.json.encode(schema)
        if len(text) > _MAX_SIZE:
            raise SchemaError(f"the schema is larger than {_MAX_SIZE >> 10} KB")
        plain: Any = msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise error if isinstance(error, SchemaError) else SchemaError("the schema is not JSON, or nested too deeply")
    if _is_deeper(plain, _MAX_DEPTH):
        raise SchemaError(f"the schema is nested more deeply than {_MAX_DEPTH} levels")
    try:
        msgspec.convert(plain, _Keywords)
    except msgspec.ValidationError as error:
        raise SchemaError(f"the schema is no JSON schema: {error}") from None
    return plain


def _keep_known_keywords(part: dict[str, Any]) -> None:
    """Remove the keywords that have no meaning here.

    One of them is `$schema`, which would choose another validator.
    """
    for keyword in _UNSUPPORTED:
        if keyword in part:
            raise SchemaError(f"the schema uses `{keyword}`, which is not supported")
    kept = {keyword: value for keyword, value in part.items() if keyword in _KEYWORDS}
    part.clear()
    part.update(kept)


def _patterns_of(part: dict[str, Any]) -> Iterator[str]:
    if "pattern" in part:
        yield part["pattern"]
    yield from part.get("patternProperties", ())


def _is_deeper(value: Any, levels: int) -> bool:
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in _items(value))


def _items(value: Any) -> Iterable[Any]:
    """Return what is directly inside a list or an object."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _children(schema: Mapping[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    for keyword in keywords:
        value: Any = schema.get(keyword, ())
        if keyword in _NAMED_PARTS or keyword == "dependentSchemas":
            yield from dict(value).values()
        elif isinstance(value, list | tuple):
            yield from cast("list[Any]", value)
        else:
            yield value


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for child in _children(schema, (*_SAME_VALUE, *_PARTS, *_NAMED_PARTS)):
        if isinstance(child, dict):
            yield from _subschemas(cast("dict[str, Any]", child))


class _Work:
    """The units of work that are left."""

    def __init__(self) -> None:
        self._left = _MAX_WORK

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise SchemaError("the value takes too much work to check")


def _counted(
    work: _Work,
    keyword: str,
    check: Callable[..., Iterator[Any] | None],
    validator: Any,
    expected: Any,
    value: Any,
    schema: Any,
) -> Iterator[Any]:
    """Apply a keyword, and count the work."""
    work.spend(1 + _length(expected) + _length(value))
    if keyword in ("enum", "const"):
        work.spend(_count_nodes(expected))
    elif keyword == "uniqueItems" and isinstance(value, list):
        # Items that cannot be sorted are compared in pairs.
        work.spend(len(cast("list[Any]", value)) * _count_nodes(value) // 16)
    for problem in check(validator, expected, value, schema) or ():
        # The message quotes the value.
        work.spend(4 + len(problem.message) // 64)
        yield problem


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // 64
    return len(cast("list[Any]", value)) if isinstance(value, list | dict) else 0


def _count_nodes(value: Any) -> int:
    return 1 + _length(value) + sum([_count_nodes(item) for item in _items(value)])


def _describe(what: str, problem: Any) -> str:
    place = ".".join([str(step) for step in problem.absolute_path]) or what
    message = str(problem.message)
    return f"{place}: {message if len(message) <= _MAX_MESSAGE else f'{message[:_MAX_MESSAGE]}…'}"


class _Patterns:
    """The regular expressions of a schema, in an engine whose time is linear in the text.

    Python's own engine can take exponential time.
    """

    def __init__(self, patterns: Collection[str]) -> None:
        if sum([_weigh(pattern, unicode_class=100) for pattern in patterns]) > _MAX_PATTERN_WEIGHT:
            raise SchemaError("the patterns of the schema are too complex")
        self._compiled = {pattern: _compile(pattern) for pattern in patterns}
        self._states = {pattern: _weigh(pattern, unicode_class=1) for pattern in patterns}

    def checks(self, work: _Work, check_additional: Callable[..., Iterator[Any]]) -> dict[str, Any]:
        """Return the keywords that match patterns."""

        def matches(pattern: str, text: str) -> bool:
            work.spend(1 + len(text) * (1 + self._states[pattern]) // 40)
            return self._compiled[pattern].isinstance_python(text)

        def check_pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
            from jsonschema import ValidationError

            if isinstance(value, str) and not matches(pattern, value):
                yield ValidationError(f"{show(value)} does not match {show(pattern)}")

        def check_pattern_properties(validator: Any, schemas: Any, value: Any, schema: Any) -> Iterator[Any]:
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            for pattern, each in schemas.items():
                for name in fields:
                    if matches(pattern, name):
                        yield from validator.descend(fields[name], each, path=name, schema_path=pattern)

        def check_additional_properties(validator: Any, extra: Any, value: Any, schema: Any) -> Iterator[Any]:
            if not isinstance(value, dict):
                return
            patterns = schema.get("patternProperties", {})
            fields = cast("dict[str, Any]", value)
            rest = {name: fields[name] for name in fields if not any(matches(each, name) for each in patterns)}
            yield from check_additional(validator, extra, rest, {"properties": schema.get("properties", {})})

        return {
            "pattern": check_pattern,
            "patternProperties": check_pattern_properties,
            "additionalProperties": check_additional_properties,
        }


def _compile(pattern: str) -> "SchemaValidator":
    from pydantic_core import SchemaError as InvalidPatternError
    from pydantic_core import SchemaValidator
    from pydantic_core.core_schema import str_schema

    try:
        return SchemaValidator(str_schema(pattern=pattern, regex_engine="rust-regex"))
    except InvalidPatternError:
        reason = "it is invalid or too complex, or has a lookaround or a backreference"
        raise SchemaError(f"the pattern {show(pattern)} of the schema cannot be used: {reason}") from None


_TOKEN = re.compile(r"\\(?:[pPxu]\{[^}]*\}|.)|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d*),?(\d*)\}|.", re.DOTALL)
_UNICODE_CLASS = re.compile(r"\\[wWdDpP]")


def _weigh(pattern: str, *, unicode_class: int) -> int:
    """Estimate the states of a compiled pattern; a repetition copies those of its part.

    Args:
        pattern: The regular expression.
        unicode_class: The weight of a class such as `\\w`: it has hundreds of states, few of them active at a time.
    """
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token[1] is not None:
            last *= max(int(token[1] or 1), int(token[2] or 1))
        elif text == ")" and len(groups) > 1:
            last += groups.pop()
        elif text == "(":
            groups[-1] += last
            groups.append(0)
            last = 0
        elif text not in "*+?|^$":
            groups[-1] += last
            last = unicode_class if _UNICODE_CLASS.search(text) else 1
    return sum(groups) + last
