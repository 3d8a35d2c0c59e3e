"""Recovery, cancellation and leases when the store, the clock or the user's code fails."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import pytest
from tests.runs.recording_store import ManualClock
from tests.unfinished import list_unfinished
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, tool
from batonkit.agents import agent
from batonkit.errors import RunConflictError, StoreError, TeamChangedError, ThreadBusyError
from batonkit.log import InterruptRaised, ToolReturned
from batonkit.runs import BackgroundRunner
from batonkit.runs.stored import journal, recovery
from batonkit.stores import AppendOptions, Lease, MemoryStore, RunFlags, RunRecord, SQLiteStore
from batonkit.testing import FaultyStore, ScriptedModel, call
from batonkit.tools.worker_threads import CHECK_BEFORE_CALL, in_thread

LIMIT = 60
FAR_AHEAD = 1e12
"""A time of the monotonic clock that no machine reaches."""


@pytest.fixture(autouse=True)
def frequent_polls_and_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for runs, and renew leases, every few milliseconds."""
    monkeypatch.setattr("batonkit.runs.background.background_runner._MAX_POLL_INTERVAL", 0.02)
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.02)


async def status_of(store: Any, run_id: str) -> str:
    record = await store.record(run_id)
    assert record is not None
    return record.status


def desk(model: Any = None, **options: Any) -> Runner[Any, Any]:
    return Runner(Agent("Desk", model=model or ScriptedModel(["Hello."] * 50)), **options)


async def submitted(store: Any, count: int) -> list[str]:
    return [await desk(store=store).submit("hi", run_id=f"r{number}") for number in range(count)]


async def statuses(store: Any, run_ids: list[str]) -> set[str]:
    return {await status_of(store, run_id) for run_id in run_ids}


async def test_a_passing_store_error_does_not_abandon_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_FIRST_DELAY", 0.05)
    store = FaultyStore(MemoryStore())
    run_ids = await submitted(store, 5)
    store.fail("acquire", times=8)
    store.fail("runnable", times=2)
    background = BackgroundRunner(desk(store=store))
    background.start_recovery()
    await until(lambda: statuses(store, run_ids), lambda found: found == {"completed"})

    async def has_no_notes() -> bool:
        return not any([await store.notes(run_id) for run_id in run_ids])

    # A run may end before the note about its failed attempt is removed.
    await until(has_no_notes)
    await background.close()


