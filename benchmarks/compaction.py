"""`python -m benchmarks.compaction`: an activation of 2,000 turns whose history is compacted.

CPU time per turn at the beginning and at the end, the longest prompt, and resumes from sampled points of the log. It
exits with 1 if the last 100 turns cost more than 1.2 times the first 100, or if a prompt is longer than the limit.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from random import Random

import click

from batonkit import Agent, Limits, RunContext, Runner, tool
from batonkit.agents import Compaction
from batonkit.log import Event, HistoryCompacted, decode_log, encode_log
from batonkit.messages import AssistantMessage, Message, ToolCall, estimate_tokens
from batonkit.models import Chunk, ModelRequest, ModelResponse

TURNS, AT_TOKENS, KEEP_LAST, WINDOW = 2_000, 4_000, 10, 100
MOST_GROWTH = 1.2
RESULT = "x" * 200


class Steps:
    """A model that calls a tool in each turn; it measures the time outside its calls."""

    name = "steps"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.turn_times: list[float] = []
        self.longest = 0
        self._ended = time.process_time()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.turn_times.append(time.process_time() - self._ended)
        self.longest = max(self.longest, estimate_tokens(request.messages))
        self.turns -= 1
        call = ToolCall(f"c{self.turns}", "look", '{"number":1}')
        message = AssistantMessage("", (call,)) if self.turns > 0 else AssistantMessage("done")
        self._ended = time.process_time()
        yield ModelResponse(message, None, "stop", self.name)


@tool(in_thread=False)
def look(number: int) -> str:
    """Look something up."""
    return RESULT


def shorten(ctx: RunContext[object], messages: Sequence[Message]) -> str:
    """Write a summary of constant length."""
    return "s" * 800


def runner_of(model: Steps, *, is_compacted: bool = True) -> Runner[object, str]:
    compaction = Compaction(at_tokens=AT_TOKENS, keep_last=KEEP_LAST, summarizer=shorten) if is_compacted else None
    agent = Agent("Clerk", tools=[look], max_turns=TURNS + 1)
    return Runner(agent, model=model, compaction=compaction, limits=Limits(model_calls=None))


def ends_of(times: Sequence[float]) -> tuple[float, float]:
    """Return the microseconds per turn of the first and of the last turns."""
    return statistics.fmean(times[1 : WINDOW + 1]) * 1e6, statistics.fmean(times[-WINDOW:]) * 1e6


async def run_once(turns: int) -> tuple[Steps, Sequence[Event]]:
    model = Steps(turns)
    result = await runner_of(model).run("go", run_id="r")
    return model, result.events


async def resume_from(events: Sequence[Event], length: int) -> tuple[int, float]:
    """Resume from a prefix of the log; return the longest prompt and the seconds."""
    recorded = decode_log(encode_log(events[:length]))
    done = sum(type(event).__name__ == "AgentResponded" for event in recorded)
    model = Steps(TURNS - done)
    runner = runner_of(model)
    start = time.process_time()
    result = await runner.resume(await runner.runs.load(recorded))
    if result.output != "done":
        raise SystemExit(f"resumed from event {length}, the run ended with {result.output!r}")
    return model.longest, time.process_time() - start


@click.command()
@click.option("--rounds", default=5, help="How often to run the 2,000 turns.")
@click.option("--resumes", default=10, help="From how many points of the log to resume.")
def main(rounds: int, resumes: int) -> None:
    """Measure an activation of 2,000 turns with compaction."""
    ratios, firsts, lasts, longest = [0.0] * 0, [0.0] * 0, [0.0] * 0, 0
    events: Sequence[Event] = ()
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        model, events = asyncio.run(run_once(TURNS))
        gc.enable()
        first, last = ends_of(model.turn_times)
        firsts.append(first)
        lasts.append(last)
        ratios.append(last / first)
        longest = max(longest, model.longest)
    count = sum(isinstance(event, HistoryCompacted) for event in events)
    ratio = statistics.median(ratios)
    click.echo(f"{TURNS} turns, {count} summaries, longest prompt {longest} of {AT_TOKENS} tokens")
    click.echo(f"CPU per turn: {statistics.median(firsts):.1f} µs in the first {WINDOW}, ", nl=False)
    click.echo(f"{statistics.median(lasts):.1f} µs in the last {WINDOW}: {ratio:.2f}x (at most {MOST_GROWTH}x)")
    chosen = Random(1).sample(range(2, len(events) - 1), resumes)
    found = [asyncio.run(resume_from(events, length)) for length in sorted(chosen)]
    longest = max([longest, *[prompt for prompt, _ in found]])
    click.echo(f"resumed from {resumes} points of {len(events)} events, longest prompt {longest}")
    if ratio > MOST_GROWTH or longest > AT_TOKENS:
        sys.exit(1)


if __name__ == "__main__":
    main()
