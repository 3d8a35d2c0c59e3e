"""ModelSettings are sent or refused by every provider as the documentation says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import asdict
from tests.models.local.scripted_engine import ScriptedEngine

from batonkit import Agent, Runner
from batonkit.errors import ModelRequestError, SetupError
from batonkit.log import AgentResponded
from batonkit.messages import AssistantMessage, TokenLogprob, ToolSpec, UserMessage
from batonkit.models import FallbackModel, ModelRequest, ModelResponse, ModelSettings, collect_response
from batonkit.models.anthropic.anthropic_request import build_parameters as anthropic_parameters
from batonkit.models.google.google_request import build_parameters as google_parameters
from batonkit.models.litellm import LACKS as LITELLM_LACKS
from batonkit.models.litellm import LiteLLMModel
from batonkit.models.local.local_model import LACKS as LOCAL_LACKS
from batonkit.models.local.local_model import LocalModel
from batonkit.models.openai import OpenAIModel
from batonkit.models.openai.chat import ChatDialect
from batonkit.models.openai.endpoint import PROVIDERS, lacking_settings
from batonkit.models.openai.responses import ResponsesDialect
from batonkit.models.settings import require_supported
from batonkit.realtime import RealtimeSettings
from batonkit.testing import ScriptedModel, say

PAGE = Path(__file__).parents[2] / "docs/concepts/models.md"
VALUES: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 4,
    "max_tokens": 9,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "stop_sequences": ("END",),
    "seed": 7,
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "verbosity": "low",
    "truncation": "auto",
    "logprobs": True,
    "top_logprobs": 2,
    "metadata": {"user_id": "u42"},
    "service_tier": "auto",
    "timeout": 3.0,
    "max_retries": 1,
    "extra_headers": {"x-trace": "1"},
    "extra_query": {"trace": "1"},
    "extra_body": {"more": 1},
}
Build = Callable[[ModelSettings], dict[str, Any]]


def request_with(settings: ModelSettings) -> ModelRequest:
    return ModelRequest([UserMessage("Hi")], tools=(ToolSpec("wave"),), settings=settings)


def chat(settings: ModelSettings) -> dict[str, Any]:
    return ChatDialect("m", "openai:m", lacks=lacking_settings("openai", "chat")).body(request_with(settings))


def responses(settings: ModelSettings) -> dict[str, Any]:
    dialect = ResponsesDialect("m", "openai-responses:m", lacks=lacking_settings("openai", "responses"))
    return dialect.body(request_with(settings))


def anthropic(settings: ModelSettings, model: str = "claude-sonnet-4-6") -> dict[str, Any]:
    parameters = anthropic_parameters(request_with(settings), model, f"anthropic:{model}")
    # Sampling settings are no arguments of the SDK any more.
    sampling = {name: value for name, value in parameters.get("extra_body", {}).items() if name != "more"}
    return {**parameters, **sampling}


def google(settings: ModelSettings) -> dict[str, Any]:
    return google_parameters(request_with(settings), "gemini-3.8-flash", "google:gemini-3.8-flash")["config"]


def litellm(settings: ModelSettings) -> dict[str, Any]:
    dialect = ChatDialect("m", "litellm:m", "litellm", lacks=LITELLM_LACKS, limit_name="max_tokens")
    return dialect.body(request_with(settings))


def local(settings: ModelSettings) -> dict[str, Any]:
    """Check the settings; two tests below check what is decoded."""
    require_supported(settings, "local:m", LOCAL_LACKS)
    return {}


COLUMNS: dict[str, Build] = {
    "Chat Completions": chat,
    "Responses": responses,
    "Anthropic": anthropic,
    "Google": google,
    "LiteLLM": litellm,
    "local": local,
}


def table(first: str) -> list[dict[str, str]]:
    """Return the rows of the table whose first column has this heading, by column."""
    lines = PAGE.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


CELLS = [
    pytest.param(row["setting"].strip("`"), column, row[column], id=f"{row['setting'].strip('`')}-{column}")
    for row in table("setting")
    for column in COLUMNS
]


def at(body: dict[str, Any], path: str) -> Any:
    value: Any = body
    for name in path.split("."):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def test_the_table_has_every_setting_in_the_order_of_the_class() -> None:
    documented = [row["setting"].strip("`") for row in table("setting")]
    assert documented == [name for name in ModelSettings.__struct_fields__ if name != "ignore_unsupported"]
    assert documented == list(VALUES)


@pytest.mark.parametrize(("name", "column", "cell"), CELLS)
def test_a_setting_is_sent_or_refused_as_the_table_says(name: str, column: str, cell: str) -> None:
    build, settings = COLUMNS[column], ModelSettings(**{name: VALUES[name]})
    if cell == "refused":
        with pytest.raises(
            ModelRequestError, match=rf"`[\w.:-]+` does not support ModelSettings\({name}=…\): {name}: "
        ):
            build(settings)
        ignoring = settings.merge(ModelSettings(ignore_unsupported=True))
        assert build(ignoring) == build(ModelSettings())
        return
    body, default = build(settings), build(ModelSettings())
    path = re.match(r"`([\w.]+)`", cell)
    if path is not None and column != "local":
        assert at(body, path[1]) is not None
        assert at(body, path[1]) != at(default, path[1])


@pytest.mark.parametrize("name", [row["setting"].strip("`") for row in table("setting") if "4.6" in row["Anthropic"]])
def test_settings_up_to_claude_4_6_are_refused_for_newer_models(name: str) -> None:
    with pytest.raises(ModelRequestError, match=f"{name}: leave it out, or use Claude 4.6 or older"):
        anthropic(ModelSettings(**{name: VALUES[name]}), "claude-opus-5-5")


async def test_the_embedded_model_decodes_with_what_the_table_names() -> None:
    fields = {row["setting"].strip("`"): row["local"].strip("`") for row in table("setting") if row["local"][0] == "`"}
    engine = ScriptedEngine(speak=[["Yes."]])
    settings = ModelSettings(**{name: VALUES[name] for name in fields})
    await collect_response(LocalModel(engine=engine).respond(ModelRequest([UserMessage("Hi")], settings=settings)))
    assert {name: getattr(engine.jobs[0], field) for name, field in fields.items()} == {
        name: VALUES[name] for name in fields
    }


async def test_the_embedded_model_refuses_what_it_lacks_before_it_decodes() -> None:
    engine = ScriptedEngine()
    request = ModelRequest([UserMessage("Hi")], settings=ModelSettings(metadata={"a": "b"}))
    with pytest.raises(ModelRequestError, match=r"`local:\S+` does not support ModelSettings\(metadata=…\)"):
        await collect_response(LocalModel(engine=engine).respond(request))
    assert engine.jobs == []


def test_the_table_of_compatible_servers_agrees_with_the_code() -> None:
    documented = {
        row["server"].strip("`"): set(re.findall(r"`(\w+)`", row["refused in Chat Completions"]))
        for row in table("server")
    }
    assert documented == {name: set(lacking_settings(name, "chat")) for name in PROVIDERS}


def test_a_server_of_an_unknown_provider_is_sent_everything_but_truncation() -> None:
    assert list(lacking_settings("groq", "chat")) == ["truncation"]
    assert set(lacking_settings("vllm", "responses")) == {
        *("presence_penalty", "frequency_penalty", "stop_sequences", "seed"),
    }


def test_all_settings_that_a_model_lacks_are_named_at_once() -> None:
    settings = ModelSettings(seed=7, verbosity="low", stop_sequences=("END",))
    with pytest.raises(ModelRequestError) as caught:
        anthropic(settings)
    assert "does not support ModelSettings(seed=…, verbosity=…): seed: leave it out; verbosity: ask for" in str(
        caught.value
    )
    assert caught.value.model == "anthropic:claude-sonnet-4-6"
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(logprobs=False),
        ModelSettings(parallel_tool_calls=True),
        ModelSettings(metadata={}, extra_query={}, stop_sequences=()),
    ],
)
def test_values_that_ask_for_nothing_are_never_refused(settings: ModelSettings) -> None:
    for build in COLUMNS.values():
        build(settings)


def test_choices_are_checked_when_the_settings_are_made() -> None:
    wrong: Any = "tiny"
    with pytest.raises(SetupError, match="verbosity='tiny'; give 'low' or 'medium' or 'high'"):
        ModelSettings(verbosity=wrong)
    with pytest.raises(SetupError, match="truncation='tiny'; give 'auto' or 'disabled'"):
        ModelSettings(truncation=wrong)


async def test_a_fallback_to_another_provider_can_leave_out_what_it_lacks() -> None:
    """The second model would refuse the request otherwise, although the first one accepts it."""
    model = FallbackModel(
        OpenAIModel("gpt-5", base_url="http://127.0.0.1:1/v1", api_key="k"),
        LocalModel(engine=ScriptedEngine(speak=[["Here I am."]])),
    )
    settings = ModelSettings(metadata={"order": "A-17"}, ignore_unsupported=True)
    result = await Runner(Agent("Clerk"), model=model, model_settings=settings).run("Hello?")
    assert result.output == "Here I am."


async def test_log_probabilities_are_recorded_with_the_response() -> None:
    logprobs = (TokenLogprob("Yes", -0.25, (TokenLogprob("Yes", -0.25), TokenLogprob("No", -1.5))),)
    model = ScriptedModel([ModelResponse(AssistantMessage("Yes"), logprobs=logprobs), say("No")], stream=True)
    runner = Runner(Agent("Clerk"), model=model, store="memory:")
    result = await runner.run("Well?")
    stored = await runner.runs.events(result.run_id)
    for events in (result.events, stored):
        assert [event.logprobs for event in events if isinstance(event, AgentResponded)] == [logprobs]
    replayed = await runner.runs.replay(result.run_id)
    assert replayed.output == "Yes"
    async with runner.stream("Well?") as run:
        events = [event async for event in run]
    assert [event.logprobs for event in events if isinstance(event, AgentResponded)] == [()]


def test_every_setting_survives_a_merge() -> None:
    full = ModelSettings(**VALUES, ignore_unsupported=True)
    assert asdict(ModelSettings().merge(full)) == asdict(full)
    assert asdict(full.merge(ModelSettings())) == asdict(full)


REPLACING = [
    *("tools", "messages", "input", "contents", "instructions", "system", "systemInstruction", "system_instruction"),
    *("model", "stream"),
]


@pytest.mark.parametrize("name", REPLACING)
def test_a_field_that_would_replace_an_essential_part_of_the_request_is_refused(name: str) -> None:
    with pytest.raises(SetupError, match=rf"ModelSettings\(extra_body=…\) has `{name}`, which would replace .*; "):
        ModelSettings(extra_body={"metadata": {}, name: []})
    with pytest.raises(SetupError, match=rf"RealtimeSettings\(extra_body=…\) has `{name}`, which would replace"):
        RealtimeSettings(extra_body={name: []})
    with pytest.raises(SetupError, match=rf"LiteLLMModel\(extra_body=…\) has `{name}`, which would replace"):
        LiteLLMModel("m", extra_body={name: []})
    if name != "model":
        options: dict[str, Any] = {name: []}
        with pytest.raises(SetupError, match=rf"LiteLLMModel\(\) has `{name}`, which would replace"):
            LiteLLMModel("m", **options)


def test_tools_of_a_provider_are_refused_with_what_to_use_instead() -> None:
    with pytest.raises(SetupError) as caught:
        ModelSettings(extra_body={"tools": [{"type": "web_search"}]})
    assert str(caught.value) == (
        "ModelSettings(extra_body=…) has `tools`, which would replace the agent's tools and handoffs; use the agent's "
        "`tools`. Tools that a provider executes itself, such as web search, are not supported, because their results "
        "and citations would be lost: use a function or MCPToolset(…)"
    )


def test_every_field_that_baton_fills_with_an_agents_data_is_refused() -> None:
    request = ModelRequest([UserMessage("Hi there.")], "Be kind.", (ToolSpec("wave"),))
    google = google_parameters(request, "gemini-3.8-flash", "google:gemini-3.8-flash")
    bodies = [
        ChatDialect("m", "openai:m").body(request),
        ResponsesDialect("m", "openai-responses:m").body(request),
        anthropic_parameters(request, "claude-opus-5-5", "anthropic:claude-opus-5-5"),
        {**google["config"], "contents": google["contents"]},
    ]
    for body in bodies:
        parts = ("Hi there.", "Be kind.", "wave")
        names = [name for name, value in body.items() if any(part in str(value) for part in parts)]
        assert len(names) in (2, 3)
        for name in names:
            with pytest.raises(SetupError, match=f"has `{name}`"):
                ModelSettings(extra_body={name: "other"})


def test_other_fields_of_a_request_can_be_replaced() -> None:
    fields = {"tool_choice": "required", "response_format": {"type": "json_object"}, "web_search_options": {}}
    assert chat(ModelSettings(extra_body=fields))["model"] == "m"
