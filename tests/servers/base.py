"""Base classes for endpoints and response streams, received requests, rejections, and scripted HTTP faults."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    OverloadedError,
    RateLimitError,
)
from batonkit.models import Chunk, ModelRequest, ModelResponse

_BYTES_PER_TOKEN = 4
_NO_REQUEST = ModelRequest(())


class ValidRequest(Struct, frozen=True):
    """A request that was parsed and found valid; `wire` is its body in the provider's format."""

    model: str
    streams: bool
    request: ModelRequest
    wire: Any = None


class RequestRejectedError(Exception):
    """The rejection of a request, with the status and the body that the provider would send."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.headers = dict(headers or {})
        super().__init__(f"{status}: {self.body.decode(errors='replace')}")


class ReceivedRequest:
    """One received request, and how it was handled."""

    __slots__ = ("has_left", "headers", "is_cut", "method", "path", "query", "raw", "rejection", "valid")

    def __init__(
        self, method: str, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], raw: bytes
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        """The headers; names are case-insensitive."""
        self.raw = raw
        """The unparsed body."""
        self.valid: ValidRequest | None = None
        self.rejection: RequestRejectedError | None = None
        """The rejection by the server's checks or by a step of the script."""
        self.has_left = False
        """True if the client disconnected before the end of the response."""
        self.is_cut = False
        """True if the server closed the connection because of a step."""

    @property
    def body(self) -> Any:
        """Return the body as JSON."""
        return msgspec.json.decode(self.raw)

    @property
    def model(self) -> str:
        """Return the requested model; "" if the request was not parsed."""
        return self.valid.model if self.valid is not None else ""

    @property
    def request(self) -> ModelRequest:
        """Return the request in Baton's types: messages, instructions, tools, settings, output."""
        return self.valid.request if self.valid is not None else _NO_REQUEST

    @property
    def tokens(self) -> int:
        """Return the approximate number of tokens."""
        return len(self.raw) // _BYTES_PER_TOKEN + 1

    def __repr__(self) -> str:
        ending = f", {self.rejection.status}" if self.rejection is not None else ""
        return f"Received({self.method} {self.path}, {self.model or 'no model'}{ending})"


class AnswerStream(ABC):
    """A streamed response as bytes; the results of its methods in order are the body."""

    is_refusal = False
    """Set before the first chunk if the scripted response is a refusal."""

    def begin(self) -> bytes:
        """Encode the beginning of the stream."""
        return b""

    @abstractmethod
    def chunk(self, chunk: Chunk) -> bytes:
        """Encode one chunk, which is never a ModelResponse, as one or several events."""

    @abstractmethod
    def end(self, whole: ModelResponse) -> bytes:
        """Encode the end of the stream; `whole` is the response with its message and usage."""

    @abstractmethod
    def failed(self, error: ModelError) -> bytes:
        """Encode an error in the middle of a stream."""

    def garbage(self, text: str) -> bytes:
        """Encode an invalid event."""
        return f"data: {text}\n\n".encode()


class APIEndpoint(ABC):
    """One endpoint of a provider: it parses requests and encodes responses, and keeps no state of a request."""

    stream_type = "text/event-stream; charset=utf-8"

    @abstractmethod
    def read(self, received: ReceivedRequest) -> ValidRequest:
        """Parse and check a request as strictly as the provider; raise a rejection if it is invalid."""

    @abstractmethod
    def whole(self, valid: ValidRequest, whole: ModelResponse) -> bytes:
        """Encode an unstreamed response; `whole` has a message and usage."""

    @abstractmethod
    def stream(self, valid: ValidRequest) -> AnswerStream:
        """Create the stream of a response."""


_STATUSES: tuple[tuple[type[ModelError], int], ...] = (
    (AuthenticationError, 401),
    (ModelNotFoundError, 404),
    (ModelRequestError, 400),
    (ContentFilterError, 400),
    (RateLimitError, 429),
    (OverloadedError, 503),
)


class HttpFault(ModelError):
    """A step that responds with this status; without `body`, with the provider's body for it."""

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
    """Return the status of an error; `overloaded` is the provider's status for overload."""
    if isinstance(error, HttpFault):
        return error.status
    if isinstance(error, OverloadedError):
        return overloaded
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def headers_of(error: ModelError) -> dict[str, str]:
    """Return the headers of an error: its own, and `retry-after`."""
    headers = dict(error.headers) if isinstance(error, HttpFault) else {}
    if error.retry_after is not None:
        headers.setdefault("retry-after", f"{error.retry_after:g}")
    return headers


def _encoded(body: Mapping[str, Any] | str) -> bytes:
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
