"""The engine `temporal`: a server that is away."""

import asyncio
import logging
from pathlib import Path

import pytest
from temporalio.client import Client
from tests.temporal_server import TemporalServer
from tests.waiting import PATIENCE, until
from tests.worker.test_worker import record_of, until_status

from batonkit import Agent, Runner
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel
from batonkit.worker import TemporalEngine, Worker


async def test_a_worker_that_starts_while_the_server_is_away_works_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = TemporalServer(tmp_path)
    server.start()
    try:
        client = await Client.connect(server.address)
        await asyncio.to_thread(server.stop, crash=True)
        store = MemoryStore()
        runner = Runner(Agent("A", model=ScriptedModel(["Done."])), store=store)
        engine = TemporalEngine(client=client)
        worker = Worker(runner, engine=engine)
        with caplog.at_level(logging.WARNING, logger="baton.worker"):
            working = asyncio.create_task(worker.run())
            await until(lambda: "cannot be reached" in engine.problem())
            await asyncio.sleep(2)
            await asyncio.to_thread(server.start)
            run_id = await runner.submit("hi")
            await until_status(store, run_id, "completed")
        assert engine.problem() == ""
        warnings = [record.getMessage() for record in caplog.records if record.name == "baton.worker"]
        assert len([text for text in warnings if server.address in text]) == 1
        assert not [text for text in warnings if "\n" in text]
        assert (await record_of(store, run_id)).fence == 2
        worker.stop()
        async with asyncio.timeout(PATIENCE):
            await working
    finally:
        server.stop()
