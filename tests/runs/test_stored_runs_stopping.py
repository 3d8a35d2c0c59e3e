"""From the write that stores that a run stops, anyone may answer, resume, cancel or copy it: no lease is in the way."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Unpack

import pytest
from tests.runs.recording_store import HeldStore, RecordingStore, get_record
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import ModelError, RunConflictError, RunError, RunNotSuspendedError, StoreError
from batonkit.log import InterruptRaised, RunCancelled, RunSuspended
from batonkit.runs import BackgroundRunner
from batonkit.stores import AppendOptions, Lease, MemoryStore, RunFlags, Store
from batonkit.testing import FaultyStore, ScriptedModel, call


@tool
async def pay(ctx: RunContext[str | None]) -> str:
    """Pay."""
    answer = await ctx.interrupt("pay?")
    return f"{answer} from {ctx.context}"


class AskedStore(MemoryStore):
    """A memory store that says when it is asked for a lease, and tells the new holder once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        self.asked.set()
        lease = await super().acquire(run_id, worker, ttl=ttl)
        await self.go.wait()
        return lease


def runner_of(store: Store | None, *steps: Any, **options: Any) -> Runner[Any, Any]:
    return Runner(Agent("Desk", model=ScriptedModel([*steps]), tools=[pay]), store=store, **options)


async def test_an_answer_is_accepted_before_the_driver_knows_that_the_run_is_suspended() -> None:
    store = HeldStore("suspended")
    here, elsewhere = runner_of(store, call("pay")), runner_of(store, "paid")
    running = asyncio.create_task(here.run("hi", run_id="r"))
    await store.stored.wait()

    await elsewhere.runs.answer("r", "yes")
    assert (await elsewhere.runs.drive("r")).status == "completed"

    store.go.set()
    assert (await running).status == "suspended"


async def test_a_run_is_resumed_before_its_driver_knows_that_it_is_suspended() -> None:
    store = HeldStore("suspended")
    here, elsewhere = runner_of(store, call("pay")), runner_of(store, "paid")
    running = asyncio.create_task(here.run("hi", run_id="r"))
    await store.stored.wait()

    assert (await elsewhere.resume("r", "yes")).output == "paid"

    store.go.set()
    assert (await running).status == "suspended"


async def test_a_run_is_copied_and_steered_before_its_driver_knows_that_it_is_suspended() -> None:
    store = HeldStore("suspended")
    here, elsewhere = runner_of(store, call("pay")), runner_of(store, "paid", "paid again", "hello")
    running = asyncio.create_task(here.run("hi", run_id="r", thread="t"))
    await store.stored.wait()

    copy = await elsewhere.runs.fork("r", thread="other")
    assert (await elsewhere.resume(copy, "yes")).output == "paid"
    await elsewhere.submit("hello?", thread="t", when_busy="steer", run_id="steers")
    assert [message.run_id for message in await elsewhere.thread("t").waiting()] == ["steers"]
    assert (await elsewhere.resume("r", "yes")).output == "paid again"
    assert await elsewhere.thread("t").waiting() == []

    store.go.set()
    await running


@pytest.mark.parametrize("is_driven", [False, True])
async def test_a_run_that_is_resumed_in_the_process_that_suspends_it_keeps_its_context(is_driven: bool) -> None:
    store = HeldStore("suspended")
    runner = runner_of(store, call("pay"), "paid")
    if is_driven:
        await runner.submit("hi", run_id="r")
        suspending: asyncio.Task[Any] = asyncio.create_task(runner.runs.drive("r", context="Bob"))
    else:
        suspending = asyncio.create_task(runner.run("hi", run_id="r", context="Bob"))
    await store.stored.wait()

    resuming = asyncio.create_task(runner.resume("r", "yes"))
    store.go.set()

    assert (await suspending).status == "suspended"
    result = await resuming
    assert (result.output, [message.content for message in result.messages][-2:]) == ("paid", ["yes from Bob", "paid"])


async def test_a_run_whose_stream_is_left_when_it_suspends_can_be_answered() -> None:
    store = FaultyStore(MemoryStore())
    store.hang("release")
    runner = runner_of(store, call("pay"))
    async with runner.stream("hi", run_id="r") as run:
        async for event in run:
            if isinstance(event, RunSuspended):
                break
    assert not (await runner.runs.get("r")).is_leased


