"""Guardrails and models for tests of guardrails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batonkit import RunContext, Runner, RunResult, tool
from batonkit.models import Chunk, ModelRequest, ModelResponse


class RecordingGuardrail:
    """A guardrail that records what it checks and returns the given verdicts in order, repeating the last one."""

    def __init__(self, name: str, *verdicts: Any) -> None:
        self.name = name
        self.verdicts = list(verdicts) or [True]
        self.seen: list[Any] = []

    async def __call__(self, ctx: RunContext[Any], checked: Any) -> Any:
        self.seen.append(checked)
        verdict = self.verdicts[min(len(self.seen), len(self.verdicts)) - 1]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


class HangingModel:
    """A model whose response never arrives; it waits until its stream is closed."""

    name = "hanging"

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.is_closed = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            self.is_called.set()
            await asyncio.Event().wait()
            yield ModelResponse()
        finally:
            self.is_closed.set()


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


async def run_to_failure(runner: Runner[Any, Any], input: str = "go") -> tuple[Exception, RunResult[Any]]:
    """Run until it fails; return the error and the result."""
    stream = runner.stream(input)
    with pytest.raises(Exception) as caught:
        await stream._drive()
    return caught.value, stream.result
