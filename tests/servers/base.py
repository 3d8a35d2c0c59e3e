"""What a provider's address must do: read requests, and write answers whole or in pieces.

What a server was asked, and how it says that it will not answer.

What can go wrong on the wire, as steps of a script; and which status a scripted error has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from baton.errors import (
    AuthenticationError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    OverloadedError,
    RateLimitError,
)
from baton.models import Chunk, ModelRequest, ModelResponse

_BYTES_OF_A_TOKEN = 4
_NO_REQUEST = ModelRequest(())


class ValidRequest(Struct, frozen=True):
    """A request that was read and found valid; `wire` is its body in the provider's own form."""

    model: str
    streams: bool
    request: ModelRequest
    wire: Any = None


class RequestRejectedError(Exception):
    """A request that the server will not answer: the status and the body, as the provider would send them."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.headers = dict(headers or {})
        super().__init__(f"{status}: {self.body.decode(errors='replace')}")


class ReceivedRequest:
    """One request as it came over the wire, and what became of it."""

    __slots__ = ("asked", "has_left", "headers", "is_cut", "method", "path", "query", "raw", "rejection")

    def __init__(
        self, method: str, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], raw: bytes
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        """Whatever the case of a name, it is found."""
        self.raw = raw
        """The body, byte by byte."""
        self.asked: ValidRequest | None = None
        self.rejection: RequestRejectedError | None = None
        """Why it was refused: by the server's own checks, or by a step of the script."""
        self.has_left = False
        """Whether the client went away before the answer was all there."""
        self.is_cut = False
        """Whether the server cut the connection, because a step said so."""

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.raw)

    @property
    def model(self) -> str:
        """The model it asks for; "" if it was not even read."""
        return self.asked.model if self.asked is not None else ""

    @property
    def request(self) -> ModelRequest:
        """What it says to a model, in Baton's own words: messages, instructions, tools, settings, output."""
        return self.asked.request if self.asked is not None else _NO_REQUEST

    @property
    def tokens(self) -> int:
        """About how many tokens it has."""
        return len(self.raw) // _BYTES_OF_A_TOKEN + 1

    def __repr__(self) -> str:
        ending = f", {self.rejection.status}" if self.rejection is not None else ""
        return f"Received({self.method} {self.path}, {self.model or 'no model'}{ending})"


class AnswerStream(ABC):
    """One answer in pieces, as bytes. What comes out of it, one after the other, is the body of the response."""

    is_refusal = False
    """Set before the first piece, where the script says that this answer is a refusal."""

    def begin(self) -> bytes:
        """What comes before the first piece."""
        return b""

    @abstractmethod
    def chunk(self, chunk: Chunk) -> bytes:
        """The bytes of one piece, never a Response; several events, if the format wants it so."""

    @abstractmethod
    def end(self, whole: ModelResponse) -> bytes:
        """What comes after the last piece; `whole` is the answer with its message and usage."""

    @abstractmethod
    def failed(self, error: ModelError) -> bytes:
        """How the provider says in the middle of an answer that it cannot go on."""

    def garbage(self, text: str) -> bytes:
        """Something that stands where a piece should, and is none."""
        return f"data: {text}\n\n".encode()


class APIEndpoint(ABC):
    """One address of a provider: how its requests are read and its answers written. It keeps nothing of a request."""

    stream_type = "text/event-stream; charset=utf-8"

    @abstractmethod
    def read(self, received: ReceivedRequest) -> ValidRequest:
        """The request, checked as strictly as the provider does; a Rejection if it is wrong."""

    @abstractmethod
    def whole(self, asked: ValidRequest, whole: ModelResponse) -> bytes:
        """An answer in one piece; `whole` has a message and usage."""

    @abstractmethod
    def stream(self, asked: ValidRequest) -> AnswerStream:
        """An answer in pieces."""


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
