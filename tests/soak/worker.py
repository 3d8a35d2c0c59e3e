"""Drive orders until none is left or the process is killed.

Interrupts are answered here as well: the outcome of a call is looked up in the ledger, as a person would.
"""

import asyncio
from pathlib import Path
from typing import Any

from tests.soak.orders import Clerk, Ledger, team

from baton import Runner
from baton.errors import AnswerError, RunConflictError
from baton.log import Log
from baton.stores import Store, resolve_store

LEASE = 2.0
_PAUSE = 0.02


def runner_for(store: Store, ledger: Ledger) -> Runner[Any, Any]:
    """A runner as every process of the soak has one."""
    return Runner(team(ledger), model=Clerk(), store=store, lease_seconds=LEASE)


async def answer_all(runner: Runner[Any, Any], store: Store, ledger: Ledger) -> None:
    """Answer what is asked: approvals with yes, unknown outcomes with what the ledger says."""
    for record in (await store.list(status=["suspended"])).records:
        questions = Log(await runner.events(record.run_id)).open_interrupts()
        answers: dict[str, Any] = {}
        for id, asked in questions.items():
            if asked.payload["kind"] == "approval":
                answers[id] = True
                continue
            key = asked.payload["idempotency_key"]
            done = [deed for deed in ledger.deeds() if deed.key == key]
            scope = key.partition(":")[2]
            answers[id] = {"result": f"{done[0].tool} {scope}"} if done else {"run_again": True}
        try:
            await runner.answer(record.run_id, answers)
        except (RunConflictError, AnswerError):
            continue  # Another process was faster.


async def work(url: str, path: Path) -> None:
    """Pick up whatever is there, again and again."""
    ledger, store = Ledger(path), resolve_store(url)
    async with runner_for(store, ledger) as runner:
        while True:
            await runner.recover(max_concurrency=6)
            await answer_all(runner, store, ledger)
            if not (await store.list(status=["running", "suspended"], limit=1)).records:
                return
            await asyncio.sleep(_PAUSE)
