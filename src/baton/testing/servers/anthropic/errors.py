"""What Anthropic says when something is wrong: the status, and a body with a type and a message."""

import re
from itertools import count

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
from ..received import RequestRejectedError

INVALID = "invalid_request_error"
_OVERLOADED = 529
_ids = count(1)
_INDEX = re.compile(r"\[(\d+)\]")
_KINDS: tuple[tuple[type[ModelError], str], ...] = (
    (AuthenticationError, "authentication_error"),
    (ModelNotFoundError, "not_found_error"),
    (RateLimitError, "rate_limit_error"),
    (OverloadedError, "overloaded_error"),
)
_OF_STATUS = {
    400: INVALID,
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TYPES = {
    "str": "Input should be a valid string",
    "int": "Input should be a valid integer",
    "bool": "Input should be a valid boolean",
    "array": "Input should be a valid list",
    "object": "Input should be a valid dictionary",
}


def wrong(message: str, *, status: int = 400, kind: str = "") -> RequestRejectedError:
    """A request that is not in order."""
    return RequestRejectedError(status, body_of(kind or _OF_STATUS.get(status, INVALID), message), headers=request_id())


def told(invalid: InvalidBodyError) -> RequestRejectedError:
    """A body that does not have the right form; a place is written with dots, as in `messages.0.content`."""
    place = _INDEX.sub(r".\1", invalid.place).lstrip(".")
    match invalid.kind:
        case "json":
            return wrong(f"The request body is not valid JSON: {invalid.given}")
        case "unknown":
            return wrong(f"{place}: Extra inputs are not permitted")
        case "missing":
            return wrong(f"{place}: Field required")
        case "value":
            return wrong(f"{place}: Input tag or value {invalid.given} does not match any of the expected ones")
        case "type":
            kinds = [_TYPES.get(kind, f"Input should be {kind}") for kind in invalid.wanted.split(" | ")]
            return wrong(f"{place}: {' or '.join(kinds)}")
        case _:
            return wrong(f"{place}: {invalid.given}")


def refused(error: ModelError, tokens: int, window: int | None) -> RequestRejectedError:
    """A scripted error, before anything of the answer was sent."""
    status = status_of(error, _OVERLOADED)
    headers = {**headers_of(error), **request_id()}
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    message = words_of(error)
    if isinstance(error, ContextTooLongError):
        message = f"prompt is too long: {tokens} tokens > {window or tokens - 1} maximum"
    return RequestRejectedError(status, body_of(kind_of(error), message), headers=headers)


def kind_of(error: ModelError) -> str:
    """The word that tells a program what kind of error it is."""
    if isinstance(error, HttpFault):
        return _OF_STATUS.get(error.status, INVALID if error.status < 500 else "api_error")
    word = next((word for kind, word in _KINDS if isinstance(error, kind)), "")
    return word or (INVALID if status_of(error) < 500 else "api_error")


def words_of(error: ModelError) -> str:
    """The message; what the filter stops is only known by it."""
    said = str(error)
    return f"Output blocked by content filtering policy: {said}" if isinstance(error, ContentFilterError) else said


def body_of(kind: str, message: str) -> dict[str, object]:
    """The body of an error, which is also what stands in an `error` event."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def request_id() -> dict[str, str]:
    """The header with which Anthropic names a request."""
    return {"request-id": f"req_{next(_ids):020d}"}
