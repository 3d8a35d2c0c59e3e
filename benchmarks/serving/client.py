"""A client that sends runs over connections that stay open, and checks that each run arrives to its end."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RUN_ID = re.compile(rb'"id":"([^"]+)"')


@dataclass(slots=True)
class Connection:
    """One connection; a request is sent when the response to the last one has been read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the body of a response, with the sizes of its chunks."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        self.writer.write(head.encode() + b"content-type: application/json\r\naccept: text/event-stream\r\n\r\n" + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise AssertionError(f"{method} {path}: {head.decode()}")
        length = _LENGTH.search(head)
        if length is not None:
            return await self.reader.readexactly(int(length[1]))
        return await self.reader.readuntil(b"0\r\n\r\n")


Send = Callable[[Connection, int], Awaitable[bytes]]
"""Sends the run with a number, and returns its events."""


async def run_agui(connection: Connection, number: int) -> bytes:
    message = {"id": f"m{number}", "role": "user", "content": "How is the weather in Beijing?"}
    request = {"threadId": f"t{number}", "runId": f"r{number}", "messages": [message]}
    rest: dict[str, object] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return await connection.request("POST", "/", json.dumps(request | rest).encode())


async def run_api(connection: Connection, number: int) -> bytes:
    body = json.dumps({"input": "How is the weather in Beijing?"}).encode()
    run_id = _RUN_ID.search(await connection.request("POST", "/runs", body))
    assert run_id is not None
    return await connection.request("GET", f"/runs/{run_id[1].decode()}/events")


CLIENTS: dict[str, tuple[Send, bytes]] = {
    "starlette": (run_agui, b"RUN_FINISHED"),
    "agui": (run_agui, b"RUN_FINISHED"),
    "api": (run_api, b"RunCompleted"),
}
"""For each app: how to run something, and what its last event contains."""


@asynccontextmanager
async def connected(port: int, connections: int) -> AsyncGenerator[list[Connection]]:
    """Open some connections."""
    async with AsyncExitStack() as stack:
        opened: list[Connection] = []
        for _ in range(connections):
            connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
            stack.callback(connection.writer.close)
            opened.append(connection)
        yield opened


async def send_runs(app: str, connections: list[Connection], runs: int, numbers: Iterator[int]) -> list[float]:
    """Send runs over all connections at once; return the seconds that each took."""
    send, end = CLIENTS[app]
    remaining = count(runs, -1)
    seconds: list[float] = []

    async def send_all(connection: Connection) -> None:
        while next(remaining) > 0:
            started = time.perf_counter()
            received = await send(connection, next(numbers))
            seconds.append(time.perf_counter() - started)
            if end not in received:
                raise AssertionError(f"{app}: a run has no {end.decode()}: {received.decode()}")

    await asyncio.gather(*(send_all(connection) for connection in connections))
    return seconds


async def cpu_seconds(connection: Connection) -> float:
    """Return the CPU time that the server has used."""
    return float(await connection.request("GET", "/cpu"))
