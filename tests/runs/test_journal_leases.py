"""Leases are renewed while runs last; a driver that loses its lease or is asked to stop stops."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.runs.recording_store import ManualClock, RecordingStore, get_record, load_events
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, agent, tool
from batonkit.agents import AgentContext
from batonkit.errors import RunConflictError, RunNotFoundError, StoreError
from batonkit.log import ToolReturned
from batonkit.stores import Lease, MemoryStore
from batonkit.testing import ScriptedModel, call


@pytest.fixture(autouse=True)
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew leases every few milliseconds, although they last for long."""
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.005)


class WaitingTool:
    """A tool that waits until `go` is set, and records how the wait ended."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: list[str] = []

    def tool(self) -> Any:
        @tool
        async def wait(ctx: RunContext) -> str:
            """Wait."""
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("done")
            return "waited"

        return wait

    def runner(self, store: RecordingStore) -> Runner[Any, Any]:
        model = ScriptedModel([call("wait"), "done"], cycle=True)
        return Runner(Agent("A", model=model, tools=[self.tool()]), store=store)


class Timers:
    """Records the timers of the running event loop that have not fired yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = 0
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._call_later = asyncio.get_running_loop().call_later
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._record)

    @property
    def pending(self) -> int:
        """The number of timers that will fire."""
        return sum(not handle.cancelled() for handle in self._handles.values())

    def _record(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        self.started += 1
        number = self.started

        def fire() -> None:
            del self._handles[number]
            callback(*args)

        self._handles[number] = self._call_later(delay, fire)
        return self._handles[number]


async def see_renewals(store: RecordingStore, count: int) -> None:
    """Wait for some more calls of `renew`."""
    before = store.calls.count("renew")
    await until(lambda: store.calls.count("renew") >= before + count)


async def test_a_lease_is_renewed_while_the_run_lasts_and_then_released() -> None:
    store, waiting = RecordingStore(), WaitingTool()
    running = asyncio.create_task(waiting.runner(store).run("hi", run_id="r"))
    await waiting.started.wait()
    until = [(await get_record(store, "r")).lease_until]
    while len(set(until)) < 4:  # on a busy machine several renewals may precede one look at the record
        await store.seen.get()
        until.append((await get_record(store, "r")).lease_until)
    assert until == sorted(until)
    waiting.go.set()
    await running
    record = await get_record(store, "r")
    assert (record.status, record.lease_until, record.fence) == ("completed", 0.0, 1)


async def test_no_timer_runs_without_active_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # No task is left running.
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 1200)
    timers, store = Timers(monkeypatch), RecordingStore()
    store.lease_seconds = 3600
    await Runner(Agent("A", model=ScriptedModel(["done"])), store=store).run("hi")
    assert (timers.started, timers.pending) == (1, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_driver_that_loses_its_lease_stops_and_writes_nothing() -> None:
    clock = ManualClock()
    store, waiting = RecordingStore(clock=clock), WaitingTool()
    running = asyncio.create_task(waiting.runner(store).run("hi", run_id="r"))
    await waiting.started.wait()
    lines = len(await store.load("r"))
    clock.now += 60
    lease = await store.acquire("r", "another", ttl=60)
    with pytest.raises(RunConflictError, match="another"):
        await running
    assert waiting.ended == ["cancelled"]
    record = await get_record(store, "r")
    assert (len(await store.load("r")), record.fence, record.worker) == (lines, lease.fence, "another")
    assert record.lease_until > clock.now


async def test_losing_the_lease_does_not_leave_the_calling_task_cancelled() -> None:
    # The caller may continue.
    clock = ManualClock()
    store, waiting = RecordingStore(clock=clock), WaitingTool()

    async def caller() -> str:
        try:
            await waiting.runner(store).run("hi", run_id="r")
        except RunConflictError:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        return "continued"

    calling = asyncio.create_task(caller())
    await waiting.started.wait()
    clock.now += 60
    await store.acquire("r", "another", ttl=60)
    assert await calling == "continued"


async def test_a_driver_that_loses_its_lease_starts_no_further_effect() -> None:
    # "no side effect beyond the one in flight": the loss is detected before the next effect, without a heartbeat.
    clock = ManualClock()
    store = RecordingStore(clock=clock)
    acted: list[str] = []

    @tool
    async def act(ctx: RunContext, word: str) -> str:
        """Act."""
        acted.append(word)
        if word == "first":
            clock.now += 60
            await store.acquire("r", "another", ttl=60)
        return word

    model = ScriptedModel([call("act", word="first"), call("act", word="second"), "done"])
    with pytest.raises(RunConflictError):
        await Runner(Agent("A", model=model, tools=[act]), store=store).run("hi", run_id="r")
    assert acted == ["first"]
    assert not [event for event in await load_events(store, "r") if isinstance(event, ToolReturned)]


async def test_deleting_a_run_stops_it_and_other_runs_keep_their_leases() -> None:
    store, first, second = RecordingStore(), WaitingTool(), WaitingTool()
    runner = first.runner(store)
    deleted = asyncio.create_task(runner.run("hi", run_id="gone"))
    await first.started.wait()
    other = second.runner(store)
    remaining = asyncio.create_task(other.run("hi", run_id="stays"))
    await second.started.wait()
    await store.delete("gone")
    with pytest.raises(RunNotFoundError):
        await deleted
    await see_renewals(store, 3)
    second.go.set()
    assert (await remaining).status == "completed"


async def test_a_failed_renewal_does_not_affect_other_leases(caplog: pytest.LogCaptureFixture) -> None:
    # Neither a deleted run nor a failing store stops the heartbeat.
    store, waiting = RecordingStore(), WaitingTool()
    runner = waiting.runner(store)
    runs = [asyncio.create_task(runner.run("hi", run_id=f"r{number}")) for number in range(3)]
    while store.calls.count("create") < 3:
        await asyncio.sleep(0)
    store.faults["renew"] += [StoreError("failed"), OSError("odd")]
    await see_renewals(store, 4)
    waiting.go.set()
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(one).__name__ for one in ended] == ["RunResult"] * 3
    assert "could not renew" in caplog.text


