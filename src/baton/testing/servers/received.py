"""What a server was asked, and how it says that it will not answer."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...models import ModelRequest

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
