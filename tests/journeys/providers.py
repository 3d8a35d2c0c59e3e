"""The providers for end-to-end tests: each model connects to its own server over a loopback socket."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.servers import AnthropicServer, GoogleServer, OpenAIServer, ProviderServer

from batonkit.models import Model
from batonkit.models.anthropic import AnthropicModel
from batonkit.models.google import GoogleModel
from batonkit.models.openai import OpenAIModel
from batonkit.testing import ScriptStep


@dataclass(frozen=True)
class Provider:
    """A server and the model for it; `supports` lists the settings that not every provider has."""

    id: str
    serve: Callable[[Sequence[ScriptStep]], ProviderServer]
    make: Callable[..., Model]
    model: str
    supports: frozenset[str] = frozenset()

    def model_for(self, server: ProviderServer) -> Model:
        """Create a model that connects to this server."""
        return self.make(self.model, base_url=server.base_url, api_key=server.api_key)

    @asynccontextmanager
    async def scripted(self, steps: Iterable[ScriptStep]) -> AsyncGenerator[tuple[ProviderServer, Model]]:
        """Start a server that responds with these steps, and create a model for it."""
        async with self.serve(list(steps)) as server:
            model = self.model_for(server)
            try:
                yield server, model
            finally:
                await close_model(model)


async def close_model(model: Model) -> None:
    """Close the connections of a model."""
    close: Any = getattr(model, "aclose", None)
    if close is not None:
        await close()


CHAT = Provider(
    "openai-chat",
    OpenAIServer,
    OpenAIModel,
    "gpt-4.1",
    frozenset({"temperature", "seed", "stop_sequences", "sequential calls"}),
)
RESPONSES = Provider(
    "openai-responses",
    OpenAIServer,
    partial(OpenAIModel, api="responses"),
    "gpt-5",
    frozenset({"temperature", "sequential calls"}),
)
CLAUDE = Provider(
    "anthropic", AnthropicServer, AnthropicModel, "claude-opus-5-5", frozenset({"stop_sequences", "sequential calls"})
)
GEMINI = Provider(
    "google", GoogleServer, GoogleModel, "gemini-3.8-flash", frozenset({"temperature", "seed", "stop_sequences"})
)
GEMINI_WITHOUT_IDS = Provider(
    "google-without-ids", partial(GoogleServer, call_ids=False), GoogleModel, "gemini-3.8-flash", GEMINI.supports
)

PROVIDERS = (CHAT, RESPONSES, CLAUDE, GEMINI)
