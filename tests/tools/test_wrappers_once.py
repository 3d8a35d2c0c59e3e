"""Tools that must never run twice: their intent is on record before they run, and a crash in between is asked about."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.runs.recording_store import RecordingStore, load_events

from batonkit import Agent, Approval, RunContext, Runner, SetupError, tool
from batonkit.errors import AnswerError, ToolFailedError
from batonkit.log import Event, StepCompleted
from batonkit.messages import ToolCall
from batonkit.testing import ScriptedModel, call, transcript


class Bank:
    """Money that was really paid."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.keys: list[str] = []

    def runner(self, steps: Sequence[Any] = ("done",), store: Any = None, **options: Any) -> Runner[Any, Any]:
        @tool(effect="once", **options)
        async def pay(ctx: RunContext, euro: int) -> str:
            """Pay."""
            self.paid.append(str(euro))
            self.keys.append(ctx.idempotency_key)
            if euro == 13:
                raise ValueError("unlucky")
            return f"paid {euro}"

        return Runner(Agent("A", model=ScriptedModel(steps), tools=[pay]), store=store)


async def crashed_after_the_intent(bank: Bank) -> list[Event]:
    """The log of a run whose process died while it paid."""
    events = (await bank.runner([call("pay", euro=5), "done"]).run("hi", run_id="r")).events
    intent = next(n for n, event in enumerate(events, 1) if isinstance(event, StepCompleted) and event.name == "intent")
    return list(events[:intent])


async def test_the_intent_is_stored_before_the_tool_runs() -> None:
    store = RecordingStore()
    stored: list[list[str]] = []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        stored.append(store.keys("r"))
        return "paid"

    team = Agent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
    await Runner(team, store=store).run("hi", run_id="r")
    assert stored == [["run", "1/start", "1/m1", "1/m1.0/intent1"]]


async def test_a_crash_in_between_is_asked_about_and_nothing_runs_again() -> None:
    bank = Bank()
    runner = bank.runner()
    await runner.runs.load(await crashed_after_the_intent(bank))
    waiting = await runner.resume("r")
    assert (waiting.status, bank.paid) == ("suspended", ["5"])
    (question,) = waiting.interrupts
    assert question.payload == {
        "kind": "unknown_outcome",
        "tool": "pay",
        "arguments": {"euro": 5},
        "idempotency_key": "r:1/m1.0",
    }
    assert question.tool_call is not None
    # Asked as often as one likes.
    assert (await runner.resume("r")).interrupts == waiting.interrupts
    result = await runner.resume("r", {"result": "paid 5"})
    assert (result.output, bank.paid) == ("done", ["5"])
    assert "A: pay -> paid 5" in transcript(result.events)


@pytest.mark.parametrize(
    ("found", "line", "paid"),
    [
        ({"error": "the bank says no"}, "A: pay failed -> the bank says no", ["5"]),
        ({"result": {"receipt": 7}}, 'A: pay -> {"receipt":7}', ["5"]),
        ({"run_again": True}, "A: pay -> paid 5", ["5", "5"]),
        ({"result": None}, "A: pay -> done", ["5"]),
    ],
)
async def test_the_answer_about_an_unknown_outcome_becomes_the_result(found: Any, line: str, paid: list[str]) -> None:
    bank = Bank()
    runner = bank.runner()
    await runner.runs.load(await crashed_after_the_intent(bank))
    waiting = await runner.resume("r")
    result = await runner.resume("r", {waiting.interrupts[0].id: found})
    assert line in transcript(result.events)
    assert (result.output, bank.paid) == ("done", paid)
    assert set(bank.keys) == {"r:1/m1.0"}
    assert (await bank.runner().runs.replay(result.events)).output == "done"


@pytest.mark.parametrize("wrong", ["yes", True, {"outcome": "paid"}, {"error": 5}, 7])
async def test_an_answer_that_says_nothing_about_the_call_is_refused(wrong: Any) -> None:
    bank = Bank()
    runner = bank.runner()
    log = await crashed_after_the_intent(bank)
    await runner.runs.load(log)
    waiting = await runner.resume("r")
    with pytest.raises(AnswerError, match=r'answer \{"result": …\}'):
        await runner.resume("r", {waiting.interrupts[0].id: wrong})
    assert bank.paid == ["5"]
    assert (await runner.resume("r")).interrupts == waiting.interrupts


