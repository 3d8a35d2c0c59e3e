"""`python -m benchmarks.tracing`: a tool loop without and with tracing, beside a bare loop over dicts.

CPU time per model call of the bare loop, of Baton without an observer, and per span of Baton with `OTelObserver` and
the SDK's in-memory exporter. It exits with 1 if a span costs more than 12 times a call of the bare loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import click
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonkit import Agent, Limits, Runner, tool
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import CompleteResponse, ModelRequest, ModelResponse
from batonkit.otel import OTelObserver

TURNS = 200
MOST_FOR_A_SPAN = 12.0


class Steps:
    """A model that calls a tool in each turn but the last."""

    name = "stub"

    def __init__(self) -> None:
        self.turn = 0

    def respond(self, request: ModelRequest) -> CompleteResponse:
        self.turn += 1
        calls = () if self.turn == TURNS else (ToolCall(f"c{self.turn}", "look", '{"number":1}'),)
        return CompleteResponse(ModelResponse(AssistantMessage("" if calls else "done", calls)))


@tool(in_thread=False)
def look(number: int) -> str:
    """Look something up."""
    return "found"


async def bare() -> None:
    """Run the same loop over dicts, without anything else."""

    async def answer(turn: int) -> tuple[str, list[dict[str, str]]]:
        return "", [] if turn == TURNS else [{"id": f"c{turn}", "name": "look", "arguments": '{"number":1}'}]

    async def call_look(number: int) -> str:
        return "found"

    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for turn in range(1, TURNS + 1):
        text, calls = await answer(turn)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        for call in calls:
            content = await call_look(**json.loads(call["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


def runs(observer: OTelObserver | None) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function that runs the loop with Baton."""
    observers = [] if observer is None else [observer]
    agent = Agent("Clerk", tools=[look], max_turns=TURNS + 1)

    async def run() -> None:
        runner = Runner(agent, model=Steps(), limits=Limits(model_calls=None), observers=observers)
        assert (await runner.run("go")).output == "done"

    return run


def cpu(work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Return the CPU seconds of one run, without the collection of garbage."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        asyncio.run(work())
        return time.process_time() - start
    finally:
        gc.enable()


def exporting(*, measures: bool) -> tuple[InMemorySpanExporter, OTelObserver]:
    """Return the SDK's in-memory exporter and an observer that sends its spans there."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return kept, OTelObserver(provider, MeterProvider([InMemoryMetricReader()]) if measures else None)


@click.command()
@click.option("--rounds", default=25, help="How often to run each of the loops.")
def main(rounds: int) -> None:
    """Measure a tool loop without and with tracing."""
    (kept, spans), (also_kept, measured) = exporting(measures=False), exporting(measures=True)
    loops = {"bare": bare, "off": runs(None), "spans": runs(spans), "metrics": runs(measured)}
    found: dict[str, float] = dict.fromkeys(loops, float("inf"))
    count = 0
    # In turns, and the fastest of each: other programs use the machine as well.
    for _ in range(rounds):
        for name, work in loops.items():
            found[name] = min(found[name], cpu(work) / TURNS * 1e6)
        count = len(kept.get_finished_spans())
        kept.clear()
        also_kept.clear()
    bare_call, off = found["bare"], found["off"]
    click.echo(f"CPU per model call: {bare_call:.1f} µs in a bare loop, {off:.1f} µs with Baton")
    ratios: dict[str, float] = {}
    for name, title in (("spans", "spans"), ("metrics", "spans and metrics")):
        span = (found[name] - off) * TURNS / count
        ratios[name] = span / bare_call
        click.echo(f"with {title}: {found[name]:.1f} µs; {span:.1f} µs per span, {ratios[name]:.1f}x of a bare call")
    click.echo(f"{count} spans; at most {MOST_FOR_A_SPAN:g}x without metrics")
    if ratios["spans"] > MOST_FOR_A_SPAN:
        sys.exit(1)


if __name__ == "__main__":
    main()
