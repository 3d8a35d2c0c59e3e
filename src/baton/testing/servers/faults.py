"""What can go wrong on the wire, as steps of a script; and which status a scripted error has."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import (
    AuthenticationError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    OverloadedError,
    RateLimitError,
)

_STATUSES: tuple[tuple[type[ModelError], int], ...] = (
    (AuthenticationError, 401),
    (ModelNotFoundError, 404),
    (ModelRequestError, 400),
    (ContentFilterError, 400),
    (RateLimitError, 429),
    (OverloadedError, 503),
)


class HttpFault(ModelError):
    """A step that answers with this very status; without `body`, with what the provider says along with it."""

    def __init__(
        self,
        status: int,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | str | bytes | None = None,
    ) -> None:
        super().__init__(message or f"scripted to fail with status {status}", retryable=status == 429 or status >= 500)
        self.status = status
        self.headers = dict(headers or {})
        self.body = body if body is None or isinstance(body, bytes) else _encoded(body)


def status_of(error: ModelError, overloaded: int = 503) -> int:
    """The status that says the same as the error; `overloaded` is the provider's own for too much work."""
    if isinstance(error, HttpFault):
        return error.status
    if isinstance(error, OverloadedError):
        return overloaded
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def headers_of(error: ModelError) -> dict[str, str]:
    """The headers that go with it: its own, and when to come again."""
    headers = dict(error.headers) if isinstance(error, HttpFault) else {}
    if error.retry_after is not None:
        headers.setdefault("retry-after", f"{error.retry_after:g}")
    return headers


def _encoded(body: Mapping[str, Any] | str) -> bytes:
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
