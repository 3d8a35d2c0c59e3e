"""OpenAI's errors, and its checks of tools, schemas and the tool choice."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from tests.servers.base import HttpFault, ReceivedRequest, RequestRejectedError, headers_of, status_of
from tests.servers.validation import InvalidBodyError

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)

INVALID = "invalid_request_error"
_BEARER = "Bearer "
_CODES: tuple[tuple[type[ModelError], str, str], ...] = (
    (AuthenticationError, INVALID, "invalid_api_key"),
    (ModelNotFoundError, INVALID, "model_not_found"),
    (ContextTooLongError, INVALID, "context_length_exceeded"),
    (ContentFilterError, INVALID, "content_filter"),
    (RateLimitError, "requests", "rate_limit_exceeded"),
    (OverloadedError, "service_unavailable_error", "server_is_overloaded"),
)
_CODES_BY_STATUS = {
    401: (INVALID, "invalid_api_key"),
    404: (INVALID, "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_TYPE_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a decimal",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
}
ROLES = ("system", "assistant", "user", "function", "tool", "developer")


def wrong(
    message: str, *, param: str | None = None, code: str | None = None, status: int = 400
) -> RequestRejectedError:
    """Create the rejection of an invalid request."""
    return RequestRejectedError(status, _body(message, INVALID, param=param, code=code))


def wrong_value(param: str, given: object, allowed: Sequence[str] = ()) -> RequestRejectedError:
    """Create the rejection of a value that is not allowed."""
    known = f" Supported values are: {_listed(allowed)}." if allowed else ""
    return wrong(f"Invalid value: '{given}'.{known}", param=param, code="invalid_value")


def empty_array(param: str) -> RequestRejectedError:
    """Create the rejection of an empty list."""
    message = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    )
    return wrong(message, param=param, code="empty_array")


def rejection_of(invalid: InvalidBodyError) -> RequestRejectedError:
    """Create the rejection of a malformed body."""
    place = invalid.place
    match invalid.kind:
        case "json":
            return wrong(f"We could not parse the JSON body of your request. ({invalid.given})")
        case "unknown":
            return wrong(f"Unknown parameter: '{place}'.", param=place, code="unknown_parameter")
        case "missing":
            return wrong(f"Missing required parameter: '{place}'.", param=place, code="missing_required_parameter")
        case "value":
            given = invalid.given.strip("'")
            return wrong_value(place, given, ROLES if place.endswith(".role") else ())
        case "type":
            kinds = [_TYPE_NAMES.get(kind, kind) for kind in invalid.wanted.split(" | ")]
            given = _TYPE_NAMES.get(invalid.given, invalid.given)
            message = f"Invalid type for '{place}': expected {' or '.join(kinds)}, but got {given} instead."
            return wrong(message, param=place, code="invalid_type")
        case _:
            return wrong(f"Invalid '{place}': {invalid.given}.", param=place, code="invalid_value")


def refused(error: ModelError, param: str | None) -> RequestRejectedError:
    """Create the rejection for a scripted error before the response has started."""
    status, headers = status_of(error), headers_of(error)
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    kind, code = kind_and_code(error)
    return RequestRejectedError(status, _body(str(error), kind, param=param, code=code), headers=headers)


def kind_and_code(error: ModelError) -> tuple[str, str | None]:
    """Return OpenAI's type and code of an error."""
    if isinstance(error, HttpFault) and error.status in _CODES_BY_STATUS:
        return _CODES_BY_STATUS[error.status]
    for kind, word, code in _CODES:
        if isinstance(error, kind):
            return word, code
    return (INVALID, None) if status_of(error) < 500 else ("server_error", None)


