"""Content, redaction and metrics in every kind of run, as an OTLP receiver gets them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from tests.mcp.servers import served as mcp_served
from tests.otel.receiver import Receiver, exporting
from tests.serve.a2a.clients import served

from batonkit import Agent, ParallelAgent, Runner, handoff, tool
from batonkit.a2a import RemoteAgent
from batonkit.mcp import MCPToolset
from batonkit.otel import OTelObserver
from batonkit.serve import mcp_app
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel, call

SECRET = "4711"
Situation: TypeAlias = Callable[[OTelObserver], AbstractAsyncContextManager[dict[str, int]]]
"""Drives a run about the secret while its block is entered; yields the number of model calls by agent."""


def redact(name: str, value: Any) -> Any:
    return str(value).replace(SECRET, "####") if SECRET in str(value) else value


@tool(needs_approval=True)
async def pay(code: str) -> str:
    """Pay."""
    return f"paid with {code}"


@asynccontextmanager
async def a_handoff(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    billing = Agent("Billing", description="Bills.")
    script = {"Desk": [call("transfer_to_billing")], "Billing": [f"The code {SECRET} is right."]}
    desk = Agent("Desk", handoffs=[handoff(billing)])
    await Runner(desk, model=ScriptedModel(script), observers=[observer]).run(f"My code is {SECRET}.")
    yield {"Desk": 1, "Billing": 1}


@asynccontextmanager
async def parallel_branches(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    script = {"A": [f"A read {SECRET}."], "B": [f"B read {SECRET}."]}
    team = ParallelAgent("Team", sub_agents=[Agent("A"), Agent("B")])
    await Runner(team, model=ScriptedModel(script), observers=[observer]).run(f"My code is {SECRET}.")
    yield {"A": 1, "B": 1}


@asynccontextmanager
async def an_agent_as_a_tool(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    expert = Agent("Expert", description="Knows.")
    script = {"Boss": [call("expert", request=f"Check {SECRET}."), "Done."], "Expert": [f"{SECRET} is right."]}
    boss = Agent("Boss", tools=[expert.as_tool("expert")])
    await Runner(boss, model=ScriptedModel(script), observers=[observer]).run(f"My code is {SECRET}.")
    yield {"Boss": 2, "Expert": 1}


@asynccontextmanager
async def an_interrupt(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    model = ScriptedModel([call("pay", code=SECRET), f"Paid with {SECRET}."])
    runner = Runner(Agent("Clerk", tools=[pay]), model=model, observers=[observer])
    result = await runner.run(f"My code is {SECRET}.")
    await runner.resume(result.run_id, True)
    yield {"Clerk": 2}


@asynccontextmanager
async def an_mcp_tool(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    there = Runner(Agent("There", description="Helps."), model=ScriptedModel([f"{SECRET} is right."]))
    async with mcp_served(mcp_app(there)) as url:
        model = ScriptedModel([call("there", request=f"Check {SECRET}."), f"{SECRET} it is."])
        boss = Agent("Boss", tools=[MCPToolset(url)])
        await Runner(boss, model=model, observers=[observer]).run(f"My code is {SECRET}.")
    yield {"Boss": 2}


@asynccontextmanager
async def a_remote_agent(observer: OTelObserver) -> AsyncGenerator[dict[str, int]]:
    there = Runner(Agent("There", description="Helps."), model=ScriptedModel([f"{SECRET} is right."]), store="memory:")
    async with served(a2a_app(there)) as url:
        remote = RemoteAgent(f"{url}/", name="Remote", description="Helps.")
        boss = Agent("Boss", handoffs=[remote])
        model = ScriptedModel([call("transfer_to_remote")])
        await Runner(boss, model=model, observers=[observer]).run(f"My code is {SECRET}.")
    yield {"Boss": 1}


SITUATIONS: list[Situation] = [
    a_handoff,
    parallel_branches,
    an_agent_as_a_tool,
    an_interrupt,
    an_mcp_tool,
    a_remote_agent,
]


def words_of(received: Receiver) -> str:
    return str([[span.attributes, span.events] for span in received.spans])


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("content", [True, False])
async def test_content_is_recorded_on_request_and_redacted(situation: Situation, content: bool) -> None:
    with exporting(content=content, redact=redact) as (received, observer):
        async with situation(observer):
            observer.flush()
    words = words_of(received)
    assert SECRET not in words
    assert ("####" in words) is content
    for span in received.spans:
        if span.name.startswith("chat "):
            assert ("gen_ai.input.messages" in span.attributes) is content
            assert ("gen_ai.output.messages" in span.attributes) is content
        if span.name.startswith("execute_tool "):
            assert ("gen_ai.tool.call.arguments" in span.attributes) is content


async def test_without_redaction_the_content_is_recorded() -> None:
    with exporting(content=True) as (received, observer):
        async with parallel_branches(observer):
            observer.flush()
    assert SECRET in words_of(received)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_every_model_call_and_agent_is_measured(situation: Situation) -> None:
    with exporting() as (received, observer):
        async with situation(observer) as calls:
            observer.flush()
    assert received.point("gen_ai.client.operation.duration").count == sum(calls.values())
    for agent in calls:
        assert received.point("baton.agent.duration", gen_ai__agent__name=agent).count >= 1
    assert received.point("baton.runs.active").sum == 0
