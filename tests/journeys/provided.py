"""The providers that journeys are made with: each model speaks to a server of its own, over a loopback socket."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.servers import AnthropicServer, GoogleServer, OpenAIServer, ProviderServer

from baton.models import Model
from baton.models.anthropic import AnthropicModel
from baton.models.google import GoogleModel
from baton.models.openai import OpenAIModel
from baton.testing import ScriptStep


@dataclass(frozen=True)
class Provider:
    """A server and the model that speaks its language; `can` is what not every provider has a word for."""

    id: str
    serve: Callable[[Sequence[ScriptStep]], ProviderServer]
    make: Callable[..., Model]
    model: str
    can: frozenset[str] = frozenset()

    def model_for(self, server: ProviderServer) -> Model:
        """A new model object, aimed at this server."""
        return self.make(self.model, base_url=server.base_url, api_key=server.api_key)

    @asynccontextmanager
    async def playing(self, steps: Iterable[ScriptStep]) -> AsyncGenerator[tuple[ProviderServer, Model]]:
        """A server that plays these steps, all of them and nothing refused, and a model for it."""
        async with self.serve(list(steps)) as server:
            model = self.model_for(server)
            try:
                yield server, model
            finally:
                await closed(model)


async def closed(model: Model) -> None:
    """Close the connections of a model, as its program would."""
    close: Any = getattr(model, "aclose", None)
    if close is not None:
        await close()


CHAT = Provider(
    "openai-chat",
    OpenAIServer,
    OpenAIModel,
    "gpt-4.1",
    frozenset({"temperature", "seed", "stop_sequences", "one call at a time"}),
)
RESPONSES = Provider(
    "openai-responses",
    OpenAIServer,
    partial(OpenAIModel, api="responses"),
    "gpt-5",
    frozenset({"temperature", "one call at a time"}),
)
CLAUDE = Provider(
    "anthropic", AnthropicServer, AnthropicModel, "claude-opus-5-5", frozenset({"stop_sequences", "one call at a time"})
)
GEMINI = Provider(
    "google", GoogleServer, GoogleModel, "gemini-3.8-flash", frozenset({"temperature", "seed", "stop_sequences"})
)
GEMINI_WITHOUT_IDS = Provider(
    "google-without-ids", partial(GoogleServer, call_ids=False), GoogleModel, "gemini-3.8-flash", GEMINI.can
)

PROVIDERS = (CHAT, RESPONSES, CLAUDE, GEMINI)
