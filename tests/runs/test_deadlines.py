"""Interrupts with deadlines, sleeping runs, and the workers that wake them, by the store's clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.runs.recording_store import ManualClock, get_record, load_events
from tests.unfinished import list_unfinished, recover
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, SetupError, tool
from batonkit.agents import AgentContext, agent
from batonkit.context import Default
from batonkit.errors import AnswerError, InterruptExpiredError, RunNotSuspendedError
from batonkit.log import InterruptAnswered, InterruptRaised
from batonkit.runs import BackgroundRunner
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, transcript

HOUR = timedelta(hours=1)


def asking(store: Any, *steps: Any, **options: Any) -> Runner[Any, Any]:
    """Create a runner whose tool asks with a deadline."""

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        given: dict[str, Any] = {"deadline": HOUR, **options}
        return str(await ctx.interrupt("Really?", **given))

    return Runner(Agent("A", model=ScriptedModel(steps or [call("ask"), "done"]), tools=[ask]), store=store)


def clocked() -> tuple[ManualClock, MemoryStore]:
    """Create a store and the clock that only the test advances."""
    clock = ManualClock()
    return clock, MemoryStore(clock=clock)


async def test_the_deadline_is_resolved_once_by_the_clock_of_the_store() -> None:
    clock, store = clocked()
    result = await asking(store).run("hi", run_id="r")
    raised = next(event for event in result.events if isinstance(event, InterruptRaised))
    record = await get_record(store, "r")
    assert (raised.deadline, record.wake_at, result.interrupts[0].deadline) == (clock.now + 3600,) * 3
    clock.now += 60
    assert (await asking(store).runs.drive("r")).wake_at == raised.deadline
    assert await list_unfinished(asking(store)) == []


async def test_an_interrupt_that_expires_gets_the_default_answer() -> None:
    clock, store = clocked()
    await asking(store, on_expiry=Default("no")).run("hi", run_id="r")
    clock.now += 3601
    runner = asking(store, "done", on_expiry=Default("no"))
    assert [run.run_id for run in await list_unfinished(runner)] == ["r"]
    assert (await runner.runs.drive("r")).status == "completed"
    events = await load_events(store, "r")
    assert [event.answer for event in events if isinstance(event, InterruptAnswered) and event.expired] == ["no"]
    assert transcript(events)[4:8] == [
        "run suspended with 1 open question",
        "run resumed",
        "A: got no answer in time",
        "A: ask -> no",
    ]
    record = await get_record(store, "r")
    assert (record.wake_at, record.is_leased) == (0.0, False)


async def test_an_interrupt_that_expires_without_a_default_raises_an_error_that_code_may_handle() -> None:
    clock, store = clocked()

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        try:
            return str(await ctx.interrupt("Really?", deadline=HOUR))
        except InterruptExpiredError as error:
            return f"no answer to {error.interrupt_id}"

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), "done"]), tools=[ask]), store=store)
    await runner.run("hi", run_id="r")
    clock.now += 3601
    assert (await runner.runs.drive("r")).status == "completed"
    assert "A: ask -> no answer to 1/m1.0/ask1" in transcript(await load_events(store, "r"))


async def test_an_agent_that_is_not_answered_in_time_fails() -> None:
    clock, store = clocked()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.interrupt("?", deadline=datetime.fromtimestamp(clock.now + 5, UTC))

    runner = Runner(a, store=store)
    await runner.run("hi", run_id="r")
    clock.now += 5
    assert (await runner.runs.drive("r")).status == "failed"
    with pytest.raises(InterruptExpiredError):
        await runner.resume("r")


async def test_an_answer_after_the_deadline_is_refused() -> None:
    # Before and after the expiry is written.
    clock, store = clocked()
    await asking(store).run("hi", run_id="r")
    clock.now += 3600
    before = await store.load("r")
    for late in (asking(store).runs.answer("r", "yes"), asking(store).resume("r", {"1/m1.0/ask1": "yes"})):
        with pytest.raises(AnswerError, match=r"`1/m1\.0/ask1` was not answered by .*, and cannot be answered now"):
            await late
    assert await store.load("r") == before
    with pytest.raises(InterruptExpiredError):
        await asking(store).resume("r")
    with pytest.raises(RunNotSuspendedError, match="run `r` has failed and cannot be answered"):
        await asking(store).runs.answer("r", "yes")


async def test_an_answer_in_time_prevents_the_expiry() -> None:
    clock, store = clocked()
    await asking(store).run("hi", run_id="r")
    clock.now += 3599
    await asking(store).runs.answer("r", "yes")
    assert (await get_record(store, "r")).wake_at == 0.0
    clock.now += 3600
    runner = asking(store, "done")
    assert [run.run_id for run in await list_unfinished(runner)] == ["r"]
    assert (await runner.runs.drive("r")).status == "completed"
    assert [event.answer for event in await load_events(store, "r") if isinstance(event, InterruptAnswered)] == ["yes"]


async def test_the_other_interrupts_stay_open_when_one_expires() -> None:
    clock, store = clocked()

    @tool
    async def ask(ctx: RunContext, hours: int) -> str:
        """Ask."""
        return str(await ctx.interrupt(hours, deadline=hours * HOUR if hours else None, on_expiry=Default("late")))

    def runner(*steps: Any) -> Runner[Any, Any]:
        return Runner(Agent("A", model=ScriptedModel(steps), tools=[ask]), store=store)

    calls = [call("ask", hours=hours) for hours in (2, 0, 1)]
    await runner(calls).run("hi", run_id="r")
    for hour in (1, 2):
        clock.now += 3600
        driven = await runner().runs.drive("r")
        left = [each.payload for each in driven.interrupts]
        assert (driven.status, left) == ("suspended", [2, 0] if hour == 1 else [0])
    assert (await get_record(store, "r")).wake_at == 0.0
    assert (await runner("done").resume("r", "in time")).output == "done"


async def test_a_background_runner_wakes_a_run_whose_interrupt_expires() -> None:
    clock, store = clocked()
    await asking(store, on_expiry=Default("no")).run("hi", run_id="r")
    background = BackgroundRunner(asking(store, "done", on_expiry=Default("no")))
    clock.now += 3601
    background.start_recovery()
    await until(lambda: get_record(store, "r"), lambda record: record.status == "completed")
    await background.close()


async def test_a_run_sleeps_until_a_worker_wakes_it() -> None:
    clock, store = clocked()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.sleep(HOUR)
        await ctx.say("good morning")

    runner = Runner(a, store=store)
    await runner.submit("hi", run_id="r")
    asleep = await runner.runs.drive("r")
    assert (asleep.status, asleep.wake_at) == ("suspended", clock.now + 3600)
    assert asleep.interrupts[0].payload == {"kind": "sleep"}
    clock.now += 3600
    assert await recover(runner) == {"r": "completed"}


async def test_a_run_without_a_store_expires_when_it_is_resumed() -> None:
    runner = asking(None, deadline=timedelta(0), on_expiry=Default("no"))
    result = await runner.run("hi")
    with pytest.raises(AnswerError, match="cannot be answered now"):
        await runner.resume(result.run_id, "yes")
    assert (await runner.resume(result.run_id)).output == "done"


async def test_a_run_that_was_answered_in_part_is_recovered_at_once() -> None:
    # The deadline of the other interrupt must not delay it.
    _, store = clocked()

    @tool
    async def ask(ctx: RunContext, hours: int) -> str:
        """Ask."""
        return str(await ctx.interrupt(hours, deadline=hours * HOUR))

    calls = [call("ask", hours=hours) for hours in (1, 2)]
    runner = Runner(Agent("A", model=ScriptedModel([calls]), tools=[ask]), store=store)
    result = await runner.run("hi", run_id="r")
    await runner.runs.answer("r", {result.interrupts[1].id: "yes"})
    assert [run.run_id for run in await list_unfinished(runner)] == ["r"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"deadline": datetime(2030, 1, 1)}, r"interrupt\(deadline=…\) has no time zone"),
        ({"on_expiry": "ignore"}, 'give "fail" or Default'),
        ({"on_expiry": Default("x"), "schema": int}, "does not fit the schema"),
    ],
)
async def test_wrong_options_are_refused(options: dict[str, Any], problem: str) -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        given: dict[str, Any] = {"deadline": HOUR, **options}
        await ctx.interrupt("?", **given)

    with pytest.raises(SetupError, match=problem):
        await Runner(a).run("hi")
