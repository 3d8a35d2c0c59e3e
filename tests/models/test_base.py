"""ModelSettings, and errors for unknown arguments of models."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from batonkit.errors import SetupError
from batonkit.models import FallbackModel, ModelSettings, RetryModel
from batonkit.models.anthropic import AnthropicModel
from batonkit.models.google import GoogleModel
from batonkit.models.litellm import LiteLLMModel
from batonkit.models.local import LocalModel
from batonkit.models.openai import OpenAIModel
from batonkit.testing import ScriptedModel

MODEL = ScriptedModel([])


def test_settings_are_overridden_only_by_what_the_other_sets() -> None:
    general = ModelSettings(temperature=0.2, max_tokens=100, parallel_tool_calls=True)
    special = ModelSettings(temperature=0.0, parallel_tool_calls=False, seed=7)
    assert general.merge(special) == ModelSettings(temperature=0.0, max_tokens=100, parallel_tool_calls=False, seed=7)
    assert general.merge(None) is general


@pytest.mark.parametrize(
    ("make", "name", "advice"),
    [
        (ModelSettings, "temprature", "did you mean `temperature`?"),
        (ModelSettings, "stop", "did you mean `stop_sequences`?"),
        (RetryModel, "max_dely", "did you mean `max_delay`?"),
        (FallbackModel, "on", "its arguments are: `should_fall_back`"),
        (OpenAIModel, "api_keys", "did you mean `api_key`?"),
        (AnthropicModel, "baseurl", "did you mean `base_url`?"),
        (GoogleModel, "header", "did you mean `headers`?"),
        (LiteLLMModel, "modle", "did you mean `model`?"),
        (partial(LiteLLMModel, "openai/gpt-5"), "api_keys", "did you mean `api_key`?"),
        (partial(LiteLLMModel, "openai/gpt-5"), "temprature", "did you mean `temperature`?"),
        (LocalModel, "weight", "did you mean `weights`?"),
    ],
)
def test_an_unknown_argument_names_the_nearest(make: Callable[..., object], name: str, advice: str) -> None:
    with pytest.raises(SetupError, match=re.escape(f"has no argument `{name}`; {advice}")):
        make(**{name: 1})


@pytest.mark.parametrize("models", [(), (MODEL,)])
def test_a_fallback_needs_two_models(models: tuple[ScriptedModel, ...]) -> None:
    with pytest.raises(SetupError, match=f"at least two models, and got {len(models)}"):
        FallbackModel(*models)