def _body(message: str, kind: str, *, param: str | None, code: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _listed(words: Sequence[str]) -> str:
    quoted = [f"'{word}'" for word in words]
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def need_key(received: ReceivedRequest, api_key: str) -> None:
    """Raise a rejection unless the request has this key."""
    given = received.headers.get("authorization", "")
    if not given.startswith(_BEARER):
        how = "You need to provide it in an Authorization header using Bearer auth."
        raise wrong(f"You didn't provide an API key. {how}", status=401)
    if given != f"{_BEARER}{api_key}":
        raise wrong("Incorrect API key provided.", code="invalid_api_key", status=401)


_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_MAX_TOOLS = 128


def check_name(name: str, param: str) -> None:
    """Check the name of a tool or a schema: at most 64 letters, digits, underscores and dashes."""
    if not name:
        message = f"Invalid '{param}': empty string. Expected a string with minimum length 1."
        raise wrong(message, param=param, code="empty_string")
    check_length(name, param, _MAX_NAME_LENGTH)
    if not _NAME.fullmatch(name):
        message = (
            f"Invalid '{param}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
        raise wrong(message, param=param, code="invalid_value")


def check_length(text: str, param: str, most: int) -> None:
    """Check that a string is not too long."""
    if len(text) > most:
        message = (
            f"Invalid '{param}': string too long. Expected a string with maximum length {most}, "
            f"but got a string with length {len(text)} instead."
        )
        raise wrong(message, param=param, code="string_above_max_length")


def check_tools(
    tools: Sequence[tuple[str, Mapping[str, Any] | None, bool | None]] | None, name_of: str, parameters_of: str
) -> None:
    """Check the name and the parameters of each tool; the last arguments are their paths with `{}` for the index."""
    if tools is None:
        return
    if not tools:
        raise empty_array("tools")
    if len(tools) > _MAX_TOOLS:
        message = (
            f"Invalid 'tools': array too long. Expected an array with maximum length {_MAX_TOOLS}, "
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
            subject = f"function '{name}'"
            check_schema(parameters or {}, subject, param=parameters_of.format(index), is_strict=bool(is_strict))


def check_schema(schema: Mapping[str, Any], subject: str, *, param: str, is_strict: bool) -> None:
    """Check that a schema is an object, and that it follows the rules for strict schemas if it is strict."""
    kind = schema.get("type")
    problem = "" if kind == "object" else f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'."""
    if not problem and is_strict:
        problem = next(_strict_violations(schema, ()), "")
    if problem:
        code = "invalid_function_parameters" if subject.startswith("function") else "invalid_json_schema"
        raise wrong(f"Invalid schema for {subject}: {problem}", param=param, code=code)


def check_choice(choice: str | None, named: str | None, *, tools: Sequence[str] | None) -> None:
    """Check the tool choice: a mode, or the name of a tool."""
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
    """Check that a number is within its range."""
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


def _strict_violations(schema: Mapping[str, Any], context: tuple[str, ...]) -> Iterator[str]:
    """Yield the violations of the rules for strict schemas."""
    prefix = f"In context={context},"
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        if schema.get("additionalProperties") is not False:
            yield f"{prefix} 'additionalProperties' is required to be supplied and to be false."
        properties = cast("dict[str, Any]", schema.get("properties") or {})
        missing = [name for name in properties if name not in cast("list[str]", schema.get("required") or [])]
        if missing:
            wanted = "an array including every key in properties"
            yield f"{prefix} 'required' is required to be supplied and to be {wanted}. Missing '{missing[0]}'."
        for name, inner in properties.items():
            yield from _inner_violations(inner, (*context, "properties", name))
    for word in ("oneOf", "allOf", "not", "patternProperties"):
        if word in schema:
            yield f"{prefix} '{word}' is not permitted."
    if kind == "array":
        if "items" not in schema:
            yield f"{prefix} array schema missing items."
        yield from _inner_violations(schema.get("items"), (*context, "items"))
    for index, option in enumerate(cast("list[Any]", schema.get("anyOf") or [])):
        yield from _inner_violations(option, (*context, "anyOf", str(index)))
    for name, inner in cast("dict[str, Any]", schema.get("$defs") or {}).items():
        yield from _inner_violations(inner, (*context, "$defs", name))
    if not schema.keys() & {"type", "$ref", "anyOf", "enum", "const", "properties", "oneOf", "allOf", "not"}:
        yield f"{prefix} schema must have a 'type' key."


def _inner_violations(inner: Any, context: tuple[str, ...]) -> Iterator[str]:
    if isinstance(inner, dict):
        yield from _strict_violations(cast("dict[str, Any]", inner), context)
    elif inner is not None:
        yield f"In context={context}, a schema must be an object."
