"""Requests as Anthropic's Messages API wants them."""

from typing import Any

import pytest

from baton.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolSpec, UserMessage
from baton.models import ModelRequest, ModelSettings, OutputSchema
from baton.models.anthropic.request import build_parameters, version_of

HELLO = (UserMessage("Hello"),)
WAVE = ToolSpec("wave", "Wave a hand.")
CALLED: tuple[Message, ...] = (
    *HELLO,
    AssistantMessage(tool_calls=(ToolCall("c1", "wave"),)),
    ToolMessage("c1", "wave", "ok"),
)


def asked(model: str = "claude-opus-5-5", **fields: Any) -> dict[str, Any]:
    request = ModelRequest(fields.pop("messages", HELLO), fields.pop("instructions", ""), **fields)
    return build_parameters(request, model, f"anthropic:{model}")


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("claude-opus-4-5-20251101", (4, 5)),
        ("claude-haiku-5-5", (5, 5)),
        ("claude-sonnet-5", (5, 0)),
        ("claude-3-7-sonnet-20250219", (3, 7)),
        ("claude-opus-4-20250514", (4, 0)),
        ("us.anthropic.claude-sonnet-4-6-v1:0", (4, 6)),
        ("claude-mythos-preview", (99, 0)),
    ],
)
def test_the_version_is_read_from_the_name(model: str, version: tuple[int, int]) -> None:
    assert version_of(model) == version


@pytest.mark.parametrize(
    ("model", "effort", "most"),
    [
        ("claude-3-haiku-20240307", None, 4_096),
        ("claude-3-5-sonnet-20241022", None, 8_192),
        ("claude-opus-4-1", None, 32_000),
        ("claude-opus-5-5", None, 32_000),
        ("claude-opus-5-5", "max", 64_000),
    ],
)
def test_an_answer_has_room_within_what_the_model_can(model: str, effort: str | None, most: int) -> None:
    assert asked(model, settings=ModelSettings(reasoning_effort=effort))["max_tokens"] == most


def test_a_limit_that_is_given_counts() -> None:
    assert asked(settings=ModelSettings(max_tokens=5))["max_tokens"] == 5


@pytest.mark.parametrize(("effort", "told"), [("minimal", "low"), ("high", "high"), ("max", "max")])
def test_effort_is_told_to_models_of_today(effort: str, told: str) -> None:
    given = asked(settings=ModelSettings(reasoning_effort=effort))
    assert given["thinking"] == {"type": "adaptive"}
    assert given["output_config"] == {"effort": told}


@pytest.mark.parametrize(
    ("effort", "max_tokens", "budget"),
    [("low", None, 2_048), ("high", None, 16_384), ("high", 5_000, 4_999), ("high", 1_000, None)],
)
def test_effort_is_a_budget_for_older_models(effort: str, max_tokens: int | None, budget: int | None) -> None:
    given = asked("claude-haiku-4-5", settings=ModelSettings(reasoning_effort=effort, max_tokens=max_tokens))
    assert given.get("thinking") == (budget and {"type": "enabled", "budget_tokens": budget})


def test_no_effort_is_no_thinking() -> None:
    assert asked(settings=ModelSettings(reasoning_effort="none"))["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("choice", ["required", "wave"])
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5"])
def test_who_must_call_does_not_think_first(model: str, choice: str) -> None:
    settings = ModelSettings(reasoning_effort="high")
    assert "thinking" not in asked(model, tools=(WAVE,), tool_choice=choice, settings=settings)


def test_sampling_is_for_older_models_and_the_older_api() -> None:
    given = asked("claude-sonnet-4-6", settings=ModelSettings(temperature=0.2, top_p=0.5))
    assert given["extra_body"] == {"temperature": 0.2, "top_p": 0.5}
    assert given["extra_headers"] == {"anthropic-version": "2023-06-01"}


def test_what_a_model_does_not_take_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    given = asked(settings=ModelSettings(temperature=0.2, seed=7))
    assert not {"temperature", "seed", "extra_body", "extra_headers"} & set(given)
    assert "does not support temperature and seed; it is ignored" in caplog.text


@pytest.mark.parametrize(
    ("choice", "parallel", "written"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        ("wave", None, {"type": "tool", "name": "wave"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("wave", True, {"type": "tool", "name": "wave", "disable_parallel_tool_use": False}),
    ],
)
def test_tool_choice(choice: str | None, parallel: bool | None, written: dict[str, Any] | None) -> None:
    settings = ModelSettings(parallel_tool_calls=parallel)
    assert asked(tools=(WAVE,), tool_choice=choice, settings=settings).get("tool_choice") == written


def test_tools_that_were_called_are_there_although_none_may_be_called_any_more() -> None:
    given = asked(messages=CALLED)
    assert given["tools"] == [{"name": "wave", "input_schema": {"type": "object"}}]
    assert given["tool_choice"] == {"type": "none"}


def test_a_schema_is_closed_and_its_bounds_are_told_in_words() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 3}}, "required": ["age"]}
    given = asked(output_schema=OutputSchema("person", schema), tools=(ToolSpec("wave", "", schema, strict=True),))
    written = given["output_config"]["format"]["schema"]
    assert written["additionalProperties"] is False
    assert "minimum" not in written["properties"]["age"]
    assert "minimum: 3" in written["properties"]["age"]["description"]
    assert given["tools"][0]["input_schema"] == written


def test_a_schema_of_keys_that_are_not_known_is_told_in_words() -> None:
    schema = {"type": "object", "properties": {"ages": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    given = asked(output_schema=OutputSchema("ages", schema), tools=(ToolSpec("wave", "", schema, strict=True),))
    assert "output_config" not in given
    assert "nothing but JSON" in given["system"]
    assert given["tools"] == [{"name": "wave", "input_schema": schema}]


def test_extras_and_the_time_limit_go_to_the_sdk() -> None:
    settings = ModelSettings(
        timeout=3, stop_sequences=("END",), extra_headers={"x-one": "1"}, extra_body={"service_tier": "auto"}
    )
    given = asked(settings=settings)
    assert given["stop_sequences"] == ["END"]
    assert (given["timeout"], given["extra_headers"]) == (3, {"x-one": "1"})
    assert given["extra_body"] == {"service_tier": "auto"}
