"""The check that a run leaves no task behind."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import pytest
from tests.laws.executions import run_in_loop
from tests.waiting import forever

from batonkit import Runner
from batonkit.agents import AgentContext, agent
from batonkit.stores import Lease, MemoryStore


def test_a_task_that_outlives_its_run_is_named() -> None:
    async def leak() -> None:
        asyncio.get_running_loop().create_task(forever(), name="leaked")

    with pytest.raises(AssertionError, match=r"still running: .*leaked"):
        run_in_loop(leak())


def test_a_renewal_of_leases_may_outlive_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a machine that is so slow that a renewal is due when the run ends.
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.0)
    renewals: list[int] = []

    class WatchedStore(MemoryStore):
        async def renew(self, leases: Sequence[Lease], *, ttl: float) -> NoReturn:
            renewals.append(len(leases))
            await forever()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        while not renewals:
            await asyncio.sleep(0)
        await ctx.say("done")

    assert run_in_loop(Runner(slow, store=WatchedStore()).run("hi")).output == "done"
    assert renewals == [1]
