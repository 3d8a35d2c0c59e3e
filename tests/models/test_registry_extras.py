"""A model whose package is not installed raises an error with the pip command."""

import sys

import pytest

from batonkit import Agent, Runner
from batonkit.errors import MissingExtraError
from batonkit.models import resolve_model


@pytest.mark.parametrize(
    ("model", "module", "extra"),
    [
        ("openai:missing", "aiohttp", "openai"),
        ("openai-responses:missing", "aiohttp", "openai"),
        ("ollama:missing", "aiohttp", "openai"),
        ("anthropic:missing", "anthropic", "anthropic"),
        ("google:missing", "google.genai", "google"),
        ("google:missing", "google", "google"),
        ("litellm:some/missing", "litellm", "litellm"),
    ],
)
def test_a_missing_package_error_has_the_pip_command(
    model: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules makes the import fail. A model of that name is not cached yet.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as raised:
        Runner(Agent("Desk"), model=model)
    wanted = f"which is not installed: pip install 'batonkit[{extra}]'"
    assert str(raised.value) == f"the model `{model}` needs `{module}`, {wanted}"


def test_an_installed_package_raises_nothing() -> None:
    assert resolve_model("openai:gpt-5").name == "openai:gpt-5"
