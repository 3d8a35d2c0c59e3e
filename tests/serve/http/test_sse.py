"""Responses that stream frames: their end, disconnects and the shutdown of the server."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from batonkit.serve.http.application import SHUTDOWN, Shutdown
from batonkit.serve.http.sse import RECONNECT, SSEResponse


class Client:
    """An ASGI server with one client, which disconnects when a test says so."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self.received: list[bytes] = []
        self.is_complete = False
        self.first_frame = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.received.append(message["body"])
            self.is_complete = not message["more_body"]
            self.first_frame.set()


class Frames:
    """A stream that ends when a test says so, and knows whether it was closed."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self.is_closed = False

    async def __call__(self) -> AsyncGenerator[bytes]:
        try:
            yield b"one"
            await self.ends.wait()
            yield b"two"
        finally:
            self.is_closed = True


class NothingDriven:
    async def drain(self, seconds: float = 10.0) -> None: ...

    async def release_all(self) -> None: ...


def scope(shutdown: Shutdown | None = None) -> dict[str, Any]:
    return {"type": "http", "state": {} if shutdown is None else {SHUTDOWN: shutdown}}


async def test_a_stream_is_sent_to_its_end() -> None:
    client, frames, left = Client(), Frames(), list[str]()
    frames.ends.set()

    await SSEResponse(frames(), on_disconnect=lambda: left.append("left"))(scope(), client.receive, client.send)

    assert client.received == [b"one", b"two", b""]
    assert client.is_complete
    assert frames.is_closed
    # Servers also report the end of the response as a disconnect.
    client.leaves.set()
    await asyncio.sleep(0)
    assert left == []


async def test_a_disconnect_closes_a_stream_that_waits() -> None:
    client, frames, left = Client(), Frames(), list[str]()
    response = SSEResponse(frames(), on_disconnect=lambda: left.append("left"))
    answering = asyncio.create_task(response(scope(), client.receive, client.send))
    await client.first_frame.wait()

    client.leaves.set()
    await answering

    assert frames.is_closed
    assert left == ["left"]
    assert client.received == [b"one"]
    assert not client.is_complete


async def test_a_disconnect_closes_a_stream_whose_client_does_not_read() -> None:
    client, frames = Client(), Frames()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            client.first_frame.set()
            await asyncio.Event().wait()

    answering = asyncio.create_task(SSEResponse(frames())(scope(), client.receive, send))
    await client.first_frame.wait()

    client.leaves.set()
    await answering

    assert frames.is_closed


async def test_a_server_that_raises_for_a_lost_client_has_it_reported_once() -> None:
    client, frames, left = Client(), Frames(), list[str]()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            client.leaves.set()
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await SSEResponse(frames(), on_disconnect=lambda: left.append("left"))(scope(), client.receive, send)

    await asyncio.sleep(0)
    assert frames.is_closed
    assert left == ["left"]


async def test_a_shutdown_ends_a_stream_and_asks_the_client_to_reconnect() -> None:
    client, frames, shutdown = Client(), Frames(), Shutdown(NothingDriven())
    response = SSEResponse(frames(), on_shutdown=lambda: [b"last"])
    answering = asyncio.create_task(response(scope(shutdown), client.receive, client.send))
    await client.first_frame.wait()

    await shutdown.run(1)
    await answering

    assert client.received == [b"one", b"last" + RECONNECT, b""]
    assert frames.is_closed


async def test_a_stream_that_begins_during_the_shutdown_ends_at_once() -> None:
    client, frames, shutdown = Client(), Frames(), Shutdown(NothingDriven())
    await shutdown.run(1)

    await SSEResponse(frames())(scope(shutdown), client.receive, client.send)

    assert client.received[-2:] == [RECONNECT, b""]


async def test_a_timeout_inside_a_stream_is_not_taken_for_a_disconnect() -> None:
    client, left = Client(), list[str]()

    async def fails() -> AsyncGenerator[bytes]:
        yield b"one"
        raise TimeoutError("the store did not answer")

    with pytest.raises(TimeoutError, match="the store did not answer"):
        await SSEResponse(fails(), on_disconnect=lambda: left.append("left"))(scope(), client.receive, client.send)

    assert left == []
