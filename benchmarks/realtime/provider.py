"""The provider's process, as the process that measures sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict

from batonkit import Limits
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from batonkit.realtime.openai import OpenAIRealtimeModel
from benchmarks.realtime.serving import Kind

_REPOSITORY = Path(__file__).parents[2]
_MOST_BYTES = 64 * 1024 * 1024


class Account(TypedDict):
    """The counts of the provider for one session."""

    received: int
    received_digest: str
    frames: int
    sent: dict[str, tuple[int, str, bool]]
    """By item: how many bytes, their digest, and whether it was said to its end, and not interrupted."""
    changes: int
    since_arguments: list[float]
    since_done: list[float]
    complaints: list[str]


class Report(TypedDict):
    """The counts of the provider, and its CPU time."""

    sessions: list[Account]
    cpu: float


class Provider:
    """A provider in another process."""

    def __init__(self, process: asyncio.subprocess.Process, base_url: str) -> None:
        self._process = process
        self.base_url = base_url

    async def report(self) -> Report:
        """Return the counts since the last report, once all conversations are closed."""
        return json.loads(await self._answer(b"report\n"))

    async def quiet(self) -> tuple[int, int]:
        """Return when it says nothing: how many events went and came until then."""
        went, came = json.loads(await self._answer(b"quiet\n"))
        return went, came

    async def _answer(self, wish: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(wish)
        return await self._process.stdout.readline()


@asynccontextmanager
async def provider_for(kind: Kind, *, pace: float = 0.0) -> AsyncGenerator[Provider]:
    """A provider that speaks so many times as fast as one can listen, or as fast as it can."""
    command = [sys.executable, "-m", "benchmarks.realtime.serving", kind, str(pace)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, cwd=_REPOSITORY, limit=_MOST_BYTES
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        base_url = (await process.stdout.readline()).decode().strip()
        yield Provider(process, base_url)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def desk(base_url: str, manners: RealtimeSettings) -> RealtimeRunner:
    """Two agents that can hand over to each other, and the provider as their model."""
    b = RealtimeAgent(
        "B",
        description="The other.",
        instructions="b",
        handoffs=[realtime_handoff("A", tool_name_override="transfer_to_a")],
    )
    a = RealtimeAgent(
        "A",
        description="The one.",
        instructions="a",
        handoffs=[realtime_handoff(b, tool_name_override="transfer_to_b")],
    )
    model = OpenAIRealtimeModel(api_key="test-key", base_url=base_url)
    limits = Limits(model_calls=None, transfers=None, idle_cycles=None)
    return RealtimeRunner(a, model=model, settings=manners, limits=limits)
