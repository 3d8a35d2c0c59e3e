"""Conditions of tools in realtime sessions."""

from typing import Any

import pytest
from tests.realtime.backends import Backend
from tests.realtime.recorder import record_session

from batonkit import Agent, AgentOptions, RunContext, tool
from batonkit.errors import SetupError
from batonkit.log import AgentResponded, Event, ToolReturned
from batonkit.models import register_model
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, call

TEXT_ONLY = RealtimeSettings(modality="text")


@tool
async def log_in(ctx: RunContext) -> str:
    """Log in."""
    ctx.values.set("is_known", True)
    return "welcome"


@tool(is_enabled=lambda ctx, agent: bool(ctx.values.get("is_known")))
async def balance() -> str:
    """Return the balance."""
    return "12 EUR"


async def test_a_disabled_tool_is_hidden_refused_and_offered_once_it_is_enabled(backend: Backend) -> None:
    model = await backend.start([call("balance"), call("log_in"), call("balance"), "12 EUR."])
    runner = RealtimeRunner(RealtimeAgent("Desk", tools=[log_in, balance]), model=model, settings=TEXT_ONLY)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("How much?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "12 EUR.")
    returned = [(each.tool_name, each.content, each.is_error) for each in recorder.of_type(ToolReturned)]
    told = "The tool `balance` is not available now; the tools are: `log_in`."
    assert returned == [("balance", told, True), ("log_in", "welcome", False), ("balance", "12 EUR", False)]
    hidden = [each.disabled_tools for each in recorder.of_type(AgentResponded) if each.tool_calls]
    assert hidden == [("balance",), ("balance",), ()]
    assert "configure" in backend.commands(), "the model is told of the tool once it is enabled"
    replayed = await runner.text_runner.runs.replay([event for event in recorder.events if isinstance(event, Event)])
    assert replayed.status == "completed"


@pytest.mark.parametrize("wrong", [{"model": "openai:gpt-5"}, {"agent_options": {"Desk": AgentOptions()}}])
def test_options_of_a_run_are_for_text_agents(wrong: Any) -> None:
    runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel([]))
    with pytest.raises(SetupError, match=r"a session has the model of|only an Agent has them"):
        runner.connect(**wrong)


def _given_model(name: str) -> ScriptedModel:
    return ScriptedModel(["given"])


async def test_a_text_agent_that_is_a_tool_has_options(backend: Backend) -> None:
    expert = Agent("Expert", model=ScriptedModel(["own"]))
    model = await backend.start([call("expert", request="?"), "ok"])
    runner = RealtimeRunner(RealtimeAgent("Desk", tools=[expert.as_tool("expert")]), model=model, settings=TEXT_ONLY)
    register_model("given", _given_model)
    options = {"Expert": AgentOptions(model="given:one")}
    async with record_session(runner.connect(agent_options=options)) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "ok")
    assert [each.content for each in recorder.of_type(ToolReturned)] == ["given"]
