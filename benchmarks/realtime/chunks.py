"""The cost of one piece of audio in the client, sent and received, without the socket."""

from __future__ import annotations

import asyncio
import gc
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from batonkit.realtime import AudioCompleted, AudioDelta, RealtimeAgent, RealtimeRunner, RealtimeSession
from batonkit.realtime.openai import OpenAIRealtimeModel

_CHUNK = bytes(range(240)) * 8
"""40 milliseconds of 24 kHz."""
_CHUNKS = 4000
_encode = msgspec.json.Encoder().encode


class _Socket:
    """Where the SDK's connection would be: it has read what the provider will have sent, and takes what is sent."""

    def __init__(self) -> None:
        self.sent = 0
        self._frames = _opening()
        self._more: asyncio.Future[None] | None = None

    async def recv_bytes(self) -> bytes:
        while True:
            frame = next(self._frames, None)
            if frame is not None:
                return frame
            self._more = asyncio.get_running_loop().create_future()
            await self._more

    async def send_raw(self, frame: str) -> None:
        self.sent += 1

    async def close(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.cancel()

    def speak(self, frames: list[bytes]) -> None:
        self._frames = iter(frames)
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class _Client:
    """As much of OpenAI's client as is needed to be given a connection."""

    def __init__(self, socket: _Socket) -> None:
        self._socket = socket
        self.realtime = self

    def connect(self, **_: Any) -> _Client:
        return self

    async def enter(self) -> _Socket:
        return self._socket


async def chunk_costs(rounds: int) -> dict[str, float]:
    """Microseconds of CPU time for a piece that comes, and for one that is sent; the least of several rounds."""
    socket = _Socket()
    model = OpenAIRealtimeModel(client=cast("Any", _Client(socket)))
    runner = RealtimeRunner(RealtimeAgent("A"), model=model)
    heard: list[float] = []
    said: list[float] = []
    async with runner.connect() as session:
        for number in range(rounds):
            frames = _response(number)
            gc.collect()
            began = time.process_time()
            socket.speak(frames)
            await _listened(session)
            heard.append((time.process_time() - began) / _CHUNKS)
            before = socket.sent
            began = time.process_time()
            for _ in range(_CHUNKS):
                await session.send_audio(_CHUNK)
            said.append((time.process_time() - began) / _CHUNKS)
            assert socket.sent == before + _CHUNKS
    return {"heard": min(heard) * 1e6, "said": min(said) * 1e6}


async def _listened(session: RealtimeSession) -> None:
    pieces = 0
    async for event in session:
        if isinstance(event, AudioDelta):
            pieces += 1
        elif isinstance(event, AudioCompleted):
            break
    assert pieces == _CHUNKS


def _opening() -> Iterator[bytes]:
    yield _encode({"type": "session.created", "event_id": "e1", "session": {"id": "s"}})
    yield _encode({"type": "session.updated", "event_id": "e2", "session": {"id": "s"}})


def _response(number: int) -> list[bytes]:
    """A response as OpenAI sends it, of many pieces of audio."""
    where = {"response_id": f"r{number}", "item_id": f"i{number}", "output_index": 0, "content_index": 0}
    audio = b64encode(_CHUNK).decode()
    kind = "response.output_audio.delta"
    pieces = [{"type": kind, "event_id": f"e{number}_{place}", **where, "delta": audio} for place in range(_CHUNKS)]
    begun = {"type": "response.created", "event_id": f"b{number}", "response": {"id": f"r{number}"}}
    done = {"type": "response.output_audio.done", "event_id": f"d{number}", **where}
    part = {"type": "output_audio", "transcript": "so much for that"}
    item = {"id": f"i{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": f"r{number}", "status": "completed", "output": [item]}
    ended = {"type": "response.done", "event_id": f"x{number}", "response": response}
    return [_encode(event) for event in (begun, *pieces, done, ended)]