async def test_a_renewal_that_is_late_does_not_revive_the_lease_of_a_suspended_run() -> None:
    store = RecordingStore()
    renewing, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        renewing.set()
        await go.wait()

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask once the lease is being renewed."""
        await renewing.wait()
        return str(await ctx.interrupt("?"))

    store.faults["renew"].append(hold)
    team = Agent("Desk", model=ScriptedModel([call("ask")]), tools=[ask])
    store.lease_seconds = 0.3
    await Runner(team, store=store).run("hi", run_id="r")
    go.set()
    await store.seen.get()
    assert (await get_record(store, "r")).lease_until == 0.0


@pytest.mark.parametrize("method", ["runs.answer", "resume"])
async def test_an_answer_waits_for_someone_who_looks_at_a_suspended_run(method: str) -> None:
    store = AskedStore()
    runner = runner_of(store, call("pay"), "paid")
    await runner.run("hi", run_id="r")
    lease = await store.acquire("r", "looks at it", ttl=60)
    store.asked.clear()
    answering = asyncio.create_task(attrgetter(method)(runner)("r", "yes"))
    await store.asked.wait()
    await store.release(lease)
    await answering
    assert (await runner.runs.drive("r")).status == "completed"


async def test_an_answer_does_not_wait_for_the_driver_of_a_run() -> None:
    store = MemoryStore()
    runner = runner_of(store)
    await runner.submit("hi", run_id="r")
    await store.acquire("r", "drives it", ttl=60)
    with pytest.raises(RunConflictError, match="drives it"):
        await runner.runs.answer("r", "yes")


async def test_a_requested_cancellation_comes_before_an_answer_to_the_run_that_suspends() -> None:
    class CancelledAtLast(HeldStore):
        """A store in which the request arrives just before the suspension."""

        async def append(
            self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
        ) -> RunFlags:
            if options.get("status") == "suspended":
                await self.request_cancel(run_id, "now")
            return await super().append(run_id, expected_seq, lines, **options)

    store = CancelledAtLast("suspended")
    here = runner_of(store, call("pay"))
    elsewhere = runner_of(store)
    running = asyncio.create_task(here.run("hi", run_id="r"))
    await store.stored.wait()

    with pytest.raises(RunConflictError):
        await elsewhere.runs.answer("r", "yes")

    store.go.set()
    assert (await running).status == "cancelled"
    assert (await get_record(store, "r")).status == "cancelled"


async def test_a_requested_cancellation_is_seen_although_the_confirmation_of_the_suspension_is_lost() -> None:
    class LosesTheConfirmation(MemoryStore):
        is_lost = False

        async def append(
            self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
        ) -> RunFlags:
            if options.get("status") != "suspended" or self.is_lost:
                return await super().append(run_id, expected_seq, lines, **options)
            self.is_lost = True
            await self.request_cancel(run_id, "now")
            await super().append(run_id, expected_seq, lines, **options)
            raise StoreError("the connection is lost")

    store = LosesTheConfirmation()
    assert (await runner_of(store, call("pay")).run("hi", run_id="r")).status == "cancelled"
    record = await get_record(store, "r")
    assert (record.status, record.is_leased) == ("cancelled", False)


async def test_an_answered_run_is_driven_before_the_sender_of_the_answer_knows() -> None:
    store = HeldStore("running")
    here, elsewhere = runner_of(store, call("pay")), runner_of(store, "paid")
    await here.run("hi", run_id="r")
    answering = asyncio.create_task(here.runs.answer("r", "yes"))
    await store.stored.wait()

    assert (await elsewhere.runs.drive("r")).status == "completed"

    store.go.set()
    await answering


async def test_a_cancelled_run_is_resumed_before_the_sender_of_the_request_knows() -> None:
    store = HeldStore("cancelled")
    here, elsewhere = runner_of(store, call("pay")), runner_of(store, "paid")
    await here.run("hi", run_id="r")
    cancelling = asyncio.create_task(here.runs.cancel("r"))
    await store.stored.wait()

    assert (await elsewhere.resume("r", "yes")).output == "paid"

    store.go.set()
    assert await cancelling == "cancelled"


async def test_an_answer_whose_sender_is_cancelled_leaves_no_lease() -> None:
    store = AskedStore()
    runner = runner_of(store, call("pay"), "paid")
    await runner.run("hi", run_id="r")
    store.go.clear()
    answering = asyncio.create_task(runner.runs.answer("r", "yes"))
    await store.asked.wait()
    answering.cancel()
    store.go.set()
    await asyncio.wait([answering])
    record = await runner.runs.get("r")
    assert (record.status, record.is_leased) == ("suspended", False)


@pytest.mark.parametrize("when", ["now", "after_response", "after_turn"])
async def test_a_background_run_is_cancelled_in_the_moment_of_its_suspension(when: Any) -> None:
    store = HeldStore("suspended")
    background = BackgroundRunner(runner_of(store, call("pay")))
    await background.start("hi", run_id="r")
    await store.stored.wait()
    cancelling = asyncio.create_task(background.cancel("r", when))
    store.go.set()
    assert await cancelling == "cancelled"
    assert (await get_record(store, "r")).status == "cancelled"


@pytest.mark.parametrize("when", ["now", "after_response", "after_turn"])
@pytest.mark.parametrize("make_store", [lambda: None, MemoryStore], ids=["none", "memory"])
async def test_a_stream_that_reads_of_a_question_can_cancel_the_run(when: Any, make_store: Any) -> None:
    # The run does not wait for its reader: it may be suspended already.
    runner = runner_of(make_store(), call("pay"))
    read: list[Any] = []
    async with runner.stream("hi", run_id="r") as run:
        async for event in run:
            read.append(event)
            if isinstance(event, InterruptRaised):
                await until(lambda: run._result is not None)
                await run.cancel(when)
    assert run.result.status == "cancelled"
    assert (type(read[-1]), read) == (RunCancelled, [*run.result.events])
    assert (await runner.runs.get("r")).status == "cancelled"
    assert await runner.runs.events("r") == read


async def test_a_stream_cancels_its_run_in_the_moment_of_its_suspension() -> None:
    store = HeldStore("suspended")
    async with runner_of(store, call("pay")).stream("hi", run_id="r") as run:
        await store.stored.wait()
        cancelling = asyncio.create_task(run.cancel())
        store.go.set()
        await cancelling
    assert (run.result.status, (await get_record(store, "r")).status) == ("cancelled", "cancelled")


async def test_a_stream_does_not_cancel_its_suspended_run_once_another_worker_has_completed_it() -> None:
    store = MemoryStore()
    runner = runner_of(store, call("pay"), "paid")
    async with runner.stream("hi", run_id="r") as run:
        await run.wait()
        assert (await runner_of(store, "paid").resume("r", "yes")).output == "paid"
        await run.cancel()
    assert run.result.status == "suspended"
    assert (await runner.runs.get("r")).status == "completed"


@pytest.mark.parametrize("when", ["now", "after_turn"])
async def test_a_request_that_is_read_with_the_first_write_of_a_resumed_run_stops_it_before_its_tool(
    when: Any,
) -> None:
    class CancelledMeanwhile(MemoryStore):
        """A store in which the request arrives between the lease and the first write."""

        async def append(
            self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
        ) -> RunFlags:
            if options.get("status") == "running":
                await self.request_cancel(run_id, when)
            return await super().append(run_id, expected_seq, lines, **options)

    paid: list[str] = []

    @tool
    async def settle(ctx: RunContext) -> str:
        """Pay after a question."""
        paid.append(await ctx.interrupt("pay?"))
        return "paid"

    store = CancelledMeanwhile()
    runner = Runner(Agent("Desk", model=ScriptedModel([call("settle"), "done"]), tools=[settle]), store=store)
    await runner.run("hi", run_id="r")
    assert (await runner.resume("r", "yes")).status == "cancelled"
    assert paid == []


@pytest.mark.parametrize("make_store", [lambda: None, MemoryStore], ids=["none", "memory"])
async def test_an_answer_does_not_restart_a_run_that_was_cancelled(make_store: Any) -> None:
    runner = runner_of(make_store(), call("pay"), "paid")
    await runner.run("hi", run_id="r")
    assert await runner.runs.cancel("r") == "cancelled"
    before = await runner.runs.events("r")
    with pytest.raises(RunNotSuspendedError, match="run `r` was cancelled and cannot be answered: resume or retry it"):
        await runner.runs.answer("r", "yes")
    assert ((await runner.runs.get("r")).status, await runner.runs.events("r")) == ("cancelled", before)


async def test_a_worker_continues_a_run_that_is_retried() -> None:
    store = MemoryStore()
    runner = runner_of(store, call("pay"), ModelError("gone"), "paid")
    await runner.run("hi", run_id="r")
    with pytest.raises(RunError, match="run `r` is suspended; only failed and cancelled runs can be retried"):
        await runner.runs.retry("r")
    await runner.runs.answer("r", "yes")
    assert (await runner.runs.drive("r")).status == "failed"
    with pytest.raises(RunNotSuspendedError, match="run `r` has failed and cannot be answered"):
        await runner.runs.answer("r", "yes")
    await runner.runs.retry("r")
    assert (await runner.runs.drive("r")).status == "completed"
