"""Helpers for tests of patterns: a tool that interrupts, one that fails, and resuming in a new runner."""

from collections.abc import Callable
from typing import Any

from batonkit import RunContext, Runner, tool
from batonkit.log import decode_log, encode_log
from batonkit.runs import RunResult


@tool
async def ask(ctx: RunContext[Any], question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool(on_error="raise")
async def fail() -> str:
    """Fail."""
    raise OSError("disk full")


async def resume_in_new_runner(
    make: Callable[[], Runner[Any, Any]], suspended: RunResult[Any], answers: dict[str, Any]
) -> RunResult[Any]:
    """Resume a run in a new runner that has only the encoded log."""
    runner = make()
    run_id = await runner.runs.load(decode_log(encode_log(suspended.events)))
    return await runner.resume(run_id, answers)
