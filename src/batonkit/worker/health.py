"""The health and metrics endpoints of a worker: plain HTTP on one port, without a web framework."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import asdict

from ..errors import AddressError
from .worker import Worker

_logger = logging.getLogger("baton.worker")
_MAX_REQUEST = 8192
_REQUEST_SECONDS = 5.0


def format_metrics(worker: Worker) -> str:
    """Return the numbers of a worker in the text format of Prometheus."""
    lines = [
        "# HELP baton_worker_runs_driving Runs that this worker drives now.",
        "# TYPE baton_worker_runs_driving gauge",
        f"baton_worker_runs_driving {len(worker.driving)}",
        "# HELP baton_worker_concurrency Runs that this worker may drive at once.",
        "# TYPE baton_worker_concurrency gauge",
        f"baton_worker_concurrency {worker.concurrency}",
        "# HELP baton_worker_up Whether the worker takes runs.",
        "# TYPE baton_worker_up gauge",
        f"baton_worker_up {int(not health_problem(worker))}",
        "# HELP baton_worker_runs_total Deliveries of runs by their outcome.",
        "# TYPE baton_worker_runs_total counter",
    ]
    lines += [f'baton_worker_runs_total{{outcome="{name}"}} {count}' for name, count in asdict(worker.counts).items()]
    return "\n".join(lines) + "\n"


def health_problem(worker: Worker) -> str:
    """Return why a worker does not take runs; "" if it does."""
    return "it is stopping" if worker.is_stopping else worker.engine.problem()


@asynccontextmanager
async def serve_health(worker: Worker, *, host: str = "127.0.0.1", port: int) -> AsyncGenerator[int]:
    """Serve `/healthz` and `/metrics` while a block runs; yields the port.

    Raises:
        AddressError: The address is invalid or in use.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_respond(worker, request))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            _logger.debug("a request for the health of the worker was not completed", exc_info=True)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(handle, host, port, limit=_MAX_REQUEST)
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AddressError(f"cannot listen on `{host}`, port {port}: {reason}; choose another --health port") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _respond(worker: Worker, request: bytes) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    problem = health_problem(worker)
    match path:
        case _ if method not in (b"GET", b"HEAD"):
            status = "405 Method Not Allowed"
            body = "use GET\n"
        case b"/healthz":
            status = "503 Service Unavailable" if problem else "200 OK"
            body = f"{problem or 'ok'}\n"
        case b"/metrics":
            status = "200 OK"
            body = format_metrics(worker)
        case _:
            status = "404 Not Found"
            body = "there are /healthz and /metrics\n"
    content = body.encode()
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else content)
