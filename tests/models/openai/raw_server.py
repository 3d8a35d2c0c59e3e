"""A server that sends given bytes and records its requests."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from batonkit.models import Chunk, ModelRequest, ModelResponse, assemble_response
from batonkit.models.openai import OpenAIModel

CUT = "cut"
"""Close the connection without ending the body."""

HANG = "hang"
"""Send nothing more until the client disconnects."""

Step: TypeAlias = bytes | str | asyncio.Event


class RawRequest(NamedTuple):
    """One received request."""

    path: str
    headers: dict[str, str]
    header_names: list[str]
    body: Any


class RawServer:
    """A server with one reply per request, in order; a reply is bytes or a sequence of steps."""

    def __init__(self, *replies: bytes | Sequence[Step]) -> None:
        self._replies = list(replies)
        self.requests: list[RawRequest] = []
        self.connections = 0
        self.client_disconnected = asyncio.Event()
        """Set when a client disconnects during `HANG`."""

    @property
    def base_url(self) -> str:
        """Return the server's base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    def model(self, name: str = "gpt-test", **options: Any) -> OpenAIModel:
        """Create a model that connects to this server."""
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
        self.requests.append(RawRequest(head[0].split()[1], headers, names, json.loads(body) if body else None))
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
                self.client_disconnected.set()
                return False
        return True


def json_reply(body: Any, status: int = 200, **headers: str) -> bytes:
    """Create a reply with a content length; `body` is encoded as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {"content-type": "application/json", "content-length": str(len(data))}
    all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + data


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """Encode bytes as one HTTP chunk."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""


def event(payload: Any) -> bytes:
    """Encode an HTTP chunk with one event; a string is sent unchanged."""
    data = payload if isinstance(payload, str) else json.dumps(payload)
    return chunked(f"data: {data}\n\n".encode())


def stream(*payloads: Any) -> bytes:
    """Create a streamed reply of these events."""
    return STREAM + b"".join(map(event, payloads)) + END


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """Create one chunk of Chat Completions."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


async def read_chunks(model: OpenAIModel, request: ModelRequest) -> list[Chunk]:
    """Return all chunks of a response."""
    return [chunk async for chunk in model.respond(request)]


async def read_response(model: OpenAIModel, request: ModelRequest) -> ModelResponse:
    """Return the assembled response."""
    return assemble_response(await read_chunks(model, request))
