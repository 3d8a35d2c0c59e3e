"""The deployment example: its Dockerfile is valid, and its commands, as processes, survive the death of each one."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ports import free_port
from tests.postgres import PostgresServer
from tests.worker.processes import REPOSITORY, WorkerProcess

from baton.stores import PostgresStore, Store

FOLDER = REPOSITORY / "examples" / "deploy"
COMPOSE: Any = yaml.safe_load((FOLDER / "compose.yaml").read_text())
LIMIT = 300


def command_of(service: str) -> list[str]:
    """The command of a service, without the name of the program."""
    program, *arguments = COMPOSE["services"][service]["command"]
    assert program == "baton"
    return arguments


def test_the_dockerfile_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([linter, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout == ""


def test_the_compose_file_builds_what_is_there() -> None:
    for service in ("api", "worker"):
        build = COMPOSE["services"][service]["build"]
        context = (FOLDER / build["context"]).resolve()
        assert context == REPOSITORY
        assert (context / build["dockerfile"]).is_file()
    sources = [
        line.split()[1:-1] for line in (FOLDER / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]
    assert all((REPOSITORY / source).exists() for names in sources for source in names)


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


class ServerProcess:
    """The API server of the example."""

    def __init__(self, folder: Path, environment: dict[str, str], port: int) -> None:
        arguments = [argument for argument in command_of("api") if argument not in ("--host", "0.0.0.0")]
        command = [sys.executable, "-m", "baton", *arguments, "--port", str(port)]
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / f"server-{port}.log").open("wb")
        self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stderr=self._log)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._log.close()


async def start_run(url: str) -> str:
    """Start a run over HTTP, as soon as the server listens."""
    import aiohttp

    headers = {"Authorization": "Bearer token"}
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession(headers=headers) as session:
        while True:
            try:
                async with session.post(f"{url}/runs", json={"input": "Where is my order?"}) as answer:
                    assert answer.status in (200, 201, 202), await answer.text()
                    return (await answer.json())["id"]
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def until_completed(store: Store, run_id: str) -> None:
    async with asyncio.timeout(LIMIT):
        while (record := await store.record(run_id)) is None or record.status != "completed":
            assert record is None or record.status == "running", record.status
            await asyncio.sleep(0.05)


async def test_one_of_each_is_killed(database: PostgresServer, tmp_path: Path) -> None:
    # G15: the walk-through of docs/guides/workers.md.
    shutil.copy(FOLDER / "desk.py", tmp_path)
    environment = {"DESK_STORE": database.url, "DESK_TOKEN": "token", "DESK_SECONDS": "1"}
    name, *options = command_of("worker")
    assert name == "worker"
    arguments = [argument for argument in options if argument not in ("--health", "9100")]
    store = PostgresStore(database.url)
    with ExitStack() as stack:

        def serve() -> ServerProcess:
            server = ServerProcess(tmp_path, environment, free_port())
            stack.callback(server.close)
            return server

        workers = [
            stack.enter_context(WorkerProcess(*arguments, cwd=tmp_path, environment=environment)) for _ in range(2)
        ]
        server = serve()
        for worker in workers:
            await asyncio.to_thread(worker.wait_until_ready)
        # The API server: a worker takes its run over.
        run_id = await start_run(server.url)
        server.process.send_signal(signal.SIGKILL)
        await until_completed(store, run_id)
        # A worker.
        second = serve()
        run_id = await start_run(second.url)
        workers[0].kill()
        await until_completed(store, run_id)
        # The database.
        run_id = await start_run(second.url)
        await asyncio.to_thread(database.stop, crash=True)
        await asyncio.to_thread(database.start)
        await store.close()
        await until_completed(PostgresStore(database.url), run_id)
    await store.close()
