"""Every realtime model runs the suite."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import pytest
from tests.servers import OpenAIRealtimeServer

from batonkit.realtime import OpenAIRealtimeModel
from batonkit.testing import ScriptStep
from batonkit.testing.conformance import RealtimeConformance
from batonkit.testing.realtime import ScriptedRealtimeModel


class TestOpenAIRealtimeModel(RealtimeConformance[OpenAIRealtimeServer]):
    def provider(self, steps: Iterable[ScriptStep], hears: Iterable[str]) -> OpenAIRealtimeServer:
        return OpenAIRealtimeServer(steps, hears=hears)

    def model(self, provider: OpenAIRealtimeServer) -> OpenAIRealtimeModel:
        return OpenAIRealtimeModel(base_url=provider.base_url, api_key=provider.api_key)


class TestScriptedRealtimeModel(RealtimeConformance[ScriptedRealtimeModel]):
    @asynccontextmanager
    async def provider(
        self, steps: Iterable[ScriptStep], hears: Iterable[str]
    ) -> AsyncGenerator[ScriptedRealtimeModel, None]:
        yield ScriptedRealtimeModel(steps, hears=hears)

    def model(self, provider: ScriptedRealtimeModel) -> ScriptedRealtimeModel:
        return provider


def test_unknown_names_in_cannot_are_refused() -> None:
    with pytest.raises(TypeError, match="it can have"):
        type("Wrong", (RealtimeConformance,), {"cannot": frozenset({"smell"})})
