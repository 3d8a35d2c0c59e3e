"""Handoffs that are switched off: hidden from the model, and refused when called all the same."""

import asyncio
from typing import Any

import pytest

from baton import Agent, AgentContext, RunContext, Runner, Transfer, agent, handoff, tool
from baton.errors import RunError, TransferError
from baton.events import AgentResponded
from baton.testing import ScriptedModel, call


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def tools_shown(model: ScriptedModel) -> list[list[str]]:
    """The tools of each request."""
    return [[spec.name for spec in request.tools] for request in model.requests]


async def test_a_disabled_handoff_is_not_shown_and_is_refused_when_called() -> None:
    # T14, handoffs.md H7
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])).run(
        "hi"
    )
    assert tools_shown(model) == [["transfer_to_c"], ["transfer_to_c"]]
    assert (result.agent, result.output) == ("A", "I stay")
    assert (
        model.requests[1].messages[-1].content == "Not transferred: [B] is not available now; you can transfer to: `C`."
    )


async def test_a_disabled_handoff_called_for_ever_is_a_typed_error() -> None:
    # T14, T19
    model = ScriptedModel([call("transfer_to_b")], cycle=True)
    with pytest.raises(TransferError, match=r"\[B\] is not available now"):
        await Runner(Agent("A", model=model, handoffs=[handoff(Agent("B"), is_enabled=False)])).run("hi")
    assert len(model.requests) == 3


async def test_whether_it_is_enabled_is_asked_every_turn() -> None:
    # handoffs.md H7
    asked: list[tuple[str, Any]] = []

    def from_the_second_turn_on(ctx: RunContext, source: Any) -> bool:
        asked.append((ctx.agent, source.name))
        return len(asked) > 1

    model = ScriptedModel({"A": [call("transfer_to_b"), call("transfer_to_b")], "B": ["hello"]})
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=from_the_second_turn_on)])
    result = await Runner(a, model=model).run("hi")
    assert tools_shown(model)[:2] == [[], ["transfer_to_b"]]
    assert result.agent == "B"
    assert asked == [("A", "A"), ("A", "A")]


async def test_conditions_may_be_async_and_are_asked_all_at_once() -> None:
    # handoffs.md H7
    here, there = asyncio.Event(), asyncio.Event()

    async def one(ctx: RunContext, source: Any) -> bool:
        here.set()
        await there.wait()
        return True

    async def other(ctx: RunContext, source: Any) -> bool:
        there.set()
        await here.wait()
        return False

    edges = [handoff(Agent("B"), is_enabled=one), handoff(Agent("C"), is_enabled=other)]
    model = ScriptedModel(["done"])
    await Runner(Agent("A", model=model, handoffs=edges)).run("hi")
    assert tools_shown(model) == [["transfer_to_b"]]


async def test_a_condition_that_raises_ends_the_run_with_the_name_of_the_edge() -> None:
    # handoffs.md H7
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
    # Siblings are cancelled and waited for.
    assert cleaned == ["hangs"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_of_two_conditions_that_raise_the_first_is_named() -> None:
    # handoffs.md H7: also if the other one fails while it is being cancelled.
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


async def test_what_was_switched_off_is_remembered_across_resume() -> None:
    # handoffs.md H7, H13: the call is judged by what the model was shown.
    switch = {"is_on": True}
    model = ScriptedModel({"A": [[call("ask", question="?"), call("transfer_to_b")]], "B": ["hello"]})
    a = Agent("A", tools=[ask], handoffs=[handoff(Agent("B"), is_enabled=lambda ctx, source: switch["is_on"])])
    runner = Runner(a, model=model)
    suspended = await runner.run("hi")
    switch["is_on"] = False
    assert (await runner.resume(suspended.run_id, "yes")).agent == "B"
    (said, *_) = [event for event in suspended.events if isinstance(event, AgentResponded)]
    assert said.disabled_handoffs == ()


async def test_code_may_follow_an_edge_that_no_model_is_shown() -> None:
    # handoffs.md H7
    @agent("A", handoffs=[handoff("B", is_enabled=False)])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("B")

    result = await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["hello"]))]).run("hi")
    assert result.agent == "B"
