"""Requests in the format of Google's generateContent."""

from typing import Any

import pytest

from batonkit.errors import ModelRequestError
from batonkit.messages import ToolSpec, UserMessage
from batonkit.models import ModelRequest, ModelSettings, OutputSchema
from batonkit.models.google.google_request import build_parameters, version_of

HELLO = (UserMessage("Hello"),)
WAVE = ToolSpec("wave", "Wave a hand.")
CITY = OutputSchema("city", {"type": "object", "properties": {"city": {"type": "string"}}})


def config(model: str = "gemini-3.8-flash", **fields: Any) -> dict[str, Any]:
    return build_parameters(ModelRequest(HELLO, "Be kind.", **fields), model, f"google:{model}")["config"]


@pytest.mark.parametrize(
    ("model", "version"), [("gemini-2.5-flash", (2, 5)), ("models/gemini-3-pro", (3, 0)), ("learnlm", (99, 0))]
)
def test_the_version_is_parsed_from_the_model_name(model: str, version: tuple[int, int]) -> None:
    assert version_of(model) == version


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3.8-flash", "none", {"thinking_level": "MINIMAL"}),
        ("gemini-3.8-flash", "medium", {"include_thoughts": True, "thinking_level": "MEDIUM"}),
        ("gemini-3.8-flash", "xhigh", {"include_thoughts": True, "thinking_level": "HIGH"}),
        ("gemini-2.5-flash", "none", {"thinking_budget": 0}),
        ("gemini-2.5-flash", "low", {"include_thoughts": True, "thinking_budget": 2_048}),
        ("gemini-2.5-flash", "max", {"include_thoughts": True, "thinking_budget": 24_576}),
    ],
)
def test_effort_is_a_level_or_a_budget_for_older_models(model: str, effort: str, thinking: dict[str, Any]) -> None:
    assert config(model, settings=ModelSettings(reasoning_effort=effort))["thinking_config"] == thinking


def test_a_schema_is_sent_natively() -> None:
    result = config(output_schema=CITY, tools=(WAVE,))
    assert result["response_mime_type"] == "application/json"
    assert result["response_json_schema"] == CITY.schema


def test_older_models_with_tools_get_the_schema_in_the_system_instruction() -> None:
    result = config("gemini-2.5-flash", output_schema=CITY, tools=(WAVE,))
    assert "response_json_schema" not in result
    assert result["system_instruction"].startswith("Be kind.\n\nGive your final answer as nothing but JSON")
    assert "response_json_schema" in config("gemini-2.5-flash", output_schema=CITY)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("3d_print", {"mode": "ANY", "allowed_function_names": ["_3d_print"]}),
    ],
)
def test_tool_choice_has_googles_format(choice: str, sent: dict[str, Any]) -> None:
    result = config(tools=(ToolSpec("3d_print"),), tool_choice=choice)
    assert result["tool_config"] == {"function_calling_config": sent}


def test_extra_headers_body_and_timeout_reach_the_sdk() -> None:
    settings = ModelSettings(timeout=1.5, extra_headers={"x-one": "1"}, extra_body={"labels": {"a": "b"}})
    assert config(settings=settings)["http_options"] == {
        "timeout": 1500,
        "headers": {"x-one": "1"},
        "extra_body": {"labels": {"a": "b"}},
    }


def test_one_call_at_a_time_is_refused_only_with_tools() -> None:
    settings = ModelSettings(parallel_tool_calls=False)
    with pytest.raises(ModelRequestError, match=r"gemini-3.8-flash` does not support .*parallel_tool_calls=…"):
        config(tools=(WAVE,), settings=settings)
    assert "tools" not in config(settings=settings)


@pytest.mark.parametrize(("tier", "sent"), [("auto", "unspecified"), ("default", "standard"), ("flex", "flex")])
def test_service_tiers_have_googles_names(tier: str, sent: str) -> None:
    assert config(settings=ModelSettings(service_tier=tier))["service_tier"] == sent


def test_the_sdk_does_not_call_functions() -> None:
    assert config()["automatic_function_calling"] == {"disable": True}
