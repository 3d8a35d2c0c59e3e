"""Guardrails and models for tests of guardrails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from baton import RunContext, Runner, RunResult, tool
from baton.models import Chunk, ModelRequest, ModelResponse


class Judge:
    """A guardrail that keeps what it was shown, and says what it was told to say: the last of it from then on."""

    def __init__(self, name: str, *rulings: Any) -> None:
        self.name = name
        self.rulings = list(rulings) or [True]
        self.seen: list[Any] = []

    async def __call__(self, ctx: RunContext[Any], given: Any) -> Any:
        self.seen.append(given)
        ruling = self.rulings[min(len(self.seen), len(self.rulings)) - 1]
        if isinstance(ruling, Exception):
            raise ruling
        return ruling


class Hanging:
    """A model that begins to answer and then waits for ever, until it is closed."""

    name = "hanging"

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_closed = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            self.is_asked.set()
            await asyncio.Event().wait()
            yield ModelResponse()
        finally:
            self.is_closed.set()


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


async def failure_of(runner: Runner[Any, Any], input: str = "go") -> tuple[Exception, RunResult[Any]]:
    """What ends a run, and where it stands then."""
    live = runner.stream(input)
    with pytest.raises(Exception) as caught:
        await live._drive()
    return caught.value, live.result
