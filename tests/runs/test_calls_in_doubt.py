"""Calls of `once` tools that ended without a result, and the runs of the thread that come after them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore

from batonkit import Agent, RunContext, Runner, guardrail, tool
from batonkit.log import Event, StepCompleted, ToolReturned
from batonkit.messages import Message, text_of
from batonkit.runs import Dismiss
from batonkit.testing import ScriptedModel, call, say, transcript

UNKNOWN = "The outcome of this call is unknown: it was begun, and may have taken effect. Do not repeat it."


class Bank:
    """Money that was really paid; a payment of 13 euros takes until it is cancelled."""

    def __init__(self, *steps: Any, store: Any = "memory:", input_guardrails: Any = (), **options: Any) -> None:
        self.paid: list[int] = []
        self.begun = asyncio.Event()

        @tool(effect="once", **options)
        async def pay(ctx: RunContext, euro: int) -> str:
            """Pay."""
            self.paid.append(euro)
            if euro == 13:
                self.begun.set()
                await asyncio.Event().wait()
            return f"paid {euro}"

        self.model = ScriptedModel(steps)
        self.agent = Agent("Clerk", model=self.model, tools=[pay], input_guardrails=input_guardrails)
        self.runner = Runner(self.agent, store=store)

    async def cancel_in_the_middle(self, run_id: str = "first", **options: Any) -> None:
        """Run in a thread until the bank has paid 13 euros, then cancel."""
        async with self.runner.stream("pay 13", thread="t", run_id=run_id, **options) as run:
            await self.begun.wait()
            await run.cancel()

    @property
    def read(self) -> list[str]:
        """The messages of the last model request."""
        return texts(self.model.requests[-1].messages)


def texts(messages: Sequence[Message]) -> list[str]:
    return [text_of(message.content) for message in messages]


def results(events: Sequence[Event]) -> list[str]:
    return [text_of(event.content) for event in events if isinstance(event, ToolReturned)]


async def test_the_next_run_reads_that_the_outcome_is_unknown() -> None:
    bank = Bank(call("pay", euro=13), "hello")
    await bank.cancel_in_the_middle()
    result = await bank.runner.run("go on", thread="t")
    assert (result.output, UNKNOWN in bank.read) == ("hello", True)


async def test_another_call_asks_for_the_outcome_first() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=13), "it was paid before")
    await bank.cancel_in_the_middle()
    waiting = await bank.runner.run("go on", thread="t", run_id="second")
    (question,) = waiting.interrupts
    assert question.payload == {
        "kind": "unknown_outcome",
        "tool": "pay",
        "arguments": {"euro": 13},
        "idempotency_key": "first:1/m1.0",
        "earlier_call": {"run_id": "first", "key": "1/m1.0"},
    }
    assert bank.paid == [13]
    result = await bank.runner.resume("second", {"result": "paid 13"})
    assert (result.output, bank.paid) == ("it was paid before", [13])
    assert "paid 13" in bank.read
    assert UNKNOWN not in bank.read
    assert "This call of `pay` was not made" in results(result.events)[0]
    assert '{"euro":13}: paid 13' in results(result.events)[0]
    assert (await bank.runner.runs.replay("second")).messages == result.messages


async def test_the_outcome_stays_in_the_thread_and_a_further_call_is_made() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=13), call("pay", euro=7), "paid 7 more", "bye")
    await bank.cancel_in_the_middle()
    await bank.runner.run("go on", thread="t", run_id="second")
    result = await bank.runner.resume("second", {"error": "no money"})
    assert (result.output, bank.paid) == ("paid 7 more", [13, 7])
    await bank.runner.run("and?", thread="t")
    assert "no money" in bank.read
    assert UNKNOWN not in bank.read


async def test_a_call_that_was_not_executed_lets_the_next_one_pass() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=7), "paid")
    await bank.cancel_in_the_middle()
    await bank.runner.run("go on", thread="t", run_id="second")
    result = await bank.runner.resume("second", {"run_again": True})
    assert (result.output, bank.paid) == ("paid", [13, 7])
    assert "This call was not executed." in bank.read
    assert (await bank.runner.runs.replay("second")).messages == result.messages


async def test_the_question_comes_before_an_approval() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=13), "done", needs_approval=True)
    await bank.runner.run("pay", thread="t", run_id="first")
    async with bank.runner.stream_resume("first", True) as run:
        await bank.begun.wait()
        await run.cancel()
    waiting = await bank.runner.run("go on", thread="t", run_id="second")
    assert waiting.interrupts[0].payload["kind"] == "unknown_outcome"
    result = await bank.runner.resume("second", {"result": "paid"})
    assert (result.output, bank.paid) == ("done", [13])


async def test_calls_of_one_turn_ask_once() -> None:
    twice = say("", call("pay", euro=1), call("pay", euro=2))
    bank = Bank(call("pay", euro=13), twice, "done")
    await bank.cancel_in_the_middle()
    waiting = await bank.runner.run("go on", thread="t", run_id="second")
    assert len(waiting.interrupts) == 1
    result = await bank.runner.resume("second", {"result": "paid 13"})
    assert (result.output, bank.paid) == ("done", [13])
    assert all("was not made" in each for each in results(result.events))


async def test_a_run_that_dies_between_two_calls_that_wait_for_one_answer_makes_neither() -> None:
    twice = say("", call("pay", euro=1), call("pay", euro=2))
    bank = Bank(call("pay", euro=13), twice, "done")
    await bank.cancel_in_the_middle()
    await bank.runner.run("go on", thread="t", run_id="second")
    events = list((await bank.runner.resume("second", {"result": "paid 13"})).events)
    first_result = next(n for n, event in enumerate(events, 1) if isinstance(event, ToolReturned))
    other = Bank("done")
    await other.runner.runs.load(events[:first_result])
    result = await other.runner.resume("second")
    assert (result.output, other.paid) == ("done", [])


async def test_an_outcome_that_was_not_asked_for_stays_unknown_for_later_runs() -> None:
    bank = Bank(call("pay", euro=13), "hello", call("pay", euro=13), store=RecordingStore())
    await bank.cancel_in_the_middle()
    await bank.runner.run("hi", thread="t")
    waiting = await bank.runner.run("go on", thread="t")
    assert waiting.interrupts[0].payload["earlier_call"] == {"run_id": "first", "key": "1/m1.0"}


async def test_a_new_runner_asks_as_well(tmp_path: Any) -> None:
    store = f"{tmp_path}/runs.db"
    bank = Bank(call("pay", euro=13), store=store)
    await bank.cancel_in_the_middle()
    await bank.runner.close()
    other = Bank(call("pay", euro=13), "done", store=store)
    async with other.runner as runner:
        waiting = await runner.run("go on", thread="t")
        assert waiting.status == "suspended"
        result = await runner.resume(waiting.run_id, {"result": "paid 13"})
        assert (result.output, other.paid) == ("done", [])
        assert "paid 13" in other.read


async def test_a_question_that_is_dismissed_leaves_the_outcome_unknown() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=13), call("pay", euro=13), "done")
    await bank.cancel_in_the_middle()
    await bank.runner.run("go on", thread="t", run_id="second")
    # The call that asks is skipped, and the next one asks again.
    waiting = await bank.runner.resume("second", Dismiss())
    assert (waiting.status, bank.paid) == ("suspended", [13])
    result = await bank.runner.resume("second", {"result": "paid 13"})
    assert (result.output, bank.paid) == ("done", [13])


async def test_a_dismissed_question_about_a_crash_leaves_the_outcome_unknown_in_the_run_itself() -> None:
    bank = Bank(call("pay", euro=5), "done")
    events = (await bank.runner.run("pay", run_id="first", thread="t")).events
    intent = next(n for n, event in enumerate(events, 1) if isinstance(event, StepCompleted))
    crashed = Bank(call("pay", euro=5), call("pay", euro=5), "done")
    await crashed.runner.runs.load(events[:intent])
    await crashed.runner.resume("first")
    waiting = await crashed.runner.resume("first", Dismiss("Never mind."))
    assert crashed.read[-1] == f"Never mind. {UNKNOWN}"
    assert waiting.interrupts[0].payload["earlier_call"] == {"run_id": "first", "key": "1/m1.0"}
    again = await crashed.runner.resume("first", Dismiss("Never mind."))
    assert again.interrupts[0].payload["earlier_call"] == {"run_id": "first", "key": "1/m1.0"}
    result = await crashed.runner.resume("first", {"result": "paid 5"})
    assert (result.output, crashed.paid) == ("done", [])
    assert (await crashed.runner.runs.replay("first")).messages == result.messages


async def test_a_call_inside_an_agent_that_runs_as_a_tool_is_asked_about() -> None:
    bank = Bank(call("pay", euro=13), call("pay", euro=13), "paid before", "ok")
    boss = ScriptedModel([call("clerk", request="pay"), call("clerk", request="pay"), "done"])
    runner = Runner(Agent("Boss", model=boss, tools=[bank.agent.as_tool()]), store="memory:")
    async with runner.stream("pay", thread="t") as run:
        await bank.begun.wait()
        await run.cancel()
    waiting = await runner.run("go on", thread="t")
    assert UNKNOWN in texts(boss.requests[-1].messages)
    assert waiting.interrupts[0].payload["kind"] == "unknown_outcome"
    result = await runner.resume(waiting.run_id, {"result": "paid 13"})
    assert (result.output, bank.paid) == ("done", [13])


async def test_a_call_that_ended_with_its_own_question_is_not_in_doubt() -> None:
    @tool(effect="once")
    async def pay(ctx: RunContext) -> str:
        """Pay."""
        return f"paid by {await ctx.interrupt('card?')}"

    model = ScriptedModel([call("pay"), call("pay"), "done"])
    runner = Runner(Agent("Clerk", model=model, tools=[pay]), store="memory:")
    first = await runner.run("pay", thread="t")
    await runner.runs.cancel(first.run_id)
    waiting = await runner.run("go on", thread="t")
    assert "This call did not finish." in texts(model.requests[-1].messages)
    assert waiting.interrupts[0].payload == "card?"
    assert (await runner.resume(waiting.run_id, "card 1")).output == "done"


async def test_a_failed_run_leaves_its_calls_in_doubt_too() -> None:
    @tool(effect="once", on_error="raise")
    async def pay() -> str:
        """Pay."""
        raise ValueError("the line was cut")

    model = ScriptedModel([call("pay"), call("pay"), "done"])
    runner = Runner(Agent("Clerk", model=model, tools=[pay]), store="memory:")
    with pytest.raises(Exception, match="the line was cut"):
        await runner.run("pay", thread="t")
    waiting = await runner.run("go on", thread="t")
    assert waiting.interrupts[0].payload["kind"] == "unknown_outcome"
    result = await runner.resume(waiting.run_id, {"result": "paid"})
    assert "Clerk: pay failed -> This call of `pay` was not made" in "\n".join(transcript(result.events))


async def test_an_agent_that_has_read_of_an_unknown_outcome_reads_the_reported_one() -> None:
    @guardrail
    def reads(ctx: RunContext, messages: Any) -> bool:
        return bool(texts(messages))

    bank = Bank(call("pay", euro=13), call("pay", euro=7), "done", input_guardrails=[reads])
    await bank.cancel_in_the_middle()
    await bank.runner.run("go on", thread="t", run_id="second")
    result = await bank.runner.resume("second", {"run_again": True})
    assert (result.output, bank.paid) == ("done", [13, 7])
    assert "This call was not executed." in bank.read
    assert UNKNOWN not in bank.read
