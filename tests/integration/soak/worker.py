"""Drive orders until none is left or the process is killed.

Interrupts are answered here as well: the outcome of a call is looked up in the effect log, as a person would do.
"""

import asyncio
from pathlib import Path
from typing import Any

from tests.integration.soak.orders import EffectLog, OrderModel, make_team
from tests.unfinished import recover

from batonkit import Runner
from batonkit.errors import AnswerError, RunConflictError
from batonkit.log.log import Log
from batonkit.stores import Store, resolve_store

LEASE = 2.0
_PAUSE = 0.02


def make_runner(store: Any, effect_log: EffectLog) -> Runner[Any, Any]:
    """Create a runner of the team."""
    store.lease_seconds = LEASE
    return Runner(make_team(effect_log), model=OrderModel(), store=store)


async def answer_all(runner: Runner[Any, Any], store: Store, effect_log: EffectLog) -> None:
    """Answer all interrupts: approve, and answer questions about unknown outcomes with the effect log."""
    for record in (await store.list(status=["suspended"])).records:
        interrupts = Log(await runner.runs.events(record.run_id)).open_interrupts()
        answers: dict[str, Any] = {}
        for id, interrupt in interrupts.items():
            if interrupt.payload["kind"] == "approval":
                answers[id] = True
                continue
            key = interrupt.payload["idempotency_key"]
            done = [effect for effect in effect_log.effects() if effect.key == key]
            scope = key.partition(":")[2]
            answers[id] = {"result": f"{done[0].tool} {scope}"} if done else {"run_again": True}
        try:
            await runner.runs.answer(record.run_id, answers)
        except (RunConflictError, AnswerError):
            continue  # Another process was faster.


async def work(url: str, log_path: Path) -> None:
    """Drive and answer runs until none is left."""
    effect_log, store = EffectLog(log_path), resolve_store(url)
    async with make_runner(store, effect_log) as runner:
        while True:
            await recover(runner, max_concurrency=6)
            await answer_all(runner, store, effect_log)
            if not (await store.list(status=["running", "suspended"], limit=1)).records:
                return
            await asyncio.sleep(_PAUSE)
