"""Costs that grow with the work: long histories, logs and threads, many runs and readers at once.

Each row has the goal that it is held to. The goals are absolute: they belong to a machine with two cores that does
nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batonkit import Agent, Runner, tool
from batonkit.agents import Compaction
from batonkit.errors import ModelError
from batonkit.log import HistoryCompacted, encode_log
from batonkit.log.view import MessageWindow
from batonkit.messages import AssistantMessage, Message, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse, TextChunk
from batonkit.runs import BackgroundRunner
from benchmarks.contenders.baton import LIMITS, MAX_TURNS, StubModel
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, Workload, branches, tool_loop

MESSAGES = 2_000
BODY_MESSAGES = 2_000
THREAD_RUNS = 4_000
MANY_RUNS = 200
LISTENERS, DELTAS = 100, 300


@dataclass(frozen=True, slots=True)
class Growth:
    """One row: what was measured, and what it may be at most."""

    name: str
    value: float
    limit: float
    unit: str


def growth_costs(rounds: int, *, postgres: str | None) -> list[Growth]:
    """Measure all rows.

    Args:
        rounds: How often each row is measured; the best counts, because others use the machine.
        postgres: The url of a PostgreSQL database; its row is left out without one.
    """
    with TemporaryDirectory(prefix="baton-growth-") as name:
        folder = Path(name)
        rows = [
            Growth("first run, including the import: CPU time", _first_run(rounds), 120, "ms"),
            *_body_growths(rounds),
            asyncio.run(_long_input(rounds)),
            asyncio.run(_branch_growth(rounds)),
            asyncio.run(_sync_tool(rounds)),
            *asyncio.run(_resumes(folder, rounds)),
            *asyncio.run(_long_thread(folder, rounds)),
            *asyncio.run(_many_runs("SQLite", str(folder / "many.db"), rounds, least=900, share=0.7)),
            asyncio.run(_listeners(rounds)),
        ]
        if postgres is not None:
            rows += asyncio.run(_many_runs("PostgreSQL", postgres, rounds, least=400, share=0.5))
    return rows


async def _best(work: Callable[[], Awaitable[object]], rounds: int, *, times: int = 1) -> float:
    """Return the least CPU seconds of one call."""
    samples: list[float] = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        for _ in range(times):
            await work()
        samples.append((time.process_time() - started) / times)
    return min(samples)


class Answering:
    """A model that answers at once."""

    name = "stub"

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        return CompleteResponse(ModelResponse(AssistantMessage("done")))


def _conversation(length: int) -> list[Message]:
    turns = (
        (
            UserMessage(f"question {number}"),
            AssistantMessage("", (ToolCall(f"c{number}", "step", '{"n": 1}'),)),
            ToolMessage(f"c{number}", "step", "2"),
            AssistantMessage(f"answer {number}"),
        )
        for number in range(length // 4)
    )
    return [message for turn in turns for message in turn]


def _first_run(rounds: int) -> float:
    program = Path(__file__).parent / "first_run.py"
    # With compiled modules, as any process but the first one has them.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = [
        subprocess.run([sys.executable, program], capture_output=True, check=True, env=settings).stdout
        for _ in range(rounds)
    ]
    return min(map(float, found)) * 1000


def _body_growths(rounds: int) -> list[Growth]:
    # Imported here because the packages bring HTTP clients along.
    from batonkit.models.anthropic.anthropic_request import build_parameters as for_anthropic
    from batonkit.models.google.google_request import build_parameters as for_google
    from batonkit.models.openai.chat import ChatDialect
    from batonkit.models.openai.responses import ResponsesDialect

    builders: dict[str, Callable[[ModelRequest], object]] = {
        "OpenAI": ChatDialect("m", "openai:m").body,
        "OpenAI Responses": ResponsesDialect("m", "openai:m").body,
        "Anthropic": lambda request: for_anthropic(request, "claude-opus-5-5", "anthropic:claude-opus-5-5"),
        "Google": lambda request: for_google(request, "gemini-3.8-flash", "google:gemini-3.8-flash"),
    }

    def cost_of(build: Callable[[ModelRequest], object], length: int) -> float:
        source, forms, samples = _conversation(length), dict[Any, Any](), list[float]()
        for number in range(20 * rounds):
            source += (UserMessage("next"), AssistantMessage(f"answer {number}"), UserMessage("go on"))
            started = time.process_time()
            build(ModelRequest(MessageWindow(source, len(source), forms), tools=(ToolSpec("step"),)))
            samples.append(time.process_time() - started)
        return min(samples)

    return [
        Growth(
            f"{name}: request after {BODY_MESSAGES:,} messages beside 20",
            cost_of(build, BODY_MESSAGES) / cost_of(build, 20),
            4,
            "x",
        )
        for name, build in builders.items()
    ]


async def _long_input(rounds: int) -> Growth:
    runner, given = Runner(Agent("A"), model=Answering()), _conversation(MESSAGES)
    cost = await _best(lambda: runner.run(given), 5 * rounds)
    return Growth(f"run with an input of {MESSAGES:,} messages", cost * 1000, 1.5, "ms")


async def _branch_growth(rounds: int) -> Growth:
    async def cost_of(count: int) -> float:
        from benchmarks.contenders.baton import prepare

        workload = branches(count)
        run_once = prepare(workload, Script(workload))
        await run_once()
        return await _best(run_once, 2 * rounds, times=max(1, 64 // count)) / count

    return Growth("a branch of 512 beside one of 8", await cost_of(512) / await cost_of(8), 1.2, "x")


async def _sync_tool(rounds: int) -> Growth:
    def plain(n: int) -> str:
        """Take a step."""
        return str(n + 1)

    async def cost_of(step: Any) -> float:
        workload = tool_loop("sync", "sync", tool_calls=100)
        agent = Agent("A0", tools=[tool(step, name="step")], max_turns=MAX_TURNS)
        runner = Runner(agent, model=StubModel(Script(workload)), limits=LIMITS)
        await runner.run("Go.")
        return await _best(lambda: runner.run("Go."), 2 * rounds) / 100

    async def coroutine(n: int) -> str:
        """Take a step."""
        return str(n + 1)

    cost = await cost_of(plain) - await cost_of(coroutine)
    return Growth("plain def tool: CPU time beside an async one", cost * 1e6, 110, "µs")


async def _resumes(folder: Path, rounds: int) -> list[Growth]:
    costs: dict[int, float] = {}
    for events in (1_000, 10_000, 100_000):
        costs[events] = await _resume_cost(folder / f"log{events}.db", rounds, events, None) / events
    compacted: dict[int, float] = {}
    compaction = Compaction(at_tokens=20_000, keep_last=5, summarizer=_summarize)
    for events in (2_000, 20_000):
        compacted[events] = await _resume_cost(folder / f"compacted{events}.db", rounds, events, compaction) / events
    return [
        Growth("resume of 1,000 events in SQLite: CPU time of an event", costs[1_000] * 1e6, 20.0, "µs"),
        Growth("resume of 10,000 events: an event beside one of 1,000", costs[10_000] / costs[1_000], 1.2, "x"),
        Growth("resume of 100,000 events: an event beside one of 1,000", costs[100_000] / costs[1_000], 1.3, "x"),
        Growth("the same with Compaction, 20,000 beside 2,000", compacted[20_000] / compacted[2_000], 1.2, "x"),
    ]


def _summarize(ctx: object, messages: object) -> str:
    return "a summary of all messages so far"


class Stopping:
    """A model that calls a tool in every turn, and fails in the last one."""

    name = "stub"

    def __init__(self, turns: int) -> None:
        self._turns, self._made = turns, 0

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        self._made += 1
        if self._made > self._turns:
            raise ConnectionError("the provider is down")
        call = ToolCall(f"call_{self._made:024d}", "step", '{"n": 1}')
        return CompleteResponse(ModelResponse(AssistantMessage("", (call,)), Usage(40 * len(request.messages), 20)))


async def _resume_cost(path: Path, rounds: int, events: int, compaction: Compaction | None) -> float:
    """Return the CPU seconds of a runner that resumes a run which failed in its last turn."""

    @tool(effect="read", in_thread=False)
    def step(n: int) -> str:
        """Take a step."""
        return "the result of a step, which has about as many words as many such results have"

    def runner(model: Any, path: Path) -> Runner[Any, Any]:
        agent = Agent("Worker", instructions=INSTRUCTIONS, tools=[step], max_turns=events)
        return Runner(agent, model=model, store=path, limits=LIMITS, compaction=compaction)

    async with runner(Stopping(events // 2), path) as first:
        with suppress(ModelError):
            await first.run("Go.", run_id="r")
    samples: list[float] = []
    for number in range(rounds):
        copy = Path(shutil.copy(path, path.with_suffix(f".{number}.db")))
        async with runner(Answering(), copy) as resumed:
            await resumed._repository.record("r")
            gc.collect()
            started = time.process_time()
            await resumed.resume("r")
            samples.append(time.process_time() - started)
    return min(samples)


def _stepping(workload: Workload, script: Script) -> Agent:
    step = tool(script.step_tool(), name="step")
    return Agent(workload.agents[0], instructions=INSTRUCTIONS, tools=[step], max_turns=MAX_TURNS)


async def _long_thread(folder: Path, rounds: int) -> list[Growth]:
    def summarize(ctx: object, messages: object) -> str:
        return "The user asked questions."

    compaction = Compaction(at_tokens=500, keep_last=4, summarizer=summarize)
    path = folder / "thread.db"
    await _add_runs(path, THREAD_RUNS, None)
    async with Runner(Agent("A"), model=Answering(), store=path) as runner:
        sizes = [len(encode_log(await runner.runs.events(f"r{number:04}"))) for number in (9, THREAD_RUNS - 1)]
    cold, compacted = await _next_run(path, rounds, None), list[float]()
    for count in (THREAD_RUNS // 4, THREAD_RUNS):
        path = folder / f"compacted-{count}.db"
        await _add_runs(path, count, compaction)
        compacted.append(await _next_run(path, rounds, compaction))
    return [
        Growth(f"next run of a thread of {THREAD_RUNS:,}, cold runner", cold * 1000, 60, "ms"),
        Growth("the same with Compaction", compacted[1] * 1000, 10, "ms"),
        Growth(f"the same beside a thread of {THREAD_RUNS // 4:,}", compacted[1] / compacted[0], 1.3, "x"),
        Growth(f"bytes of run {THREAD_RUNS:,} of a thread beside run 10", sizes[1] / sizes[0], 1.1, "x"),
    ]


async def _add_runs(path: Path, count: int, compaction: Compaction | None) -> None:
    """Add runs to a thread; with compaction more of them, up to one that compacts, so that threads are comparable."""
    async with Runner(Agent("A"), model=Answering(), store=path, compaction=compaction) as runner:
        for number in itertools.count():
            result = await runner.run(f"question {number:04}", thread="t", run_id=f"r{number:04}")
            is_comparable = compaction is None or any(isinstance(event, HistoryCompacted) for event in result.events)
            if number + 1 >= count and is_comparable:
                return


async def _next_run(path: Path, rounds: int, compaction: Compaction | None) -> float:
    samples: list[float] = []
    for _ in range(2 * rounds):
        async with Runner(Agent("A"), model=Answering(), store=path, compaction=compaction) as cold:
            samples.append(await _best(lambda cold=cold: cold.run("next", thread="t"), 1))
    return min(samples)


async def _many_runs(name: str, store: str, rounds: int, *, least: int, share: float) -> list[Growth]:
    """Measure runs that commit together: the wall time of one, and its CPU time beside that of a run alone."""
    workload = tool_loop("many", "many", tool_calls=5)
    agent, best, ratios = _stepping(workload, Script(workload)), float("inf"), list[float]()
    async with Runner(agent, model=StubModel(Script(workload)), limits=LIMITS, store=store) as runner:
        await runner.run("Go.")
        for _ in range(rounds):
            alone = await _best(lambda: runner.run("Go."), MANY_RUNS // 20)
            started, cpu_started = time.perf_counter(), time.process_time()
            await asyncio.gather(*[runner.run("Go.") for _ in range(MANY_RUNS)])
            best = min(best, (time.perf_counter() - started) / MANY_RUNS)
            ratios.append((time.process_time() - cpu_started) / MANY_RUNS / alone)
    what = f"{name}, {MANY_RUNS} runs at once with acting tools"
    return [
        Growth(f"{what}: wall time of a run", best * 1000, 1000 / least, "ms"),
        Growth(f"{what}: CPU time of one beside a run alone", min(ratios), share, "x"),
    ]


class Talking:
    """A model that streams once it is told to."""

    name = "stub"

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        await self.go.wait()
        for number in range(DELTAS):
            yield TextChunk(f"w{number} ")
            await asyncio.sleep(0)
        yield ModelResponse(stop_reason="stop")


async def _listeners(rounds: int) -> Growth:
    # Imported here because it brings Starlette along.
    from batonkit.serve.api import api_app

    model = Talking()
    background = BackgroundRunner(Runner(Agent("A", model=model), store="memory:"))
    app: Any = api_app(background)

    async def cost_of(count: int) -> float:
        model.go.clear()
        run_id = await background.start("Go.")
        received, opened = [0] * count, asyncio.Semaphore(0)

        async def listen(place: int) -> None:
            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    opened.release()
                received[place] += message.get("body", b"").count(b"event: TextDelta")

            await app(_scope(f"/runs/{run_id}/events"), asyncio.Event().wait, send)

        listening = [asyncio.create_task(listen(place)) for place in range(count)]
        for _ in range(count):
            await opened.acquire()
        gc.collect()
        started = time.process_time()
        model.go.set()
        await asyncio.gather(*listening)
        async for _ in background.subscribe(run_id):
            pass
        cost = time.process_time() - started
        assert received == [DELTAS] * count
        return cost

    alone, together = [await cost_of(0) for _ in range(rounds)], [await cost_of(LISTENERS) for _ in range(rounds)]
    cost = (min(together) - min(alone)) / DELTAS / LISTENERS
    return Growth(f"HTTP API: a delta for each of {LISTENERS} listeners", cost * 1e6, 8, "µs")


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
