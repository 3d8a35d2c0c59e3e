"""Whatever ends a drive, and however often it is cancelled, it does not keep the lease of its run."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any, Unpack

import anyio
import pytest
from tests.runs.recording_store import ManualClock, get_record

from batonkit import Agent, Runner, tool
from batonkit.errors import RunError
from batonkit.log import AgentResponded
from batonkit.stores import AppendOptions, Lease, MemoryStore, RunFlags, SQLiteStore, Store
from batonkit.testing import ScriptedModel, call

Drive = Callable[[Runner[Any, Any]], Coroutine[Any, Any, Any]]


class BlockedStore(MemoryStore):
    """A memory store whose appends wait, once it is blocked, until `go` is set."""

    def __init__(self, *, clock: Callable[[], float] = time) -> None:
        super().__init__(clock=clock)
        self.is_blocked = False
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.renewed: asyncio.Queue[list[str]] = asyncio.Queue()

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        self.renewed.put_nowait([lease.run_id for lease in leases])
        return await super().renew(leases, ttl=ttl)

    async def see_only_renewals_of_another_run(self, team: "WaitingTeam") -> None:
        """Drive another run, and look at the leases that are renewed with its own."""
        team.waits.clear()
        running = asyncio.create_task(team.runner.run("hi", run_id="other"))
        await team.waits.wait()
        while "other" not in (renewed := await self.renewed.get()):
            continue
        assert renewed == ["other"]
        team.go.set()
        await running

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        if self.is_blocked:
            self.asked.set()
            await self.go.wait()
        return await super().append(run_id, expected_seq, lines, **options)


class WaitingTeam:
    """An agent whose tool only reads, and waits: the response that calls it is not stored yet."""

    def __init__(self, store: Store) -> None:
        self.waits = asyncio.Event()
        self.go = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Wait."""
            self.waits.set()
            await self.go.wait()
            return "waited"

        model = ScriptedModel([call("wait"), call("wait"), "done", "done"])
        self.runner: Runner[Any, Any] = Runner(Agent("Desk", model=model, tools=[wait]), store=store)


def runner_that_answers(store: Store) -> Runner[Any, Any]:
    return Runner(Agent("Desk", model=ScriptedModel(["done"])), store=store)


async def drive(runner: Runner[Any, Any]) -> None:
    await runner.submit("hi", run_id="r")
    await runner.runs.drive("r")


async def run(runner: Runner[Any, Any]) -> None:
    await runner.run("hi", run_id="r")


async def cancel_by_task(team: WaitingTeam, start: Drive, store: BlockedStore) -> None:
    """Cancel the task that drives the run, and again while it waits for the store."""
    driving = asyncio.create_task(start(team.runner))
    await team.waits.wait()
    store.is_blocked = True
    driving.cancel()
    await store.asked.wait()
    for _ in range(3):
        driving.cancel()
        await asyncio.sleep(0)
    store.go.set()
    await asyncio.wait([driving])
    assert driving.cancelled()


async def cancel_by_scope(team: WaitingTeam, start: Drive, store: BlockedStore) -> None:
    """Cancel the scope around the run, as Starlette does when a client has gone: every further wait is cancelled."""
    async with anyio.create_task_group() as group:
        group.start_soon(start, team.runner)
        await team.waits.wait()
        store.is_blocked = True
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await store.asked.wait()
            store.go.set()


@pytest.mark.parametrize("start", [drive, run])
@pytest.mark.parametrize("cancel", [cancel_by_task, cancel_by_scope])
async def test_a_drive_that_is_cancelled_again_while_it_stores_its_last_events_releases_the_lease(
    start: Drive, cancel: Callable[[WaitingTeam, Drive, BlockedStore], Coroutine[Any, Any, None]]
) -> None:
    store = BlockedStore()
    team = WaitingTeam(store)
    await cancel(team, start, store)
    record = await get_record(store, "r")
    assert (record.status, record.is_leased) == ("running" if start is drive else "cancelled", False)
    assert AgentResponded in map(type, await team.runner.runs.events("r"))
    assert await team.runner.runs.delete("r")


