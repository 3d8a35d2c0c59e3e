"""A server of short runs: `python -m benchmarks.serving.server APP STORE SECONDS`.

Prints its port and serves until its standard input is closed. At /cpu it says how much CPU time it has used. STORE is
the address of a store or, for the app `starlette`, a file with the frames to stream. The model takes SECONDS to answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from batonkit import Agent, Runner, tool
from batonkit.messages import AssistantMessage, ToolCall, UserMessage
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk
from batonkit.serve import agui_app, api_app
from batonkit.serve.server import listen, run_server

ANSWER = ("It is ", "sunny ", "in Beijing.")


@tool(in_thread=False, effect="read")
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sunny in {city}"


class Forecaster:
    """Calls the tool, then answers in three pieces."""

    name = "forecaster"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        if isinstance(request.messages[-1], UserMessage):
            call = ToolCall("c1", "get_weather", '{"city":"Beijing"}')
            yield ModelResponse(AssistantMessage(tool_calls=(call,)), stop_reason="tool_calls")
            return
        for piece in ANSWER:
            if self._seconds:
                await asyncio.sleep(self._seconds / len(ANSWER))
            yield TextChunk(piece)
        yield ModelResponse(stop_reason="stop")


def make_app(kind: str, store: str, seconds: float) -> Any:
    """Return the app to measure."""
    if kind == "starlette":
        return _bare_app(Path(store).read_bytes().split(b"\n\n")[:-1], seconds)
    agent = Agent("Weather", model=Forecaster(seconds), tools=[get_weather])
    return {"agui": agui_app, "api": api_app}[kind](Runner(agent, store=store))


def _bare_app(frames: list[bytes], seconds: float) -> Starlette:
    async def stream(request: Request) -> Response:
        await request.json()

        async def body() -> AsyncGenerator[bytes]:
            await asyncio.sleep(seconds)
            for frame in frames:
                yield frame + b"\n\n"

        return StreamingResponse(body(), media_type="text/event-stream")

    return Starlette(routes=[Route("/", stream, methods=["POST"])])


def with_cpu_time(app: Any) -> Any:
    """Return the app, and beside it what its process has used."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/cpu":
            await app(scope, receive, send)
            return
        body = repr(time.process_time()).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return wrapped


def stop_with_input() -> None:
    """Stop the server when the program that started it ends."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(kind: str, store: str, seconds: str) -> None:
    """Serve one app."""
    threading.Thread(target=stop_with_input, daemon=True).start()
    with listen("127.0.0.1", 0) as sockets:
        port = sockets[0].getsockname()[1]
        app = with_cpu_time(make_app(kind, store, float(seconds)))
        run_server(app, sockets, drain=1, on_ready=lambda: print(port, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
