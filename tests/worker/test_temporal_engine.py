"""The engine `temporal`, without a server."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.waiting import forever

from batonkit.worker import TemporalEngine, temporal_engine


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_cancelled_engine_leaves_no_task_behind(is_stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    is_shutting_down = asyncio.Event()
    has_started = asyncio.Event()
    has_ended = asyncio.Event()

    class HangingWorker:
        def __init__(self, *args: Any, **options: Any) -> None: ...

        async def run(self) -> None:
            has_started.set()
            try:
                await forever()
            finally:
                has_ended.set()

        async def shutdown(self) -> None:
            is_shutting_down.set()
            await forever()

    monkeypatch.setattr(temporal_engine, "TemporalWorker", HangingWorker)
    engine = TemporalEngine()
    working = asyncio.create_task(engine._work(cast("Any", SimpleNamespace(concurrency=1)), cast("Any", None), "queue"))
    await has_started.wait()
    if is_stopped:
        await engine.stop()
        await is_shutting_down.wait()
    working.cancel()
    await asyncio.wait([working])
    assert has_ended.is_set()
