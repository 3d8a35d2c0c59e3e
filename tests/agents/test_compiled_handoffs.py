"""Disabled handoffs: hidden from the model, and refused if it calls them anyway."""

import asyncio
from typing import Any

import pytest

from batonkit import Agent, AgentContext, RunContext, Runner, Transfer, agent, handoff, tool
from batonkit.errors import RunError, TransferError
from batonkit.log import AgentResponded
from batonkit.testing import ScriptedModel, call


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def tool_names(model: ScriptedModel) -> list[list[str]]:
    """Return the names of the tools in each request."""
    return [[spec.name for spec in request.tools] for request in model.requests]


async def test_a_disabled_handoff_is_hidden_and_refused_when_called() -> None:
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])).run(
        "hi"
    )
    assert tool_names(model) == [["transfer_to_c"], ["transfer_to_c"]]
    assert (result.agent, result.output) == ("A", "I stay")
    assert (
        model.requests[1].messages[-1].content == "Not transferred: [B] is not available now; you can transfer to: `C`."
    )


async def test_calling_a_disabled_handoff_repeatedly_raises_a_transfer_error() -> None:
    model = ScriptedModel([call("transfer_to_b")], cycle=True)
    with pytest.raises(TransferError, match=r"\[B\] is not available now"):
        await Runner(Agent("A", model=model, handoffs=[handoff(Agent("B"), is_enabled=False)])).run("hi")
    assert len(model.requests) == 3


async def test_is_enabled_is_called_in_every_turn() -> None:
    calls: list[tuple[str, Any]] = []

    def enabled_from_the_second_turn(ctx: RunContext, source: Any) -> bool:
        calls.append((ctx.agent, source.name))
        return len(calls) > 1

    model = ScriptedModel({"A": [call("transfer_to_b"), call("transfer_to_b")], "B": ["hello"]})
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=enabled_from_the_second_turn)])
    result = await Runner(a, model=model).run("hi")
    assert tool_names(model)[:2] == [[], ["transfer_to_b"]]
    assert result.agent == "B"
    assert calls == [("A", "A"), ("A", "A")]


async def test_is_enabled_can_be_async_and_runs_concurrently() -> None:
    one_started, other_started = asyncio.Event(), asyncio.Event()

    async def one(ctx: RunContext, source: Any) -> bool:
        one_started.set()
        await other_started.wait()
        return True

    async def other(ctx: RunContext, source: Any) -> bool:
        other_started.set()
        await one_started.wait()
        return False

    edges = [handoff(Agent("B"), is_enabled=one), handoff(Agent("C"), is_enabled=other)]
    model = ScriptedModel(["done"])
    await Runner(Agent("A", model=model, handoffs=edges)).run("hi")
    assert tool_names(model) == [["transfer_to_b"]]


async def test_an_error_in_is_enabled_ends_the_run_and_names_the_handoff() -> None:
    cleaned: list[str] = []

    async def hangs(ctx: RunContext, source: Any) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("hangs")
        return True

    async def fails(ctx: RunContext, source: Any) -> bool:
        await asyncio.sleep(0)
        raise KeyError("tier")

    edges = [handoff(Agent("B"), is_enabled=hangs), handoff(Agent("C"), is_enabled=fails)]
    runner = Runner(Agent("A", model=ScriptedModel(["never"]), handoffs=edges))
    with pytest.raises(RunError, match="is_enabled of the handoff from `A` to `C` raised KeyError: 'tier'") as caught:
        await runner.run("hi")
    assert isinstance(caught.value.__cause__, KeyError)
    # The other conditions are cancelled and awaited.
    assert cleaned == ["hangs"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_first_of_two_errors_in_is_enabled_is_raised() -> None:
    # Also if the other one fails while it is being cancelled.
    async def fails_late(ctx: RunContext, source: Any) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while being cancelled")

    async def fails(ctx: RunContext, source: Any) -> bool:
        await asyncio.sleep(0)
        raise KeyError("tier")

    edges = [handoff(Agent("B"), is_enabled=fails), handoff(Agent("C"), is_enabled=fails_late)]
    with pytest.raises(RunError, match="from `A` to `B` raised KeyError"):
        await Runner(Agent("A", model=ScriptedModel(["never"]), handoffs=edges)).run("hi")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_disabled_handoffs_are_recorded_and_stay_the_same_after_a_resume() -> None:
    # A call is valid if the handoff was enabled when the model was called.
    settings = {"is_on": True}
    model = ScriptedModel({"A": [[call("ask", question="?"), call("transfer_to_b")]], "B": ["hello"]})
    a = Agent("A", tools=[ask], handoffs=[handoff(Agent("B"), is_enabled=lambda ctx, source: settings["is_on"])])
    runner = Runner(a, model=model)
    suspended = await runner.run("hi")
    settings["is_on"] = False
    assert (await runner.resume(suspended.run_id, "yes")).agent == "B"
    (response, *_) = [event for event in suspended.events if isinstance(event, AgentResponded)]
    assert response.disabled_handoffs == ()


async def test_a_custom_agent_can_follow_a_disabled_handoff() -> None:
    @agent("A", handoffs=[handoff("B", is_enabled=False)])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("B")

    result = await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["hello"]))]).run("hi")
    assert result.agent == "B"
