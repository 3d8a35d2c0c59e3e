"""A service whose model streams as many tokens as it is told: `python -m benchmarks.a2a.server FOLDER`.

Prints its port and serves until its standard input is closed. At /cpu it says how much CPU time it has used.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import uvicorn

from batonkit import Agent, Runner
from batonkit.messages import text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk
from batonkit.serve.a2a import a2a_app

PACE = 0.001
"""Seconds between tokens: faster than models are, so that little of what is measured is waiting."""


class Talkative:
    """Says as many words as the last message asks for, one at a time."""

    name = "talkative"

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        for number in range(int(text_of(request.messages[-1].content))):
            yield TextChunk(f"{number} ")
            await asyncio.sleep(PACE)
        yield ModelResponse(stop_reason="stop")


def app_in(folder: Path) -> Any:
    """The service, and beside it what it has used."""
    service = a2a_app(Runner(Agent("Talker", description="Talks.", model=Talkative()), store=folder / "runs.db"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/cpu":
            await service(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": repr(time.process_time()).encode()})

    return app


async def serve(folder: Path) -> None:
    """Serve until standard input ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app_in(folder), log_level="error", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listening]))
        print(listening.getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