@pytest.mark.parametrize("start", [drive, run])
async def test_a_drive_that_is_cancelled_again_releases_the_lease_in_a_file_that_survives_power_failures(
    start: Drive, tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path / "runs.db", durability="power")
    team = WaitingTeam(store)
    async with team.runner, anyio.create_task_group() as group:
        group.start_soon(start, team.runner)
        await team.waits.wait()
        group.cancel_scope.cancel()
    async with team.runner:
        assert not (await team.runner.runs.get("r")).is_leased
        assert await team.runner.runs.delete("r")


async def test_the_lease_of_a_run_whose_driver_was_cancelled_while_the_store_hung_is_not_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.005)
    monkeypatch.setattr("batonkit.runs.stored.journal._DEFAULT_STORE_SECONDS", 0.0)
    monkeypatch.setattr("batonkit.runs.stored.journal._LAST_SECONDS", 0.0)
    clock = ManualClock()
    store = BlockedStore(clock=clock)
    team = WaitingTeam(store)
    driving = asyncio.create_task(drive(team.runner))
    await team.waits.wait()
    store.is_blocked = True
    driving.cancel()
    await store.asked.wait()
    driving.cancel()
    await asyncio.wait([driving])
    assert (await get_record(store, "r")).is_leased
    store.is_blocked = False
    await store.see_only_renewals_of_another_run(team)
    clock.now += 60
    assert (await runner_that_answers(store).runs.drive("r", accept_changes=True)).status == "completed"


async def test_the_lease_of_a_run_whose_coroutine_is_closed_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the garbage collector does with the tasks of an event loop that was closed.
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.005)
    store = BlockedStore()
    team = WaitingTeam(store)
    driving = asyncio.create_task(drive(team.runner))
    await team.waits.wait()
    coroutine: Any = driving.get_coro()
    coroutine.close()
    await store.see_only_renewals_of_another_run(team)
    assert (await team.runner.resume("r")).status == "completed"
    driving.cancel()
    await asyncio.wait([driving])


@pytest.mark.parametrize("start", [drive, run])
async def test_cancelling_a_run_does_not_touch_the_task_that_once_drove_it(start: Drive) -> None:
    store = BlockedStore()
    team = WaitingTeam(store)
    cancelled = asyncio.Event()

    async def caller() -> str:
        try:
            await start(team.runner)
        except asyncio.CancelledError:
            cancelled.set()
        task = asyncio.current_task()
        assert task is not None
        while task.uncancel():
            continue
        await asked_again.wait()
        return "goes on"

    asked_again = asyncio.Event()
    calling = asyncio.create_task(caller())
    await team.waits.wait()
    store.is_blocked = True
    calling.cancel()
    await store.asked.wait()
    calling.cancel()
    await asyncio.sleep(0)
    store.go.set()
    await cancelled.wait()
    assert await team.runner.runs.cancel("r") == "cancelled"
    asked_again.set()
    assert await calling == "goes on"


async def test_a_run_that_is_cancelled_on_request_and_by_its_caller_leaves_one_cancellation_to_the_caller() -> None:
    store = BlockedStore()
    team = WaitingTeam(store)
    left: list[int] = []

    async def caller() -> None:
        try:
            await run(team.runner)
        finally:
            task = asyncio.current_task()
            assert task is not None
            left.append(task.cancelling())

    calling = asyncio.create_task(caller())
    await team.waits.wait()
    store.is_blocked = True
    await team.runner.runs.cancel("r")
    await store.asked.wait()
    calling.cancel()
    await asyncio.sleep(0)
    store.go.set()
    await asyncio.wait([calling])
    assert (left, (await get_record(store, "r")).status) == ([1], "cancelled")


@pytest.mark.parametrize("start", [drive, run])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_tool_that_raises_generator_exit_fails_its_run(start: Drive, count: int) -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        raise GeneratorExit

    store = MemoryStore()
    model = ScriptedModel([[call("leave") for _ in range(count)]])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model, tools=[leave]), store=store)
    if start is run:
        with pytest.raises(RunError, match="GeneratorExit was raised by a tool"):
            await run(runner)
    else:
        await drive(runner)
    record = await get_record(store, "r")
    assert (record.status, record.is_leased) == ("failed", False)
    assert await runner.runs.delete("r")
