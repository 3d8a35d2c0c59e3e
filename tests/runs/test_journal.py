"""Events are stored before they are delivered, even if waiters are cancelled."""

import asyncio
from typing import Any, cast

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.runs.recording_store import RecordingStore, copy_without_leases, get_record, load_events
from tests.unfinished import list_unfinished
from tests.waiting import forever

from batonkit import Agent, ParallelAgent, RunContext, Runner, ToolResult, tool
from batonkit.errors import NotEncodableError, RunConflictError, RunNotFoundError, StoreError
from batonkit.log import AgentFinished, AgentStarted, Delta, Event, Origin, TextDelta, decode_lines
from batonkit.log.codec import encode_header
from batonkit.log.log import Log
from batonkit.runs.stored.journal import Journal
from batonkit.runs.stream import EventQueue
from batonkit.stores import Lease, MemoryStore
from batonkit.testing import ScriptedModel, call, transcript

A = Origin("1", "A")
START, END = AgentStarted("1/start", A, 1.0), AgentFinished("1/end", A, 2.0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without pauses."""
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.0)


@tool(effect="read")
async def look(word: str) -> str:
    """Look."""
    return f"saw {word}"


@tool
async def act(word: str) -> str:
    """Act."""
    return f"did {word}"


async def journal_in(store: MemoryStore, sink: EventQueue | None = None) -> Journal:
    """Create the journal of a run without events."""
    lease = await store.create("r", [encode_header()], worker="me", ttl=60)
    return Journal(store, lease=lease, seq=1, sink=sink)


# --- order


async def test_nothing_is_delivered_before_it_is_stored() -> None:
    # Write-ahead.
    store = RecordingStore()
    model = ScriptedModel([[call("look", word="x"), call("act", word="y")], "done"], stream=True)
    delivered: list[str] = []
    async with Runner(Agent("A", model=model, tools=[look, act]), store=store).stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, Event):
                delivered.append(event.key)
                assert event.key in store.keys("r")
    assert delivered == store.keys("r")


async def test_deltas_keep_their_order_between_events() -> None:
    # A delta is not delivered before the event that precedes it.
    store, queue = RecordingStore(), EventQueue()
    journal = await journal_in(store, queue)
    gate = asyncio.Event()
    store.faults["append"].append(gate.wait)
    journal.put(START)
    storing = asyncio.create_task(journal.drain())
    await asyncio.sleep(0)
    journal.put(TextDelta(A, "meanwhile"))
    journal.put(END)
    journal.put(TextDelta(A, "at last"))
    gate.set()
    await storing
    await journal.drain()
    assert await queue.take() == [START, TextDelta(A, "meanwhile"), END, TextDelta(A, "at last")]


async def test_a_delta_is_delivered_at_once_if_no_event_precedes_it() -> None:
    store, queue = RecordingStore(), EventQueue()
    journal = await journal_in(store, queue)
    journal.put(TextDelta(A, "hello"))
    assert await queue.take() == [TextDelta(A, "hello")]
    assert not journal.is_full


async def test_concurrent_drains_share_a_commit() -> None:
    store = RecordingStore()
    journal = await journal_in(store)
    journal.put(START)
    journal.put(END)
    await asyncio.gather(journal.drain(), journal.drain(), journal.drain())
    assert store.calls.count("append") == 1
    assert store.keys("r") == ["1/start", "1/end"]


@pytest.mark.parametrize(("tool_name", "commits"), [("look", 1), ("act", 2)])
async def test_a_turn_needs_one_commit_if_its_tools_only_read_and_two_otherwise(tool_name: str, commits: int) -> None:
    counts: list[int] = []
    for turns in (2, 12):
        store = RecordingStore()
        model = ScriptedModel([*[call(tool_name, word="x")] * turns, "done"])
        await Runner(Agent("A", model=model, tools=[look, act]), store=store).run("hi")
        counts.append(store.calls.count("append"))
    assert counts[1] - counts[0] == 10 * commits


async def test_a_tool_with_effects_runs_only_after_its_call_is_stored() -> None:
    store = RecordingStore()
    stored: list[list[str]] = []

    @tool
    async def record_keys() -> str:
        """Note."""
        stored.append(store.keys("r"))
        return "ok"

    await Runner(Agent("A", model=ScriptedModel([call("record_keys"), "done"]), tools=[record_keys]), store=store).run(
        "hi", run_id="r"
    )
    assert stored == [["run", "1/start", "1/m1"]]


async def test_events_that_are_not_streamed_are_stored() -> None:
    # Otherwise resuming the run would repeat it.
    store = RecordingStore()
    inner = Agent("Inner", description="i", tools=[act])
    outer = Agent("Outer", tools=[inner.as_tool(stream_events=False)])
    steps = {"Outer": [call("inner", request="go"), "done"], "Inner": [call("act", word="x"), "inner done"]}
    received: list[Event | Delta] = []
    async with Runner(outer, model=ScriptedModel(steps), store=store).stream("hi", run_id="r") as live:
        received.extend([event async for event in live])
    assert "Inner" not in {event.agent for event in received}
    assert tuple(await load_events(store, "r")) == live.result.events
    assert "Inner: act -> did x" in transcript(await load_events(store, "r"))


# --- cancelled waiters


async def test_the_outcome_of_a_cancelled_write_is_known() -> None:
    # Neither lost nor written twice, and delivered in the end.
    for when in ("before", "after"):
        store, queue = RecordingStore(), EventQueue()
        journal = await journal_in(store, queue)
        never = asyncio.Event()
        (store.faults if when == "before" else store.after)["append"].append(never.wait)
        journal.put(START)
        waiting = asyncio.create_task(journal.drain())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        journal.put(END)
        await journal.drain()
        assert store.keys("r") == ["1/start", "1/end"], when
        assert await queue.take() == [START, END], when


async def test_a_write_that_fails_while_its_waiter_is_cancelled_fails_the_journal() -> None:
    # A log with a gap must not continue.
    store = RecordingStore()
    journal = await journal_in(store)
    never = asyncio.Event()
    store.faults["append"] += [never.wait, RunConflictError("r", "another worker")]
    journal.put(START)
    waiting = asyncio.create_task(journal.drain())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    journal.put(END)
    with pytest.raises(RunConflictError):
        await journal.drain()
    assert store.keys("r") == []


async def test_a_cancelled_branch_does_not_lose_events_of_others() -> None:
    # Events stored while a branch timed out are delivered.
    clock, store, waiting = FrozenLoopClock(), RecordingStore(), asyncio.Event()

    @tool
    async def slow(ctx: RunContext) -> str:
        """Take too long."""
        await ctx.step("before", lambda: "done")
        waiting.set()
        await forever()

    a, b = Agent("A", description="a", tools=[slow]), Agent("B", description="b")
    team = ParallelAgent("Both", sub_agents=[a, b], branch_timeout=60, on_error="ignore")
    model = ScriptedModel({"A": [call("slow")], "B": ["from B"]})
    received: list[Event] = []
    async with Runner(team, model=model, store=store).stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, Event):
                received.append(event)
            if isinstance(event, AgentFinished) and event.agent == "B":
                await waiting.wait()
                clock.advance(60)
    assert live.result.status == "completed"
    assert [event.key for event in received] == store.keys("r")


# --- faults


async def test_a_transient_store_failure_is_retried() -> None:
    store = RecordingStore()
    store.faults["append"] += [StoreError("locked")] * 3
    result = await Runner(Agent("A", model=ScriptedModel(["done"])), store=store).run("hi", run_id="r")
    assert (result.output, (await get_record(store, "r")).status) == ("done", "completed")


async def test_a_write_without_confirmation_is_not_repeated() -> None:
    # The connection was cut after the commit.
    store = RecordingStore()
    store.after["append"] += [StoreError("connection cut")] * 2
    runner = Runner(Agent("A", model=ScriptedModel([call("act", word="x"), "done"]), tools=[act]), store=store)
    result = await runner.run("hi", run_id="r")
    assert result.status == "completed"
    assert tuple(await load_events(store, "r")) == result.events


async def test_a_permanent_store_failure_stops_the_run_which_can_be_resumed() -> None:
    store = RecordingStore()
    ran: list[str] = []

    @tool
    async def pay(ctx: RunContext) -> str:
        """Pay."""
        if not ran:
            store.faults["append"] += [StoreError("disk full")] * 6
            store.faults["release"] += [StoreError("disk full")]
        ran.append(ctx.idempotency_key)
        return "paid"

    team = Agent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
    runner = Runner(team, store=store)
    with pytest.raises(StoreError, match="disk full"):
        await runner.run("hi", run_id="r")
    assert (await get_record(store, "r")).status == "running"
    assert store.keys("r")[-1] == "1/m1"

    # Other runners must assume that it is still driven; the runner itself knows that it is not.
    with pytest.raises(RunConflictError):
        await Runner(team, store=store).resume("r")
    assert (await runner.resume("r")).output == "done"
    assert ran == ["r:1/m1.0"] * 2


async def test_deleting_a_run_stops_its_driver() -> None:
    store = RecordingStore()

    @tool
    async def forget() -> str:
        """Forget."""
        await store.delete("r")
        return "ok"

    runner = Runner(Agent("A", model=ScriptedModel([call("forget"), "done"]), tools=[forget]), store=store)
    with pytest.raises(RunNotFoundError):
        await runner.run("hi", run_id="r")
    assert await store.record("r") is None


async def test_a_value_that_cannot_be_encoded_fails_the_run() -> None:
    # Otherwise it would be retried forever.
    store = RecordingStore()

    @tool
    async def broken() -> Any:
        """Return content that is neither text nor parts."""
        return ToolResult(cast(Any, object()))

    runner = Runner(Agent("A", model=ScriptedModel([call("broken"), "done"]), tools=[broken]), store=store)
    with pytest.raises(NotEncodableError):
        await runner.run("hi", run_id="r")
    assert (await get_record(store, "r")).status == "failed"
    assert transcript(await load_events(store, "r"))[-1].startswith("run failed with NotEncodableError")
    assert await list_unfinished(runner) == []


async def test_an_error_with_lone_surrogates_is_stored() -> None:
    store = RecordingStore()
    runner = Runner(Agent("A", model=ScriptedModel([ValueError("half \ud83d")])), store=store)
    with pytest.raises(Exception, match="half"):
        await runner.run("hi", run_id="r")
    assert (await get_record(store, "r")).status == "failed"


async def test_a_failed_journal_raises_to_all_waiters_and_accepts_nothing() -> None:
    store, queue = RecordingStore(), EventQueue()
    journal = await journal_in(store, queue)
    journal.put(START)
    journal.fail(RunConflictError("r", "another worker"))
    journal.put(END)
    assert journal.is_full
    for _ in range(2):
        with pytest.raises(RunConflictError):
            await journal.drain()
    await journal.finish("failed")
    assert (store.keys("r"), (await get_record(store, "r")).status) == ([], "running")


async def test_a_status_is_stored_without_further_events() -> None:
    store = RecordingStore()
    journal = await journal_in(store)
    await journal.finish("cancelled")
    await journal.release()
    record = await get_record(store, "r")
    assert (record.status, record.lease_until) == ("cancelled", 0.0)


async def test_a_log_that_refuses_an_event_does_not_have_it() -> None:
    journal = await journal_in(RecordingStore())
    log = Log()
    log.attach(journal)
    with pytest.raises(NotEncodableError):
        log.write(AgentStarted("1/start", Origin("1", "\ud83d"), 1.0))
    assert log.events == []


async def test_a_run_created_while_its_caller_is_cancelled_can_be_resumed() -> None:
    store = RecordingStore()
    runner = Runner(Agent("A", model=ScriptedModel(["done"])), store=store)
    store.faults["create"].append(lambda: asyncio.sleep(0))
    running = asyncio.create_task(runner.run("hi", run_id="r"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await get_record(store, "r")).status == "cancelled"
    assert (await runner.resume("r")).output == "done"
    copy: Any = await copy_without_leases(store)
    assert decode_lines(await copy.load("r")) == await load_events(store, "r")
    assert isinstance(await copy.acquire("r", "x", ttl=1), Lease)