async def test_a_late_renewal_does_not_affect_a_finished_run() -> None:
    # Its task belongs to the caller again.
    store, waiting = RecordingStore(), WaitingTool()
    runner = waiting.runner(store)
    in_renewal, may_continue = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        in_renewal.set()
        await may_continue.wait()

    store.faults["renew"].append(late)
    after: list[str] = []
    test = asyncio.current_task()

    async def caller() -> None:
        await runner.run("hi", run_id="r")
        may_continue.set()
        await store.seen.get()
        await until(lambda: asyncio.all_tasks() == {test, calling})  # The renewal has ended.
        after.append("continued")

    calling = asyncio.create_task(caller())
    await in_renewal.wait()
    await store.request_cancel("r", "now")
    waiting.go.set()
    await calling
    assert after == ["continued"]


async def test_a_run_that_another_process_has_locked_keeps_its_lease_and_continues() -> None:
    class Locked(RecordingStore):
        """A store whose runs cannot be renewed while another process has locked them."""

        is_locked = True

        async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
            renewed = await super().renew(leases, ttl=ttl)
            return {} if self.is_locked else renewed

    store, waiting = Locked(), WaitingTool()
    running = asyncio.create_task(waiting.runner(store).run("hi"))
    await until(lambda: running.done() or store.seen.qsize() >= 3)
    assert not running.done()
    store.is_locked = False
    waiting.go.set()
    assert (await running).status == "completed"


async def test_consecutive_runs_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, store, waiting = Timers(monkeypatch), RecordingStore(), WaitingTool()
    runner = waiting.runner(store)
    in_renewal, may_continue = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        in_renewal.set()
        await may_continue.wait()

    store.faults["renew"].append(late)
    first = asyncio.create_task(runner.run("hi", run_id="r1"))
    await in_renewal.wait()
    waiting.go.set()
    await first
    waiting.go.clear()
    waiting.started.clear()
    second = asyncio.create_task(runner.run("hi", run_id="r2"))
    await waiting.started.wait()
    assert timers.pending == 0, "the late renewal sets the next timer"
    pending: asyncio.Queue[int] = asyncio.Queue()

    async def count_timers() -> None:
        pending.put_nowait(timers.pending)

    store.faults["renew"] += [count_timers] * 4
    may_continue.set()
    assert [await pending.get() for _ in range(4)] == [0] * 4, "a timer was running while leases were renewed"
    waiting.go.set()
    await second


async def test_leases_are_renewed_after_an_event_loop_was_closed_in_the_middle_of_a_run() -> None:
    # A loop that is closed without cancelling its tasks leaves no one to remove its run.
    class Counting(MemoryStore):
        """A store that counts renewals."""

        renewals = 0

        async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
            self.renewals += 1
            return await super().renew(leases, ttl=ttl)

    store, gates = Counting(), list[asyncio.Event]()

    @agent("Waits")
    async def waits(ctx: AgentContext) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    runner = Runner(waits, store=store)

    def closed_process() -> None:
        async def begin() -> "asyncio.Task[Any]":
            task = asyncio.create_task(runner.run("hi"))
            while not gates:
                await asyncio.sleep(0)
            return task

        loop = asyncio.new_event_loop()
        task: Any = loop.run_until_complete(begin())
        loop.close()
        task._log_destroy_pending = False

    await asyncio.to_thread(closed_process)
    before = store.renewals
    running = asyncio.create_task(runner.run("hi"))
    await until(lambda: store.renewals > before)
    gates[-1].set()
    assert (await running).status == "completed"
