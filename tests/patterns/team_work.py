"""What tests of patterns share: a tool that asks, one that fails, and a run taken up again in a fresh runner."""

from collections.abc import Callable
from typing import Any

from baton import RunContext, Runner, tool
from baton.events import decode_log, encode_log
from baton.runner import RunResult


@tool
async def ask(ctx: RunContext[Any], question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool(on_error="raise")
async def fail() -> str:
    """Fail."""
    raise OSError("disk full")


async def taken_up(
    make: Callable[[], Runner[Any, Any]], stopped: RunResult[Any], answers: dict[str, Any]
) -> RunResult[Any]:
    """The run gone on with in a new runner, over the log as it was written and read back."""
    runner = make()
    run_id = runner.load_log(decode_log(encode_log(stopped.events)))
    return await runner.resume(run_id, answers)
