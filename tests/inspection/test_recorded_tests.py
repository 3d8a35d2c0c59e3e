"""Tests that are written from recorded runs: they are executed here, with the team and with one that has changed."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, Limits, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.errors import BatonError, SetupError
from batonkit.inspection import write_test
from batonkit.log import Event
from batonkit.messages import Image, Text, ToolCall, UserMessage
from batonkit.runs import Dismiss
from batonkit.testing import ScriptedModel, call, say


class Accounts:
    """A context object."""

    def __init__(self) -> None:
        self.paid: list[str] = []


class Rating(BaseModel):
    """An output type."""

    stars: int


@tool(needs_approval=True)
async def pay(ctx: RunContext[Accounts], order: str) -> str:
    """Pay back."""
    ctx.context.paid.append(order)
    return f"{order} is paid"


@tool
async def ask_reason(ctx: RunContext) -> str:
    """Ask for the reason."""
    return f"because {await ctx.interrupt('why?')}"


@tool
async def search(ctx: RunContext, query: dict[str, Any]) -> str:
    """Search."""
    return f"found {query}, {ctx.values.get('limit')}"


def _desk(*, refunds: Any = (), triage: Any = ()) -> Agent:
    # Models of their own, which the test must replace.
    paying = Agent("Refunds", description="Pays.", tools=[pay, ask_reason], model=ScriptedModel([*refunds]))
    return Agent("Triage", tools=[search], handoffs=[handoff(paying)], model=ScriptedModel([*triage]))


def _record(
    root: Any, input: Any = "refund A-1", *, answers: Sequence[Any] = (), context: Any = None, **args: Any
) -> list[Event]:
    """Run a team, answer its questions in order, and return the log."""
    context = context or Accounts()

    async def record() -> list[Event]:
        runner = Runner(root, store="memory:")
        with suppress(BatonError):
            await runner.run(input, run_id="r1", context=context, **args)
            for answer in answers:
                await runner.resume("r1", answer, context=context)
        return await runner.runs.events("r1")

    return asyncio.run(record())


def _execute(source: str, team: Any, monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    """Execute a test as pytest would; `names` replaces what its reader is to fill in."""
    desk: Any = ModuleType("desk")
    desk.team = team
    monkeypatch.setitem(sys.modules, "desk", desk)
    namespace: dict[str, Any] = {}
    exec(compile(source, "test_recorded.py", "exec"), namespace)
    namespace.update({"CONTEXT": Accounts(), **names})
    namespace["test_the_recorded_run"]()


def test_a_run_with_an_approval_and_a_context_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    team = _desk(triage=[call("transfer_to_refunds")], refunds=[call("pay", order="A-1"), 'Paid "A-1".'])
    source = write_test(_record(team, answers=[True], context=Accounts()))
    context = Accounts()
    _execute(source, _desk(), monkeypatch, CONTEXT=context)
    assert context.paid == ["A-1"]


def test_a_refused_call_is_refused_again(monkeypatch: pytest.MonkeyPatch) -> None:
    team = _desk(triage=[call("transfer_to_refunds")], refunds=[call("pay", order="A-1"), "Not paid."])
    answer = {"approved": False, "reason": "too much"}
    source = write_test(_record(team, answers=[answer], context=Accounts()))
    context = Accounts()
    _execute(source, _desk(), monkeypatch, CONTEXT=context)
    assert context.paid == []


def test_a_test_fails_if_the_team_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    team = _desk(triage=[call("transfer_to_refunds")], refunds=["Done."])
    source = write_test(_record(team))
    _execute(source, _desk(), monkeypatch)
    with pytest.raises((AssertionError, BatonError)):
        _execute(source, Agent("Triage"), monkeypatch)


def test_several_answers_messages_and_dismissals_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = say("", call("ask_reason"), call("ask_reason"))
    steps = [asked, asked, "Thanks."]
    refunds = Agent("Refunds", tools=[ask_reason], model=ScriptedModel(steps))

    async def record() -> list[Event]:
        runner = Runner(refunds, store="memory:")
        result = await runner.run("refund", run_id="r1")
        first, second = [each.id for each in result.interrupts]
        await runner.resume("r1", {second: {"code": None, "is_late": True}})
        result = await runner.resume("r1", {first: "broken"}, message="And hurry.", values={"urgent": True})
        await runner.resume("r1", Dismiss("I do not know."))
        return await runner.runs.events("r1")

    source = write_test(asyncio.run(record()))
    assert source.count("await runner.resume(") == 3
    assert 'Dismiss("I do not know.")' in source
    assert 'message="And hurry."' in source
    _execute(source, Agent("Refunds", tools=[ask_reason]), monkeypatch)


def test_a_question_of_an_agent_that_runs_as_a_tool_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def team(*, inner: Any = (), outer: Any = ()) -> Agent:
        helper = Agent("Helper", description="Helps.", tools=[ask_reason], model=ScriptedModel([*inner]))
        return Agent("Desk", tools=[helper.as_tool("help_me")], model=ScriptedModel([*outer]))

    recorded = team(inner=[call("ask_reason"), "It is broken."], outer=[call("help_me", request="why?"), "I see."])
    _execute(write_test(_record(recorded, answers=["it fell"])), team(), monkeypatch)


def test_transfers_in_parallel_branches_may_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def team(scripts: Mapping[str, Any]) -> ParallelAgent:
        inner = [Agent(f"End{each}", description="Ends.", model=ScriptedModel(["end"])) for each in "AB"]
        first = [
            Agent(f"Start{each}", handoffs=[end], model=ScriptedModel(scripts.get(each, [])))
            for each, end in zip("AB", inner, strict=True)
        ]
        return ParallelAgent("Both", sub_agents=first)

    recorded = team({each: [call(f"transfer_to_end{each.lower()}")] for each in "AB"})
    source = write_test(_record(recorded))
    assert source.count('"/" not in event.origin.id') == 1
    _execute(source, team({}), monkeypatch)


def test_typed_output_values_and_unusual_arguments_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        call("search", query={"from": "Rome", "class": [1.5, None, True], 'a"b': "ü\n\u2028"}),
        ToolCall("c9", "search", '{"query": '),
        ToolCall("c10", "search", '{"lambda": 1}'),
        '{"stars":4}',
    ]
    recorded = Agent("Critic", tools=[search], output_type=Rating, model=ScriptedModel(steps))
    message = UserMessage((Text("look"), Image(data=b"\x89PNG")))
    source = write_test(_record(recorded, [message], values={"limit": 3}))
    assert '**{"lambda": 1}' in source
    _execute(source, Agent("Critic", tools=[search], output_type=Rating), monkeypatch)


def test_an_open_question_and_a_failure_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    team = _desk(triage=[call("transfer_to_refunds")], refunds=[call("ask_reason")])
    source = write_test(_record(team, context=Accounts()))
    assert "result.interrupts" in source
    _execute(source, _desk(), monkeypatch, CONTEXT=Accounts())

    again = [call("search", query={}) for _ in range(3)]
    failed = write_test(_record(_desk(triage=again), limits=Limits(model_calls=2)))
    assert '__name__ == "LimitError"' in failed
    assert "pytest.raises" in failed
    limited = failed.replace("context=CONTEXT", "context=CONTEXT, limits=LIMITS")
    _execute(limited, _desk(), monkeypatch, LIMITS=Limits(model_calls=2))


def test_a_run_that_failed_and_was_resumed_is_repeated_without_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: Any) -> Any:
        raise BatonError("the line is dead")

    steps = [call("search", query={}), fail, "Done."]

    async def record() -> list[Event]:
        runner = Runner(_desk(triage=steps), store="memory:")
        with pytest.raises(BatonError):
            await runner.run("hi", run_id="r1", context=Accounts())
        await runner.resume("r1")
        return await runner.runs.events("r1")

    source = write_test(asyncio.run(record()))
    assert "resume" not in source
    _execute(source, _desk(), monkeypatch)


def test_a_run_that_was_cancelled_or_is_in_progress_is_refused() -> None:
    events = _record(_desk(triage=["Hi."]))
    with pytest.raises(SetupError, match="`r1` was cancelled or is in progress; only a run that completed"):
        write_test(events[:-1])
