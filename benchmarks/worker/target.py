"""The team that the measured workers drive; an environment variable names its store."""

import asyncio
import os
from typing import Any

from batonkit import Runner
from batonkit.agents import agent
from batonkit.stores import resolve_store

STORE = "BATON_BENCH_STORE"
CALL_SECONDS = 0.3
"""The duration of a simulated model call."""
CALLS = 3
LEASE = 3.0


@agent("Measured")
async def measured(ctx: Any) -> None:
    """Do what the input says: answer at once, ask, call a model three times, or take long."""
    match ctx.messages()[-1].content:
        case "ask":
            await ctx.interrupt({"question": "Go on?"})
            await ctx.step("resumed", lambda: True)
        case "work":
            for number in range(CALLS):
                await ctx.step(f"call {number}", lambda: asyncio.sleep(CALL_SECONDS))
        case "long":
            await ctx.step("begun", lambda: True)
            await ctx.step("long", lambda: asyncio.sleep(3600))
        case _:
            await ctx.say("done")


def make_runner(store: str) -> Runner[Any, Any]:
    """Return a runner of the team."""
    return Runner(measured, store=resolve_store(store, lease_seconds=LEASE))


if STORE in os.environ:
    runner = make_runner(os.environ[STORE])
