"""What a provider's address must do: read requests, and write answers whole or in pieces."""

from abc import ABC, abstractmethod

from ...errors import ModelError
from ...models import Chunk, ModelResponse
from .received import ReceivedRequest, ValidRequest


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
