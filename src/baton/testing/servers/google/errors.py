"""What Google says when something is wrong: a code, a status in words, a message and details."""

from typing import Any

import msgspec

from ....errors import ContentFilterError, ContextTooLongError, ModelError, OverloadedError, RateLimitError
from ..faults import HttpFault, headers_of, status_of
from ..reading import InvalidBodyError
from ..received import RequestRejectedError

_TYPES = "type.googleapis.com/google.rpc."
_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_KINDS = {"str": "TYPE_STRING", "int": "TYPE_INT32", "float": "TYPE_FLOAT", "bool": "TYPE_BOOL"}


def wrong(message: str, *, status: int = 400, details: list[dict[str, Any]] | None = None) -> RequestRejectedError:
    """A request that is not in order."""
    return RequestRejectedError(status, body_of(status, message, details))


def bad_key() -> RequestRejectedError:
    """A key that is not known, which is a bad argument in Google's eyes."""
    info = {"@type": f"{_TYPES}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    return wrong("API key not valid. Please pass a valid API key.", details=[info])


def told(invalid: InvalidBodyError) -> RequestRejectedError:
    """A body that does not have the right form."""
    place = invalid.place
    where, _, name = place.rpartition(".")
    at = f" at '{where}'" if where else ""
    match invalid.kind:
        case "json":
            return wrong(f"Invalid JSON payload received. {invalid.given}")
        case "unknown":
            return wrong(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')
        case "missing":
            return wrong(f"* GenerateContentRequest.{place}: [FIELD_INVALID] required field is not set.")
        case "type":
            kind = _KINDS.get(invalid.wanted, invalid.wanted)
            return wrong(f"Invalid value at '{place}' ({kind}), got {invalid.given}")
        case _:
            return wrong(f"Invalid value at '{place}': {invalid.given}")


def refused(error: ModelError, tokens: int, window: int | None, streams: bool) -> RequestRejectedError:
    """A scripted error, before anything of the answer was sent."""
    if isinstance(error, ContentFilterError):
        return _blocked(error, streams)
    status = status_of(error)
    headers = headers_of(error)
    if isinstance(error, HttpFault) and error.body is not None:
        return RequestRejectedError(status, error.body, headers=headers)
    message = str(error)
    if isinstance(error, ContextTooLongError):
        limit = window or tokens - 1
        message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
    details = None
    if isinstance(error, RateLimitError) and error.retry_after is not None:
        details = [{"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{error.retry_after:g}s"}]
    return RequestRejectedError(status, body_of(status, message, details), headers=headers)


def body_of(status: int, message: str, details: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The body of an error, which is also what stands in a stream."""
    error: dict[str, Any] = {"code": status, "message": message, "status": _WORDS.get(status, "UNKNOWN")}
    return {"error": {**error, "details": details} if details else error}


def code_of(error: ModelError) -> int:
    """The code of an error in the middle of a stream."""
    return 503 if isinstance(error, OverloadedError) else status_of(error)


def _blocked(error: ModelError, streams: bool) -> RequestRejectedError:
    # A prompt that the filter stops is not an error to Google, but an answer without candidates.
    feedback = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": str(error)}}
    body = msgspec.json.encode({**feedback, "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}})
    if not streams:
        return RequestRejectedError(200, body)
    return RequestRejectedError(200, b"data: " + body + b"\r\n\r\n", headers={"content-type": "text/event-stream"})
