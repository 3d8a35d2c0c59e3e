"""Effects in forks: what a fork would do a second time is asked for, and keeps its idempotency key."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore

from batonkit import Agent, Approval, RunContext, Runner, agent, tool
from batonkit.log import Event, InterruptAnswered, StepCompleted, ToolReturned
from batonkit.log.events import Interrupt
from batonkit.testing import ScriptedModel, call, transcript


class Bank:
    """Money that was really paid, with the idempotency keys of the payments."""

    def __init__(self, *steps: Any, store: Any = None, **options: Any) -> None:
        self.paid: list[int] = []
        self.keys: list[str] = []

        @tool(effect="once", **options)
        async def pay(ctx: RunContext, euro: int) -> str:
            """Pay."""
            self.paid.append(euro)
            self.keys.append(ctx.idempotency_key)
            return f"paid {euro}"

        @tool
        async def note(ctx: RunContext, text: str) -> str:
            """Take a note; that may happen twice."""
            self.keys.append(ctx.idempotency_key)
            return f"noted {text}"

        self.runner = Runner(Agent("Clerk", model=ScriptedModel(steps), tools=[pay, note]), store=store)


def count_until(events: Sequence[Event], wanted: type[Event], number: int = 1) -> int:
    """The number of events up to the number-th of a class."""
    return [n for n, event in enumerate(events, 1) if isinstance(event, wanted)][number - 1]


def only_question(interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    (question,) = interrupts
    return question.payload


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def store(request: pytest.FixtureRequest) -> RecordingStore | None:
    return RecordingStore() if request.param else None


async def test_a_fork_asks_before_a_payment_and_offers_what_the_original_returned(store: RecordingStore | None) -> None:
    bank = Bank(call("pay", euro=5), "done", call("pay", euro=5), "fork done", store=store)
    first = await bank.runner.run("pay", run_id="r")
    await bank.runner.runs.fork(first.events, at=2, run_id="f")
    waiting = await bank.runner.resume("f")
    assert (waiting.status, bank.paid) == ("suspended", [5])
    assert only_question(waiting.interrupts) == {
        "kind": "unknown_outcome",
        "tool": "pay",
        "arguments": {"euro": 5},
        "idempotency_key": "r:1/m1.0",
        "forked_from": "r@2",
        "default": {"result": "paid 5"},
    }
    result = await bank.runner.resume("f", only_question(waiting.interrupts)["default"])
    assert (result.output, bank.paid) == ("fork done", [5])
    assert "Clerk: pay -> paid 5" in transcript(result.events)


async def test_a_permitted_payment_of_a_fork_has_the_idempotency_key_of_the_original() -> None:
    bank = Bank(call("pay", euro=5), "done", call("pay", euro=5), "fork done", store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    await bank.runner.runs.fork("r", at=2, run_id="f")
    await bank.runner.resume("f")
    result = await bank.runner.resume("f", {"run_again": True})
    assert (result.output, bank.paid, bank.keys) == ("fork done", [5, 5], ["r:1/m1.0", "r:1/m1.0"])


async def test_a_payment_that_differs_is_not_made_by_default_and_has_a_key_of_its_own() -> None:
    bank = Bank(call("pay", euro=5), "done", call("pay", euro=7), "fork done", store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    await bank.runner.runs.fork("r", at=2, run_id="f")
    question = only_question((await bank.runner.resume("f")).interrupts)
    assert question["idempotency_key"] == "f:1/m1.0"
    assert list(question["default"]) == ["error"]
    result = await bank.runner.resume("f", question["default"])
    assert (result.output, bank.paid) == ("fork done", [5])
    assert any("pay failed -> This call was not made" in line for line in transcript(result.events))


async def test_every_later_payment_of_a_fork_is_asked_for_once() -> None:
    bank = Bank("done", call("pay", euro=1), call("pay", euro=2), "fork done", store=RecordingStore())
    await bank.runner.run("hi", run_id="r")
    await bank.runner.runs.fork("r", at=2, run_id="f")
    await bank.runner.resume("f")
    await bank.runner.resume("f", {"run_again": True})
    result = await bank.runner.resume("f", {"run_again": True})
    assert (result.output, bank.paid) == ("fork done", [1, 2])


async def test_a_fork_of_a_fork_keeps_the_key_and_the_outcome_of_the_first_run() -> None:
    bank = Bank(
        *(call("pay", euro=5), "done", call("pay", euro=5), "fork done", call("pay", euro=5)), store=RecordingStore()
    )
    await bank.runner.run("pay", run_id="r")
    await bank.runner.runs.fork("r", at=2, run_id="f")
    await bank.runner.runs.fork("f", run_id="g")
    question = only_question((await bank.runner.resume("g")).interrupts)
    assert (question["idempotency_key"], question["default"]) == ("r:1/m1.0", {"result": "paid 5"})
    # Also from a fork that has used the outcome of the original instead of paying.
    await bank.runner.resume("g", question["default"])
    await bank.runner.runs.fork("g", at=2, run_id="h")
    question = only_question((await bank.runner.resume("h")).interrupts)
    assert (question["idempotency_key"], question["default"]) == ("r:1/m1.0", {"result": "paid 5"})
    assert bank.paid == [5]


async def test_a_repeatable_tool_runs_again_with_the_key_of_the_original() -> None:
    bank = Bank(call("note", text="a"), "done", call("note", text="a"), "f", call("note", text="b"), "g")
    first = await bank.runner.run("hi", run_id="r")
    for name in ("f", "g"):
        await bank.runner.runs.fork(first.events, at=2, run_id=name)
        assert (await bank.runner.resume(name)).output == name
    assert bank.keys == ["r:1/m1.0", "r:1/m1.0", "g:1/m1.0"]


async def test_the_order_and_space_of_arguments_do_not_make_another_call() -> None:
    keys: list[str] = []

    @tool
    async def book(ctx: RunContext, city: str, nights: int) -> str:
        """Book a hotel."""
        keys.append(ctx.idempotency_key)
        return "booked"

    steps = [call("book", city="Bonn", nights=2), "done", call("book", nights=2, city="Bonn"), "done"]
    runner = Runner(Agent("A", model=ScriptedModel(steps), tools=[book]))
    first = await runner.run("hi", run_id="r")
    await runner.resume(await runner.runs.fork(first.events, at=2, run_id="f"))
    assert keys == ["r:1/m1.0", "r:1/m1.0"]


async def test_an_approval_that_has_led_to_nothing_is_asked_for_again(store: RecordingStore | None) -> None:
    bank = Bank(call("pay", euro=5), "done", "fork done", needs_approval=True, store=store)
    await bank.runner.run("pay", run_id="r")
    first = await bank.runner.resume("r", True)
    await bank.runner.runs.fork(first.events, at=count_until(first.events, InterruptAnswered), run_id="f")
    waiting = await bank.runner.resume("f")
    assert only_question(waiting.interrupts)["kind"] == "approval"
    waiting = await bank.runner.resume("f", True)
    assert only_question(waiting.interrupts)["default"] == {"result": "paid 5"}
    result = await bank.runner.resume("f", {"result": "paid 5"})
    assert (result.output, bank.paid) == ("fork done", [5])


async def test_an_approval_that_the_caller_gives_to_the_fork_is_not_asked_for_again() -> None:
    bank = Bank(call("pay", euro=5), "done", "fork done", needs_approval=True, store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    await bank.runner.resume("r", True)
    await bank.runner.runs.fork("r", edit={"1/m1.0/ask1!": True}, run_id="f")
    waiting = await bank.runner.resume("f")
    assert only_question(waiting.interrupts)["kind"] == "unknown_outcome"
    assert bank.paid == [5]


async def test_an_approval_whose_call_has_a_result_is_copied_with_it() -> None:
    bank = Bank(call("pay", euro=5), "done", "fork done", needs_approval=True, store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    events = (await bank.runner.resume("r", True)).events
    await bank.runner.runs.fork("r", at=count_until(events, ToolReturned), run_id="f")
    assert ((await bank.runner.resume("f")).output, bank.paid) == ("fork done", [5])


async def test_an_approval_for_the_rest_of_a_run_is_not_one_of_its_forks() -> None:
    steps = [call("pay", euro=1), call("pay", euro=2), "done", call("pay", euro=2), "fork done"]
    bank = Bank(*steps, needs_approval=True, store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    events = (await bank.runner.resume("r", Approval(True, always=True))).events
    assert bank.paid == [1, 2]
    await bank.runner.runs.fork("r", at=count_until(events, ToolReturned), run_id="f")
    waiting = await bank.runner.resume("f")
    assert only_question(waiting.interrupts) == {"kind": "approval", "tool": "pay", "arguments": {"euro": 2}}


async def test_a_call_that_was_begun_before_the_fork_is_asked_for_once() -> None:
    bank = Bank(call("pay", euro=5), "done", "fork done", store=RecordingStore())
    events = (await bank.runner.run("pay", run_id="r")).events
    await bank.runner.runs.fork("r", at=count_until(events, StepCompleted), run_id="f")
    assert only_question((await bank.runner.resume("f")).interrupts)["default"] == {"result": "paid 5"}
    result = await bank.runner.resume("f", {"run_again": True})
    assert (result.output, bank.paid) == ("fork done", [5, 5])


async def test_a_fork_that_dies_while_it_pays_is_asked_about_like_any_run() -> None:
    bank = Bank(call("pay", euro=5), "done", call("pay", euro=5), "fork done", store=RecordingStore())
    await bank.runner.run("pay", run_id="r")
    await bank.runner.runs.fork("r", at=2, run_id="f")
    await bank.runner.resume("f")
    events = (await bank.runner.resume("f", {"run_again": True})).events
    dead = Bank("fork done")
    await dead.runner.runs.load(events[: count_until(events, StepCompleted)])
    question = only_question((await dead.runner.resume("f")).interrupts)
    assert "default" not in question
    result = await dead.runner.resume("f", {"result": "it was paid"})
    assert (result.output, dead.paid) == ("fork done", [])


async def test_the_reported_outcome_of_a_crash_can_be_edited() -> None:
    bank = Bank(call("pay", euro=5), "done")
    events = (await bank.runner.run("pay", run_id="r")).events
    crashed = Bank("done", "edited")
    await crashed.runner.runs.load(events[: count_until(events, StepCompleted)])
    await crashed.runner.resume("r")
    reported = await crashed.runner.resume("r", {"result": "paid"})
    fork = await crashed.runner.runs.fork(reported.events, edit={"1/m1.0/unknown1/ask1!": {"error": "no money"}})
    result = await crashed.runner.resume(fork)
    assert (result.output, crashed.paid) == ("edited", [])
    assert any("no money" in line for line in transcript(result.events))


async def test_an_answer_outside_of_calls_is_asked_for_again_unless_the_agent_has_gone_on() -> None:
    asked: list[Any] = []

    @agent("Shop")
    async def shop(ctx: Any) -> None:
        """Ask, then note the answer."""
        asked.append(await ctx.interrupt("Really?"))
        await ctx.step("note", lambda: "noted")
        await ctx.say("done")

    runner = Runner(shop, store=RecordingStore())
    await runner.run("hi", run_id="r")
    events = (await runner.resume("r", True)).events
    answered = count_until(events, InterruptAnswered)
    await runner.runs.fork("r", at=answered, run_id="f")
    assert (await runner.resume("f")).status == "suspended"
    await runner.runs.fork("r", at=count_until(events, StepCompleted), run_id="g")
    assert (await runner.resume("g")).output == "done"
