"""The cost of tracing for runs that are not traced, counted in function calls instead of time."""

import asyncio
import gc
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import batonkit
from batonkit import Agent, Runner, tool
from batonkit.testing import ScriptedModel, call

SOURCE = Path(batonkit.__file__).parent
TRACING = tuple(str(SOURCE / name) for name in ("otel", "agents/tracing.py", "models/prices.py", "propagation.py"))


@tool(in_thread=False)
def look() -> str:
    """Look."""
    return "found"


def called_files(turns: int, **options: Any) -> Counter[str]:
    """Return how many functions of each file a run calls; those of C are counted under ""."""
    counted: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted[frame.f_code.co_filename if event == "call" else ""] += 1

    async def run() -> None:
        agent = Agent("A", tools=[look], max_turns=turns + 1)
        runner = Runner(agent, model=ScriptedModel([*[call("look") for _ in range(turns)], "done"]), **options)
        sys.setprofile(note)
        try:
            await runner.run("hi")
        finally:
            sys.setprofile(None)

    # The finalizers of what other tests left would be counted, too.
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
    return counted


def test_a_run_without_an_observer_calls_nothing_of_tracing_and_prices() -> None:
    called_files(3)
    counted = called_files(30)
    assert [name for name in counted if name.startswith(TRACING)] == []


def test_prices_cost_no_calls_for_responses_without_usage() -> None:
    called_files(3)
    without, with_prices = called_files(30, prices=False), called_files(30)
    assert without == with_prices
