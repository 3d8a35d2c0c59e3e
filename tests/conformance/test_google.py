"""Gemini over Google's SDK does what every model must do."""

from collections.abc import Iterable

from tests.servers import GoogleServer

from batonkit.models.google import GoogleModel
from batonkit.testing import ScriptStep
from batonkit.testing.conformance import ModelConformance


class TestGoogle(ModelConformance[GoogleServer]):
    """A model of today, which cannot be told to make one call at a time."""

    cannot = frozenset({"parallel_tool_calls", "verbosity", "truncation"})

    def provider(self, steps: Iterable[ScriptStep]) -> GoogleServer:
        return GoogleServer(steps)

    def model(self, provider: GoogleServer) -> GoogleModel:
        return GoogleModel("gemini-3.8-flash", api_key=provider.api_key, base_url=provider.base_url)
