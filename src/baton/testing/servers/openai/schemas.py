"""What OpenAI checks of tools, of schemas and of the choice among tools."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from .errors import empty_array, wrong

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST_NAME = 64
_MOST_TOOLS = 128


def check_name(name: str, param: str) -> None:
    """The name of a tool or of a schema: letters, digits, underscores and dashes, at most 64."""
    if not name:
        message = f"Invalid '{param}': empty string. Expected a string with minimum length 1."
        raise wrong(message, param=param, code="empty_string")
    check_length(name, param, _LONGEST_NAME)
    if not _NAME.fullmatch(name):
        message = (
            f"Invalid '{param}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
        raise wrong(message, param=param, code="invalid_value")


def check_length(text: str, param: str, most: int) -> None:
    """A text that must not be too long."""
    if len(text) > most:
        message = (
            f"Invalid '{param}': string too long. Expected a string with maximum length {most}, "
            f"but got a string with length {len(text)} instead."
        )
        raise wrong(message, param=param, code="string_above_max_length")


def check_tools(
    tools: Sequence[tuple[str, Mapping[str, Any] | None, bool | None]] | None, name_of: str, parameters_of: str
) -> None:
    """Name, parameters and strictness of each tool; the two words are where they stand, `{}` being the number."""
    if tools is None:
        return
    if not tools:
        raise empty_array("tools")
    if len(tools) > _MOST_TOOLS:
        message = (
            f"Invalid 'tools': array too long. Expected an array with maximum length {_MOST_TOOLS}, "
            f"but got an array with length {len(tools)} instead."
        )
        raise wrong(message, param="tools", code="array_above_max_length")
    seen: set[str] = set()
    for index, (name, parameters, is_strict) in enumerate(tools):
        check_name(name, name_of.format(index))
        if name in seen:
            raise wrong(f"Tool names must be unique: '{name}' is there twice.", param=name_of.format(index))
        seen.add(name)
        if parameters is not None or is_strict:
            what = f"function '{name}'"
            check_schema(parameters or {}, what, param=parameters_of.format(index), is_strict=bool(is_strict))


def check_schema(schema: Mapping[str, Any], what: str, *, param: str, is_strict: bool) -> None:
    """An object; and if it is strict, one that leaves nothing open."""
    kind = schema.get("type")
    problem = "" if kind == "object" else f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'."""
    if not problem and is_strict:
        problem = next(_looseness(schema, ()), "")
    if problem:
        code = "invalid_function_parameters" if what.startswith("function") else "invalid_json_schema"
        raise wrong(f"Invalid schema for {what}: {problem}", param=param, code=code)


def check_choice(choice: str | None, named: str | None, *, tools: Sequence[str] | None) -> None:
    """What a model must call: a word, or the name of a tool there is."""
    if choice is None and named is None:
        return
    if not tools:
        if choice == "none":
            return
        message = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        raise wrong(message, param="tool_choice")
    if named is not None and named not in tools:
        raise wrong(f"Tool choice '{named}' not found in 'tools' parameter.", param="tool_choice")


def check_range(name: str, value: float | None, least: float, most: float | None = None) -> None:
    """A number that must not be too small or too large."""
    if value is None:
        return
    kind = "integer" if isinstance(value, int) else "decimal"
    if value < least:
        message = (
            f"Invalid '{name}': {kind} below minimum value. Expected a value >= {least:g}, but got {value:g} instead."
        )
        raise wrong(message, param=name, code=f"{kind}_below_min_value")
    if most is not None and value > most:
        message = (
            f"Invalid '{name}': {kind} above maximum value. Expected a value <= {most:g}, but got {value:g} instead."
        )
        raise wrong(message, param=name, code=f"{kind}_above_max_value")


def _looseness(schema: Mapping[str, Any], context: tuple[str, ...]) -> Iterator[str]:
    """What a strict schema may not leave open, one sentence each."""
    where = f"In context={context},"
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        if schema.get("additionalProperties") is not False:
            yield f"{where} 'additionalProperties' is required to be supplied and to be false."
        properties = cast("dict[str, Any]", schema.get("properties") or {})
        missing = [name for name in properties if name not in cast("list[str]", schema.get("required") or [])]
        if missing:
            wanted = "an array including every key in properties"
            yield f"{where} 'required' is required to be supplied and to be {wanted}. Missing '{missing[0]}'."
        for name, inner in properties.items():
            yield from _of(inner, (*context, "properties", name))
    for word in ("oneOf", "allOf", "not", "patternProperties"):
        if word in schema:
            yield f"{where} '{word}' is not permitted."
    if kind == "array":
        if "items" not in schema:
            yield f"{where} array schema missing items."
        yield from _of(schema.get("items"), (*context, "items"))
    for index, option in enumerate(cast("list[Any]", schema.get("anyOf") or [])):
        yield from _of(option, (*context, "anyOf", str(index)))
    for name, inner in cast("dict[str, Any]", schema.get("$defs") or {}).items():
        yield from _of(inner, (*context, "$defs", name))
    if not schema.keys() & {"type", "$ref", "anyOf", "enum", "const", "properties", "oneOf", "allOf", "not"}:
        yield f"{where} schema must have a 'type' key."


def _of(inner: Any, context: tuple[str, ...]) -> Iterator[str]:
    if isinstance(inner, dict):
        yield from _looseness(cast("dict[str, Any]", inner), context)
    elif inner is not None:
        yield f"In context={context}, a schema must be an object."
