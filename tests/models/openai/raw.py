"""A server that sends the very bytes it is told to, and keeps what it was sent."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from baton.models import Chunk, ModelRequest, ModelResponse, assemble_response
from baton.models.openai import OpenAIModel

CUT = "cut"
"""Ends the connection there, without the end of the body."""

HANG = "hang"
"""Sends nothing more until the client goes away."""

Step: TypeAlias = bytes | str | asyncio.Event


class Asked(NamedTuple):
    """One request as it came."""

    path: str
    headers: dict[str, str]
    header_names: list[str]
    body: Any


class RawServer:
    """Gives these replies in order, one for each request; each is bytes, or steps on the way."""

    def __init__(self, *replies: bytes | Sequence[Step]) -> None:
        self._replies = list(replies)
        self.asked: list[Asked] = []
        self.connections = 0
        self.left = asyncio.Event()
        """Set when a client goes away that was left waiting."""

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._port}/v1"

    def model(self, name: str = "gpt-test", **options: Any) -> OpenAIModel:
        """A model that speaks to it."""
        return OpenAIModel(name, base_url=self.base_url, api_key="key", **options)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        names = [line.partition(":")[0].lower() for line in head[1:] if line]
        self.asked.append(Asked(head[0].split()[1], headers, names, json.loads(body) if body else None))
        reply = self._replies.pop(0)
        for step in [reply] if isinstance(reply, bytes) else reply:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == CUT:
                return False
            else:
                await reader.read(1)
                self.left.set()
                return False
        return True


def whole(body: Any, status: int = 200, **headers: str) -> bytes:
    """A reply with a length; `body` is JSON, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": "application/json", "content-length": str(len(data))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + data


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """Bytes as one chunk of a body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""


def event(payload: Any) -> bytes:
    """A chunk with one event; a string is sent as it is."""
    data = payload if isinstance(payload, str) else json.dumps(payload)
    return chunked(f"data: {data}\n\n".encode())


def stream(*payloads: Any) -> bytes:
    """A reply of these events."""
    return STREAM + b"".join(map(event, payloads)) + END


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of Chat Completions."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


async def heard(model: OpenAIModel, request: ModelRequest) -> list[Chunk]:
    """Every chunk of an answer."""
    return [chunk async for chunk in model.respond(request)]


async def answered(model: OpenAIModel, request: ModelRequest) -> ModelResponse:
    """The whole answer."""
    return assemble_response(await heard(model, request))
