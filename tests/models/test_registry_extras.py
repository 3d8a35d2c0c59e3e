"""A model whose package is not installed raises an error with the pip command."""

import sys

import pytest

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.models import resolve_model


@pytest.mark.parametrize(
    ("model", "module", "package", "extra"),
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
def test_a_missing_package_error_has_the_pip_command(
    model: str, module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules makes the import fail. A model of that name is not cached yet.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SetupError) as raised:
        Runner(Agent("Desk"), model=model)
    assert str(raised.value) == f"the model `{model}` needs {package}; install it with: pip install 'batonkit[{extra}]'"


def test_an_installed_package_raises_nothing() -> None:
    assert resolve_model("openai:gpt-5").name == "openai:gpt-5"
