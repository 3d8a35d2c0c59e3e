"""Resolving the names of realtime models."""

from typing import Any, cast

import pytest

from batonkit.errors import SetupError
from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.realtime.realtime_runner import resolve_realtime_model


def test_a_name_is_resolved_to_a_model() -> None:
    model = resolve_realtime_model("openai:gpt-realtime-mini")
    assert isinstance(model, OpenAIRealtimeModel)
    assert model.name == "openai:gpt-realtime-mini"


def test_a_model_is_returned_unchanged() -> None:
    model = OpenAIRealtimeModel()
    assert resolve_realtime_model(model) is model


@pytest.mark.parametrize("wrong", ["gpt-realtime", "openai:", "unknown:gpt-realtime", ""])
def test_invalid_names_are_refused_with_the_valid_form(wrong: str) -> None:
    with pytest.raises(SetupError, match=r"`openai:…`"):
        resolve_realtime_model(wrong)


def test_other_objects_are_refused() -> None:
    with pytest.raises(SetupError, match="7 is not a realtime model"):
        resolve_realtime_model(cast("Any", 7))
