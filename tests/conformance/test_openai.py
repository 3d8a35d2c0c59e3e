"""OpenAIModel does what every model must: by both APIs, over its own wire and over the official client."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

from openai import AsyncOpenAI
from tests.servers import OpenAIServer

from batonkit.models import Model
from batonkit.models.openai import OpenAIModel
from batonkit.testing import ScriptStep
from batonkit.testing.conformance import ModelConformance

MODEL = "gpt-5"


class TestChatCompletions(ModelConformance[OpenAIServer]):
    """Chat Completions as OpenAI has them: without any thoughts."""

    cannot = frozenset({"reasoning", "top_k", "truncation"})

    def provider(self, steps: Iterable[ScriptStep]) -> OpenAIServer:
        return OpenAIServer(steps)

    def model(self, provider: OpenAIServer) -> Model:
        return OpenAIModel(MODEL, base_url=provider.base_url, api_key=provider.api_key)


class TestResponses(ModelConformance[OpenAIServer]):
    """Responses, which have fewer sampling settings."""

    cannot = frozenset({"stop_sequences", "seed", "top_k", "presence_penalty", "frequency_penalty"})

    def provider(self, steps: Iterable[ScriptStep]) -> OpenAIServer:
        return OpenAIServer(steps)

    def model(self, provider: OpenAIServer) -> Model:
        return OpenAIModel(MODEL, api="responses", base_url=provider.base_url, api_key=provider.api_key)


class _Official(OpenAIServer):
    """The server together with a client of it."""

    client: AsyncOpenAI


class TestTheOfficialClient(ModelConformance[_Official]):
    """Chat Completions over OpenAI's own client."""

    cannot = frozenset({"reasoning", "top_k", "truncation"})

    @asynccontextmanager
    async def provider(self, steps: Iterable[ScriptStep]) -> AsyncGenerator[_Official, None]:
        async with (
            _Official(steps) as server,
            AsyncOpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0) as client,
        ):
            server.client = client
            yield server

    def model(self, provider: _Official) -> Model:
        return OpenAIModel(MODEL, client=provider.client)
