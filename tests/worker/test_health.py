"""The health and metrics endpoints of a worker."""

import asyncio
import socket

import pytest

from batonkit import Agent, Runner
from batonkit.errors import AddressError
from batonkit.testing import ScriptedModel
from batonkit.worker import Worker
from batonkit.worker.health import format_metrics, serve_health


@pytest.fixture(autouse=True)
def patient_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests take, and the engine be silent, for as long as a busy machine needs."""
    monkeypatch.setattr("batonkit.worker.health._REQUEST_SECONDS", 60.0)
    monkeypatch.setattr("batonkit.worker.local_engine._UNHEALTHY_AFTER", 600.0)


async def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def make_worker() -> Worker:
    return Worker(Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store="memory:"))


async def test_a_worker_reports_its_health_and_numbers() -> None:
    worker = make_worker()
    run_id = await worker.runner.submit("hi")
    async with serve_health(worker, port=0) as port:
        assert await get(port, "/healthz") == (200, "ok\n")
        await worker.drive(run_id)
        status, metrics = await get(port, "/metrics?x=1")
        assert (status, 'baton_worker_runs_total{outcome="completed"} 1' in metrics) == (200, True)
        assert metrics == format_metrics(worker)
        assert (await get(port, "/"))[0] == 404
        assert (await get(port, "/healthz", "POST"))[0] == 405
        assert await get(port, "/healthz", "HEAD") == (200, "")
        worker.stop()
        assert await get(port, "/healthz") == (503, "it is stopping\n")


async def test_every_metric_has_a_type_and_a_number() -> None:
    lines = format_metrics(make_worker()).splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert all(line.rpartition(" ")[2].isdigit() for line in values)
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.partition(" ")[0].partition("{")[0] for line in values} == typed


async def test_a_port_in_use_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AddressError, match="choose another --health port"):
            async with serve_health(make_worker(), port=taken.getsockname()[1]):
                pass