async def test_an_error_that_lasts_is_retried_later_and_kept_with_the_run(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await submitted(store, 1)
    changed = Runner(Agent("Other", model=ScriptedModel(["Hello."])), store=store)
    background = BackgroundRunner(changed)
    background.start_recovery()
    notes = await until(lambda: store.notes("r0"))
    assert "retrying in 300 s" in caplog.text
    assert TeamChangedError.__name__ in caplog.text
    assert b"TeamChangedError" in notes["undrivable"]
    await background.close()
    assert await status_of(store, "r0") == "running"


async def test_a_context_factory_that_raises_affects_only_its_run(caplog: pytest.LogCaptureFixture) -> None:
    def context_for(record: RunRecord) -> str:
        if record.owner == "eve":
            raise ValueError("no such customer")
        return record.owner

    store = MemoryStore()
    runner = desk(store=store, context_factory=context_for)
    await runner.submit("hi", run_id="bad", owner="eve")
    await runner.submit("hi", run_id="good", owner="ada")
    background = BackgroundRunner(runner)
    background.start_recovery()
    await until(lambda: status_of(store, "good"), lambda status: status == "completed")
    notes = await until(lambda: store.notes("bad"))
    await background.close()
    assert "no such customer" in caplog.text
    assert await status_of(store, "bad") == "running"
    assert b"no such customer" in notes["undrivable"]


async def test_a_run_killed_after_its_creation_keeps_its_place_in_the_thread() -> None:
    # It was created by a process that died at once, and another turn cannot slip in before it.
    store = MemoryStore()
    runner = desk(store=store)
    await runner.run("one", thread="t", run_id="first")
    await runner.submit("two", thread="t", run_id="second")
    with pytest.raises(ThreadBusyError):
        await runner.run("three", thread="t")
    assert (await runner.runs.drive("second")).status == "completed"
    await runner.run("four", thread="t")
    assert [message.content for message in await runner.thread("t").messages()][::2] == ["one", "two", "four"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_clock_that_is_set_back_does_not_reorder_a_thread(tmp_path: Path, kind: str) -> None:
    now = [10_000.0]
    path = tmp_path / "runs.db"
    store = MemoryStore(clock=lambda: now[0]) if kind == "memory" else SQLiteStore(path, clock=lambda: now[0])
    for number in range(6):
        if number == 3:
            now[0] -= 30
        await desk(store=store).run(f"turn {number}", thread="t")
        now[0] += 1
    messages = await desk(store=store).thread("t").messages()
    assert [message.content for message in messages][::2] == [f"turn {number}" for number in range(6)]
    await store.close()


@pytest.mark.parametrize("offset", [-3600.0, 3600.0])
async def test_a_worker_whose_clock_is_wrong_recovers_runs(monkeypatch: pytest.MonkeyPatch, offset: float) -> None:
    # Leases are judged by the store's clock, never by the worker's.
    now = time.time()
    store = MemoryStore(clock=lambda: now)
    await submitted(store, 1)
    await store.acquire("r0", "dead", ttl=30)
    monkeypatch.setattr(time, "time", lambda: now + offset)
    runner = desk(store=store)
    assert await list_unfinished(runner) == []
    now += 31
    assert [record.run_id for record in await list_unfinished(runner)] == ["r0"]
    assert (await runner.runs.drive("r0")).status == "completed"


async def test_a_lease_from_the_future_is_dead(tmp_path: Path) -> None:
    # The clock was set back by an hour while a worker held the lease.
    now = [10_000.0]
    store = SQLiteStore(tmp_path / "runs.db", clock=lambda: now[0])
    await submitted(store, 1)
    await store.acquire("r0", "dead", ttl=30)
    now[0] -= 3600
    record = await store.record("r0")
    assert record is not None
    assert not record.is_leased
    assert (await desk(store=store).runs.drive("r0")).status == "completed"
    await store.close()


async def test_all_leases_are_renewed_in_one_call() -> None:
    class CountingStore(MemoryStore):
        """Records how many leases each call renews."""

        def __init__(self) -> None:
            super().__init__()
            self.renewed: list[int] = []

        async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
            self.renewed.append(len(leases))
            return await super().renew(leases, ttl=ttl)

    store, go = CountingStore(), asyncio.Event()

    @agent("Waits")
    async def waits(ctx: Any) -> None:
        await go.wait()
        ctx.values.set("done", True)

    runner = Runner(waits, store=store)
    runs = [asyncio.create_task(runner.run("hi")) for _ in range(200)]
    await until(lambda: store.renewed[-3:], lambda renewed: renewed == [200] * 3)
    go.set()
    assert {result.status for result in await asyncio.gather(*runs)} == {"completed"}


async def test_a_run_can_be_cancelled_while_the_store_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The store's time limit bounds the cancellation; the run can be recovered.
    monkeypatch.setattr(journal, "_LAST_SECONDS", 0.01)
    clock = ManualClock()
    inner = MemoryStore(clock=clock)
    store = FaultyStore(inner)
    store.timeout = 0.01  # pyright: ignore[reportAttributeAccessIssue]
    store.hang("append", times=10)
    task = asyncio.create_task(desk(store=store).run("hi", run_id="r"))
    await store.wait_until_hanging()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await status_of(inner, "r") == "running"
    clock.now += 60
    assert [record.run_id for record in await list_unfinished(desk(store=inner))] == ["r"]
    assert (await desk(store=inner).runs.drive("r")).status == "completed"


@tool
async def ask(ctx: RunContext) -> str:
    return str(await ctx.interrupt("sure?"))


async def test_a_cancel_that_comes_before_the_suspension_wins() -> None:
    store = MemoryStore()
    asking, go = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(ctx: RunContext) -> str:
        asking.set()
        await go.wait()
        return str(await ctx.interrupt("sure?"))

    runner = Runner(Agent("Desk", model=ScriptedModel([call("slow"), "ok"]), tools=[slow]), store=store)
    task = asyncio.create_task(runner.run("hi", run_id="r"))
    await asking.wait()
    assert await Runner(runner.team.members["Desk"].agent, store=store).runs.cancel("r") == "running"
    go.set()
    result = await task
    assert result.status == "cancelled"
    record = await store.record("r")
    assert record is not None
    assert (record.status, record.cancel_requested) == ("cancelled", "")


async def test_a_requested_cancel_wins_over_an_answer() -> None:
    # The driver suspended the run without seeing the request.
    store = MemoryStore()
    runner = Runner(Agent("Desk", model=ScriptedModel([call("ask"), "ok", "ok"]), tools=[ask]), store=store)
    assert (await runner.run("hi", run_id="r")).status == "suspended"
    assert await store.request_cancel("r", "now")
    with pytest.raises(RunConflictError, match="run `r` is cancelled now: its cancellation was requested before"):
        await runner.resume("r", True)
    assert await status_of(store, "r") == "cancelled"
    # Resuming it once more is a new decision.
    assert (await runner.resume("r", True)).status == "completed"


async def test_a_fork_is_created_suspended() -> None:
    store = FaultyStore(MemoryStore())
    runner = desk(store=store)
    await runner.run("hi", run_id="r")
    store.fail("append", times=50)
    await runner.runs.fork("r", run_id="f")
    assert await status_of(store, "f") == "suspended"
    assert await list_unfinished(runner) == []


class FrozenAfterIntent(MemoryStore):
    """Moves the clock of the process far ahead once the intent of a call is stored, as if it had been frozen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._monkeypatch = monkeypatch

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        requested = await super().append(run_id, expected_seq, lines, **options)
        if any(b'"intent"' in line for line in lines):
            self._monkeypatch.setattr(journal, "monotonic", lambda: FAR_AHEAD)
        return requested


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_once_tool_is_not_called_without_a_valid_lease(monkeypatch: pytest.MonkeyPatch, is_sync: bool) -> None:
    # The worker was frozen between intent and effect, for longer than its lease.
    clock, effects = ManualClock(), list[str]()
    store = FrozenAfterIntent(monkeypatch, clock)

    def pay_now() -> str:
        effects.append("paid")
        return "paid"

    async def pay_async() -> str:
        return pay_now()

    pay = tool(effect="once", name="pay")(pay_now if is_sync else pay_async)
    runner = Runner(Agent("Desk", model=ScriptedModel([call("pay"), "ok"]), tools=[pay]), store=store)
    with pytest.raises(RunConflictError, match="did not renew its lease in time"):
        await runner.run("hi", run_id="r")
    assert effects == []
    assert await status_of(store, "r") == "running"
    # The next worker asks for the outcome, and names the worker that may still be at it.
    monkeypatch.undo()
    await store.acquire("r", "worker-1", ttl=0)
    other = Runner(Agent("Desk", model=ScriptedModel([call("pay"), "ok"]), tools=[pay]), store=store)
    assert (await other.runs.drive("r")).status == "suspended"
    (question,) = [event.payload for event in await other.runs.events("r") if isinstance(event, InterruptRaised)]
    assert question["previous_worker"] == "worker-1"
    assert question["last_heartbeat"] == clock.now
    assert effects == []


async def test_the_lease_is_checked_in_the_worker_thread_as_well() -> None:
    # The thread may start late.
    started, go, effects = threading.Event(), threading.Event(), list[str]()

    def check() -> None:
        started.set()
        go.wait(LIMIT)
        raise RunConflictError("r", "too late")

    token = CHECK_BEFORE_CALL.set(check)
    try:
        task = asyncio.create_task(in_thread(lambda: effects.append("paid"), "pay"))
        await asyncio.to_thread(started.wait, LIMIT)
        go.set()
        with pytest.raises(RunConflictError, match="too late"):
            await task
    finally:
        CHECK_BEFORE_CALL.reset(token)
    assert effects == []


async def test_a_suspension_inside_an_exception_group_suspends_the_run() -> None:
    store = MemoryStore()

    @tool
    async def ask_in_group(ctx: RunContext) -> str:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ctx.interrupt("sure?"))
        return str(asked.result())

    model = ScriptedModel([call("ask_in_group"), "ok"])
    runner = Runner(Agent("Desk", model=model, tools=[ask_in_group]), store=store)
    result = await runner.run("hi", run_id="r")
    assert result.status == "suspended"
    record = await store.record("r")
    assert record is not None
    assert not record.is_leased
    assert (await runner.resume("r", "yes")).status == "completed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_every_base_exception_ends_the_run(error: type[BaseException]) -> None:
    store = MemoryStore()

    @tool
    async def stop() -> str:
        raise error

    runner = Runner(Agent("Desk", model=ScriptedModel([call("stop"), "ok"]), tools=[stop]), store=store)
    with pytest.raises(error):
        await runner.run("hi", run_id="r")
    record = await store.record("r")
    assert record is not None
    assert (record.status, record.is_leased) == ("cancelled", False)


async def test_another_base_exception_fails_the_run() -> None:
    class OutsideError(BaseException):
        pass

    store = MemoryStore()

    @tool
    async def stop() -> str:
        raise BaseExceptionGroup("several", [OutsideError(), SystemExit()])

    runner = Runner(Agent("Desk", model=ScriptedModel([call("stop"), "ok"]), tools=[stop]), store=store)
    with pytest.raises(BaseExceptionGroup):
        await runner.run("hi", run_id="r")
    record = await store.record("r")
    assert record is not None
    assert (record.status, record.is_leased) == ("failed", False)


async def test_an_error_whose_text_raises_ends_the_run_with_that_error() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    store = MemoryStore()

    @agent("Odd")
    async def odd(ctx: Any) -> None:
        raise OddError

    with pytest.raises(OddError):
        await Runner(odd, store=store).run("hi", run_id="r")
    assert await status_of(store, "r") == "failed"


async def test_a_tool_error_whose_text_raises_is_returned_to_the_model() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @tool
    async def odd() -> str:
        raise OddError

    runner = Runner(Agent("Desk", model=ScriptedModel([call("odd"), "ok"]), tools=[odd]))
    result = await runner.run("hi")
    assert result.output == "ok"
    (returned,) = [event.content for event in result.events if isinstance(event, ToolReturned)]
    assert "OddError" in str(returned)


async def test_a_store_error_is_raised_with_its_type() -> None:
    store = FaultyStore(MemoryStore())
    store.fail("create", error=StoreError("full"))
    with pytest.raises(StoreError, match="full"):
        await desk(store=store).run("hi")
