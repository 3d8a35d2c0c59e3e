"""Claude over Anthropic's SDK does what every model must do."""

from collections.abc import Iterable

from tests.servers import AnthropicServer

from batonkit.models.anthropic import AnthropicModel
from batonkit.testing import ScriptStep
from batonkit.testing.conformance import ModelConformance


class TestAnthropic(ModelConformance[AnthropicServer]):
    """A model of today, which takes no sampling parameters."""

    cannot = frozenset(
        {
            *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
            *("verbosity", "truncation", "logprobs", "top_logprobs"),
        }
    )
    name = "claude-opus-5-5"

    def provider(self, steps: Iterable[ScriptStep]) -> AnthropicServer:
        return AnthropicServer(steps)

    def model(self, provider: AnthropicServer) -> AnthropicModel:
        return AnthropicModel(self.name, api_key=provider.api_key, base_url=provider.base_url)
