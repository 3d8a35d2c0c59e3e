"""Where a provider's package is not installed, the error says how to install it."""

import pytest

from baton.errors import SetupError
from baton.models.litellm import LiteLLMModel


def test_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr("baton.models.litellm.find_spec", nothing)
    with pytest.raises(SetupError, match=r"pip install 'baton-adk\[litellm\]'"):
        LiteLLMModel("bedrock/anthropic.claude-opus-5-5")
