"""Where a model is tested: its provider, the model itself, and how it is asked."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import pytest

from ...messages import AssistantMessage, Message, UserMessage
from ...models import Chunk, Model, ModelRequest, ModelResponse, assemble_response
from ..steps import ScriptStep


class ModelProvider(Protocol):
    """What is behind the model under test, and plays the script: one of `baton.testing.servers`, or your own."""

    @property
    def understood(self) -> Sequence[ModelRequest]:
        """What it was asked, translated back out of the wire format."""
        ...

    async def client_left(self, within: float) -> object:
        """Wait for a client to go away in the middle of an answer; AssertionError if none does in time."""
        ...


P = TypeVar("P", bound=ModelProvider)
HELLO = (UserMessage("Hello"),)


class ModelBench(ABC, Generic[P]):
    """What the author of a model supplies."""

    pytestmark = [pytest.mark.asyncio]
    cannot: ClassVar[frozenset[str]] = frozenset()
    """What the model cannot do, in the words of `ABILITIES`; those checks are skipped, and say so."""

    @abstractmethod
    def provider(self, steps: Iterable[ScriptStep]) -> AbstractAsyncContextManager[P]:
        """A provider that plays these steps."""

    @abstractmethod
    def model(self, provider: P) -> Model:
        """The model under test, aimed at this provider. It must not retry: wrap it in Retry for that."""

    @asynccontextmanager
    async def played(self, *steps: ScriptStep) -> AsyncGenerator[tuple[Model, P], None]:
        """A model whose provider plays these steps; closed at the end, if it can be."""
        async with self.provider(steps) as provider:
            model = self.model(provider)
            try:
                yield model, provider
            finally:
                close = getattr(model, "aclose", None)
                if close is not None:
                    await close()

    def needs(self, ability: str) -> None:
        """Skip the check if the author says that the model cannot do this."""
        if ability in self.cannot:
            pytest.skip(f"{type(self).__name__} says that it cannot do: {ability}")


def request(messages: Sequence[Message] = HELLO, **fields: Any) -> ModelRequest:
    """A request as an agent makes it."""
    told: dict[str, Any] = {"instructions": "Be kind.", "agent": "Tester", **fields}
    return ModelRequest(messages, **told)


def opened(model: Model, asked: ModelRequest) -> aclosing[AsyncGenerator[Chunk, None]]:
    """The chunks of an answer, closed at the end of `async with`, as Baton does it."""
    return aclosing(cast("AsyncGenerator[Chunk, None]", aiter(model.respond(asked))))


async def chunks_of(model: Model, asked: ModelRequest | None = None) -> list[Chunk]:
    """All the chunks of an answer."""
    async with opened(model, asked or request()) as chunks:
        return [chunk async for chunk in chunks]


async def answer_of(model: Model, asked: ModelRequest | None = None) -> tuple[ModelResponse, AssistantMessage]:
    """The whole answer, and the message in it."""
    response = assemble_response(await chunks_of(model, asked), model.name)
    assert response.message is not None
    return response, response.message
