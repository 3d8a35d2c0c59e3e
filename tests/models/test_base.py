"""ModelSettings, and errors for unknown arguments of models."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from baton.errors import SetupError
from baton.models import FallbackModel, ModelSettings, RetryModel
from baton.models.anthropic import AnthropicModel
from baton.models.google import GoogleModel
from baton.models.local import LocalModel
from baton.models.openai import OpenAIModel
from baton.testing import ScriptedModel

MODEL = ScriptedModel([])


def options(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def test_settings_are_overridden_only_by_what_the_other_sets() -> None:
    general = ModelSettings(temperature=0.2, max_tokens=100, parallel_tool_calls=True)
    special = ModelSettings(temperature=0.0, parallel_tool_calls=False, seed=7)
    assert general.merge(special) == ModelSettings(temperature=0.0, max_tokens=100, parallel_tool_calls=False, seed=7)
    assert general.merge(None) is general


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ModelSettings(temprature=1),
            "ModelSettings has no argument `temprature`; did you mean `temperature`?",
        ),
        (
            lambda: ModelSettings(stop=("END",)),
            "ModelSettings has no argument `stop`; did you mean `stop_sequences`?",
        ),
        (
            lambda: RetryModel(MODEL, max_dely=1),
            "RetryModel has no argument `max_dely`; did you mean `max_delay`?",
        ),
        (
            lambda: FallbackModel(MODEL, MODEL, on=all),
            "FallbackModel has no argument `on`; it takes: `should_fall_back`",
        ),
        (
            lambda: OpenAIModel("m", api_keys="k"),
            "OpenAIModel has no argument `api_keys`; did you mean `api_key`?",
        ),
        (
            lambda: AnthropicModel("m", baseurl="u"),
            "AnthropicModel has no argument `baseurl`; did you mean `base_url`?",
        ),
        (lambda: GoogleModel("m", header={}), "GoogleModel has no argument `header`; did you mean `headers`?"),
        (lambda: LocalModel(weight="x"), "LocalModel has no argument `weight`; did you mean `weights`?"),
    ],
)
def test_an_unknown_argument_names_the_nearest(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SetupError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("models", [(), (MODEL,)])
def test_a_fallback_needs_two_models(models: tuple[ScriptedModel, ...]) -> None:
    with pytest.raises(SetupError, match=f"at least two models, and got {len(models)}"):
        FallbackModel(*models)
