"""Where a provider's package is not installed, one sentence says what to install."""

import sys

import pytest

from baton import Agent, Runner
from baton.errors import SetupError
from baton.models import resolve_model


@pytest.mark.parametrize(
    ("model", "module", "what", "extra"),
    [
        ("openai:missing", "aiohttp", "aiohttp", "openai"),
        ("openai-responses:missing", "aiohttp", "aiohttp", "openai"),
        ("ollama:missing", "aiohttp", "aiohttp", "openai"),
        ("anthropic:missing", "anthropic", "the SDK of Anthropic", "anthropic"),
        ("google:missing", "google.genai", "the SDK google-genai", "google"),
        ("google:missing", "google", "the SDK google-genai", "google"),
        ("litellm:some/missing", "litellm", "LiteLLM", "litellm"),
    ],
)
def test_a_missing_extra(model: str, module: str, what: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # This is how Python itself notes that a module cannot be imported. A model of that name was never made before.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SetupError) as raised:
        Runner(Agent("Desk"), model=model)
    assert str(raised.value) == f"the model `{model}` needs {what}; install it with: pip install 'baton-adk[{extra}]'"


def test_what_is_there_is_not_missed() -> None:
    assert resolve_model("openai:gpt-5").name == "openai:gpt-5"
