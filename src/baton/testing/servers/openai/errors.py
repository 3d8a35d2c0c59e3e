"""What OpenAI says when something is wrong: the status, and a body with message, type, param and code."""

from collections.abc import Sequence

from ....errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)
from ..faults import HttpFault, headers_of, status_of
from ..reading import InvalidBodyError
from ..received import ReceivedRequest, RequestRejectedError

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
_OF_STATUS = {
    401: (INVALID, "invalid_api_key"),
    404: (INVALID, "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_ENTITIES = {
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
    """A request that is not in order."""
    return RequestRejectedError(status, _body(message, INVALID, param=param, code=code))


def wrong_value(param: str, given: object, allowed: Sequence[str] = ()) -> RequestRejectedError:
    """A word that is not among those there are."""
    known = f" Supported values are: {_listed(allowed)}." if allowed else ""
    return wrong(f"Invalid value: '{given}'.{known}", param=param, code="invalid_value")


def empty_array(param: str) -> RequestRejectedError:
    """A list that must have something in it."""
    message = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    )
    return wrong(message, param=param, code="empty_array")


def told(invalid: InvalidBodyError) -> RequestRejectedError:
    """A body that does not have the right form."""
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
            kinds = [_ENTITIES.get(kind, kind) for kind in invalid.wanted.split(" | ")]
            given = _ENTITIES.get(invalid.given, invalid.given)
            message = f"Invalid type for '{place}': expected {' or '.join(kinds)}, but got {given} instead."
            return wrong(message, param=place, code="invalid_type")
        case _:
            return wrong(f"Invalid '{place}': {invalid.given}.", param=place, code="invalid_value")


def refused(error: ModelError, param: str | None) -> RequestRejectedError:
    """A scripted error, before anything of the answer was sent."""
    status, headers = status_of(error), headers_of(error)
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    kind, code = kind_and_code(error)
    return RequestRejectedError(status, _body(str(error), kind, param=param, code=code), headers=headers)


def kind_and_code(error: ModelError) -> tuple[str, str | None]:
    """The two words that tell a program what kind of error it is."""
    if isinstance(error, HttpFault) and error.status in _OF_STATUS:
        return _OF_STATUS[error.status]
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
    """A Rejection unless the request shows this key."""
    given = received.headers.get("authorization", "")
    if not given.startswith(_BEARER):
        how = "You need to provide it in an Authorization header using Bearer auth."
        raise wrong(f"You didn't provide an API key. {how}", status=401)
    if given != f"{_BEARER}{api_key}":
        raise wrong("Incorrect API key provided.", code="invalid_api_key", status=401)
