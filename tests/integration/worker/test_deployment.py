"""The deployment example: its Dockerfile is valid, and its commands, as processes, survive the death of each one."""

import asyncio
import json
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
from tests.integration.worker.processes import REPOSITORY, WorkerProcess
from tests.ports import free_port
from tests.postgres import PostgresServer

from batonkit.stores import PostgresStore, Store

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
    assert COMPOSE["services"].keys() == {"database", "api", "worker", "studio"}
    assert COMPOSE["services"]["worker"]["deploy"]["replicas"] == 2
    for service in ("api", "worker", "studio"):
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
    """The API server of the example, or Studio, with the API below `api`."""

    def __init__(self, service: str, folder: Path, environment: dict[str, str]) -> None:
        arguments, port = command_of(service), free_port()
        for option in ("--host", "--port"):
            if option in arguments:
                place = arguments.index(option)
                del arguments[place : place + 2]
        command = [sys.executable, "-m", "batonkit", *arguments, "--port", str(port)]
        self.url = f"http://127.0.0.1:{port}"
        self.api = f"{self.url}/api" if service == "studio" else self.url
        self._log = (folder / f"server-{port}.log").open("wb")
        self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stderr=self._log)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._log.close()


async def request(url: str, **options: Any) -> str:
    """Send a request as soon as the server listens; POST if there is a body."""
    import aiohttp

    headers, method = {"Authorization": "Bearer token"}, "POST" if options else "GET"
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession(headers=headers) as session:
        while True:
            try:
                async with session.request(method, url, **options) as answer:
                    assert answer.status in (200, 201, 202), await answer.text()
                    return await answer.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def start_run(server: ServerProcess) -> str:
    """Start a run over HTTP."""
    return json.loads(await request(f"{server.api}/runs", json={"input": "Where is my order?"}))["id"]


async def submit_runs(count: int, folder: Path, environment: dict[str, str]) -> list[str]:
    """Submit runs that workers drive, in another process."""
    program = (
        "import asyncio\nfrom desk import runner\n"
        f"async def main():\n    for _ in range({count}):\n        print(await runner.submit('Where is my order?'))\n"
        "    await runner.close()\nasyncio.run(main())"
    )
    command = [sys.executable, "-c", program]
    submitted = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True
    )
    return submitted.stdout.decode().split()


async def until_completed(store: Store, run_id: str) -> None:
    async with asyncio.timeout(LIMIT):
        while (record := await store.record(run_id)) is None or record.status != "completed":
            assert record is None or record.status == "running", record.status
            await asyncio.sleep(0.05)


async def test_one_of_each_is_killed(database: PostgresServer, tmp_path: Path) -> None:
    # The walk-through of docs/guides/workers.md.
    shutil.copy(FOLDER / "desk.py", tmp_path)
    environment = {"DESK_STORE": database.url, "DESK_TOKEN": "token", "DESK_SECONDS": "1"}
    name, *options = command_of("worker")
    assert name == "worker"
    arguments = [argument for argument in options if argument not in ("--health", "9100")]
    store = PostgresStore(database.url)
    with ExitStack() as stack:

        def serve(service: str) -> ServerProcess:
            server = ServerProcess(service, tmp_path, environment)
            stack.callback(server.close)
            return server

        workers = [
            stack.enter_context(WorkerProcess(*arguments, cwd=tmp_path, environment=environment)) for _ in range(2)
        ]
        server, studio = serve("api"), serve("studio")
        for worker in workers:
            await asyncio.to_thread(worker.wait_until_ready)
        # The API server: a worker takes its run over.
        run_id = await start_run(server)
        server.process.send_signal(signal.SIGKILL)
        await until_completed(store, run_id)
        # Studio: the same, and the next one shows the run.
        assert "<title>" in await request(f"{studio.url}/?token=token")
        run_id = await start_run(studio)
        studio.process.send_signal(signal.SIGKILL)
        await until_completed(store, run_id)
        shown = json.loads(await request(f"{serve('studio').api}/runs/{run_id}"))
        assert (shown["status"], shown["output"]) == ("completed", "Your order was shipped yesterday.")
        # A worker, while both have runs.
        run_ids = await submit_runs(6, tmp_path, environment)
        async with asyncio.timeout(LIMIT):
            while (await store.list(status=["running"])).records and not all(
                [(await store.load(run_id))[2:] for run_id in run_ids]
            ):
                await asyncio.sleep(0.02)
        workers[0].kill()
        for run_id in run_ids:
            await until_completed(store, run_id)
        second = serve("api")
        # The database.
        run_id = await start_run(second)
        await asyncio.to_thread(database.stop, crash=True)
        await asyncio.to_thread(database.start)
        await store.close()
        await until_completed(PostgresStore(database.url), run_id)
    await store.close()
