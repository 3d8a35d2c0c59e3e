"""Requests in the format of Anthropic's Messages API."""

from typing import Any

import pytest

from batonkit.errors import ModelRequestError
from batonkit.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolSpec, UserMessage
from batonkit.models import ModelRequest, ModelSettings, OutputSchema
from batonkit.models.anthropic.anthropic_request import build_parameters, version_of

HELLO = (UserMessage("Hello"),)
WAVE = ToolSpec("wave", "Wave a hand.")
CALLED: tuple[Message, ...] = (
    *HELLO,
    AssistantMessage(tool_calls=(ToolCall("c1", "wave"),)),
    ToolMessage("c1", "wave", "ok"),
)


def parameters_for(model: str = "claude-opus-5-5", **fields: Any) -> dict[str, Any]:
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
def test_the_version_is_parsed_from_the_model_name(model: str, version: tuple[int, int]) -> None:
    assert version_of(model) == version


@pytest.mark.parametrize(
    ("model", "effort", "max_tokens_sent"),
    [
        ("claude-3-haiku-20240307", None, 4_096),
        ("claude-3-5-sonnet-20241022", None, 8_192),
        ("claude-opus-4-1", None, 32_000),
        ("claude-opus-5-5", None, 32_000),
        ("claude-opus-5-5", "max", 64_000),
    ],
)
def test_the_default_max_tokens_depends_on_model_and_effort(
    model: str, effort: str | None, max_tokens_sent: int
) -> None:
    assert parameters_for(model, settings=ModelSettings(reasoning_effort=effort))["max_tokens"] == max_tokens_sent


def test_an_explicit_max_tokens_is_used() -> None:
    assert parameters_for(settings=ModelSettings(max_tokens=5))["max_tokens"] == 5


@pytest.mark.parametrize(("effort", "sent"), [("minimal", "low"), ("high", "high"), ("max", "max")])
def test_effort_is_sent_to_current_models(effort: str, sent: str) -> None:
    parameters = parameters_for(settings=ModelSettings(reasoning_effort=effort))
    assert parameters["thinking"] == {"type": "adaptive"}
    assert parameters["output_config"] == {"effort": sent}


@pytest.mark.parametrize(
    ("effort", "max_tokens", "budget"),
    [("low", None, 2_048), ("high", None, 16_384), ("high", 5_000, 4_999), ("high", 1_000, None)],
)
def test_effort_becomes_a_token_budget_for_older_models(
    effort: str, max_tokens: int | None, budget: int | None
) -> None:
    parameters = parameters_for(
        "claude-haiku-4-5", settings=ModelSettings(reasoning_effort=effort, max_tokens=max_tokens)
    )
    assert parameters.get("thinking") == (budget and {"type": "enabled", "budget_tokens": budget})


def test_effort_none_disables_thinking() -> None:
    assert parameters_for(settings=ModelSettings(reasoning_effort="none"))["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("choice", ["required", "wave"])
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5"])
def test_a_forced_tool_call_disables_thinking(model: str, choice: str) -> None:
    settings = ModelSettings(reasoning_effort="high")
    assert "thinking" not in parameters_for(model, tools=(WAVE,), tool_choice=choice, settings=settings)


def test_sampling_settings_use_the_older_api_version() -> None:
    parameters = parameters_for("claude-sonnet-4-6", settings=ModelSettings(temperature=0.2, top_p=0.5, top_k=9))
    assert parameters["extra_body"] == {"temperature": 0.2, "top_p": 0.5, "top_k": 9}
    assert parameters["extra_headers"] == {"anthropic-version": "2023-06-01"}


def test_sampling_settings_are_refused_for_newer_models() -> None:
    settings = ModelSettings(temperature=0.2, seed=7)
    with pytest.raises(ModelRequestError) as caught:
        parameters_for(settings=settings)
    assert str(caught.value) == (
        "`anthropic:claude-opus-5-5` does not support ModelSettings(seed=…, temperature=…): seed: leave it out; "
        "temperature: leave it out, or use Claude 4.6 or older. "
        "ModelSettings(ignore_unsupported=True) leaves out what a model lacks"
    )
    parameters = parameters_for(settings=settings.merge(ModelSettings(ignore_unsupported=True)))
    assert not {"temperature", "seed", "extra_body", "extra_headers"} & set(parameters)


@pytest.mark.parametrize(("tier", "sent"), [("auto", "auto"), ("default", "standard_only")])
def test_service_tiers_have_anthropics_names(tier: str, sent: str) -> None:
    assert parameters_for(settings=ModelSettings(service_tier=tier))["service_tier"] == sent


def test_metadata_other_than_the_user_id_are_refused_by_key() -> None:
    settings = ModelSettings(metadata={"user_id": "u42", "order": "A-17"})
    with pytest.raises(ModelRequestError, match=r"does not accept metadata `order`; the only key .* is `user_id`"):
        parameters_for(settings=settings)
    parameters = parameters_for(settings=settings.merge(ModelSettings(ignore_unsupported=True)))
    assert parameters["metadata"] == {"user_id": "u42"}


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
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
def test_tool_choice_has_anthropics_format(
    choice: str | None, parallel: bool | None, expected: dict[str, Any] | None
) -> None:
    settings = ModelSettings(parallel_tool_calls=parallel)
    assert parameters_for(tools=(WAVE,), tool_choice=choice, settings=settings).get("tool_choice") == expected


def test_tools_called_in_the_history_are_declared_with_tool_choice_none() -> None:
    parameters = parameters_for(messages=CALLED)
    assert parameters["tools"] == [{"name": "wave", "input_schema": {"type": "object"}}]
    assert parameters["tool_choice"] == {"type": "none"}


def test_a_schema_forbids_extra_properties_and_describes_its_bounds() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 3}}, "required": ["age"]}
    parameters = parameters_for(
        output_schema=OutputSchema("person", schema), tools=(ToolSpec("wave", "", schema, strict=True),)
    )
    expected = parameters["output_config"]["format"]["schema"]
    assert expected["additionalProperties"] is False
    assert "minimum" not in expected["properties"]["age"]
    assert "minimum: 3" in expected["properties"]["age"]["description"]
    assert parameters["tools"][0]["input_schema"] == expected


def test_a_schema_with_free_keys_is_described_in_the_system_prompt() -> None:
    schema = {"type": "object", "properties": {"ages": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    parameters = parameters_for(
        output_schema=OutputSchema("ages", schema), tools=(ToolSpec("wave", "", schema, strict=True),)
    )
    assert "output_config" not in parameters
    assert "nothing but JSON" in parameters["system"]
    assert parameters["tools"] == [{"name": "wave", "input_schema": schema}]


def test_extra_headers_body_and_timeout_reach_the_sdk() -> None:
    settings = ModelSettings(
        timeout=3, stop_sequences=("END",), extra_headers={"x-one": "1"}, extra_body={"service_tier": "auto"}
    )
    parameters = parameters_for(settings=settings)
    assert parameters["stop_sequences"] == ["END"]
    assert (parameters["timeout"], parameters["extra_headers"]) == (3, {"x-one": "1"})
    assert parameters["extra_body"] == {"service_tier": "auto"}