async def test_a_second_crash_is_asked_about_again() -> None:
    bank = Bank()
    runner = bank.runner()
    await runner.runs.load(await crashed_after_the_intent(bank))
    waiting = await runner.resume("r")
    events = (await runner.resume("r", {waiting.interrupts[0].id: {"run_again": True}})).events
    second = [n for n, event in enumerate(events, 1) if event.key == "1/m1.0/intent2"]
    again = bank.runner()
    await again.runs.load(events[: second[0]])
    waiting = await again.resume("r")
    assert [question.id for question in waiting.interrupts] == ["1/m1.0/unknown2/ask1"]
    assert (await again.resume("r", {"result": "paid"})).output == "done"
    assert bank.paid == ["5", "5"]


async def test_a_cancelled_call_is_asked_about() -> None:
    # It is unknown how far the call came.
    begun = asyncio.Event()

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    runner = Runner(Agent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay]), store=RecordingStore())
    async with runner.stream("hi", run_id="r") as live:
        await begun.wait()
        await live.cancel()
    waiting = await runner.resume("r")
    assert waiting.interrupts[0].payload["kind"] == "unknown_outcome"
    assert (await runner.resume("r", {"result": "paid"})).output == "done"


async def test_a_tool_that_asks_something_itself_is_not_in_doubt() -> None:
    # It came as far as its question, and that is known.
    store = RecordingStore()
    paid: list[str] = []

    @tool(effect="once")
    async def pay(ctx: RunContext) -> str:
        """Ask twice, then pay."""
        who = f"{await ctx.interrupt('who?')} {await ctx.interrupt('sure?')}"
        paid.append(who)
        return who

    def runner() -> Runner[Any, Any]:
        team = Agent("A", model=ScriptedModel([call("pay"), "done"] if not paid else ["done"]), tools=[pay])
        return Runner(team, store=store)

    mine = runner()
    await mine.run("hi", run_id="r")
    assert [question.payload for question in (await mine.resume("r", "me")).interrupts] == ["sure?"]
    assert (await mine.resume("r", "yes")).output == "done"
    assert paid == ["me yes"]
    assert [event.key for event in await load_events(store, "r") if "intent" in event.key] == [
        "1/m1.0/intent1",
        "1/m1.0/intent2",
        "1/m1.0/intent3",
    ]


async def test_an_approval_comes_before_the_intent() -> None:
    bank, store = Bank(), RecordingStore()
    runner = bank.runner([call("pay", euro=5), "done"], store, needs_approval=True)
    waiting = await runner.run("hi", run_id="r")
    assert not [event for event in waiting.events if isinstance(event, StepCompleted) and event.name == "intent"]
    result = await runner.resume("r", Approval(approved=True, arguments={"euro": 7}))
    assert (result.output, bank.paid) == ("done", ["7"])


async def test_a_failure_that_the_tool_itself_tells_of_is_an_outcome() -> None:
    bank = Bank()
    result = await bank.runner([call("pay", euro=13), "done"]).run("hi")
    assert "A: pay failed -> tool `pay` failed: ValueError: unlucky" in transcript(result.events)


async def test_a_failure_that_ends_the_run_leaves_the_outcome_open() -> None:
    bank = Bank()
    runner = bank.runner([call("pay", euro=13), "done"], on_error="raise")
    with pytest.raises(ToolFailedError):
        await runner.run("hi", run_id="r")
    waiting = await runner.resume("r")
    assert waiting.interrupts[0].payload["kind"] == "unknown_outcome"
    assert bank.paid == ["13"]


async def test_arguments_that_do_not_fit_go_back_to_the_model() -> None:
    bank = Bank()
    result = await bank.runner([call("pay", euro="many"), "done"]).run("hi")
    assert result.output == "done"
    assert bank.paid == []


def test_there_are_three_effects() -> None:
    wrong: Any = "twice"
    with pytest.raises(SetupError, match="effect of tool `pay`"):

        @tool(effect=wrong)
        async def pay() -> str:
            """Pay."""
            return "paid"


async def test_a_crash_is_asked_about_also_if_the_arguments_are_no_json() -> None:
    # The question could not be recorded, so the run could never be resumed.
    @tool(effect="once")
    async def pay(euro: float) -> str:
        """Pay."""
        return "paid"

    steps = [ToolCall("c1", "pay", '{"euro": NaN}'), "done"]
    events = (await Runner(Agent("A", model=ScriptedModel(steps), tools=[pay])).run("hi", run_id="r")).events
    intent = next(n for n, event in enumerate(events, 1) if isinstance(event, StepCompleted) and event.name == "intent")
    runner = Runner(Agent("A", model=ScriptedModel(["done"]), tools=[pay]))
    await runner.runs.load(events[:intent])
    (asked,) = (await runner.resume("r")).interrupts
    assert asked.payload["arguments"] == '{"euro": NaN}'
    assert (await runner.resume("r", {"result": "paid"})).output == "done"
