"""Snapshots of long runs: what is read when a run continues, and when a snapshot is not used (performance B3)."""

import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec.structs import replace

from baton import Agent, GuardrailVerdict, RunContext, Runner, RunResult, handoff, tool
from baton.agents import Compaction
from baton.context import Limits
from baton.errors import BatonError, TeamChangedError
from baton.events import AgentResponded, Event
from baton.messages import AssistantMessage, Message, ToolCall, Usage
from baton.middleware import Middleware
from baton.models import Chunk, ModelRequest, ModelResponse
from baton.runner import BackgroundRunner, EventHandler, Observer, usage_from_events
from baton.runner.snapshots import SNAPSHOT_INTERVAL
from baton.stores import SNAPSHOT_NOTE, MemoryStore, SQLiteStore, Store

TURNS = 200
NO_LIMITS = Limits(model_calls=None, transfers=None)


class Working:
    """A model that calls a tool in every turn until it has done so often enough; then it fails or answers."""

    name = "working"

    def __init__(self, turns: int = TURNS, *, answer: str = "", ids: str = "c{}", tool: str = "step") -> None:
        self.turns, self.answer, self.ids, self.tool = turns, answer, ids, tool
        self.requests: list[list[Message]] = []
        self.made = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.requests.append([*request.messages])
        self.made += 1
        if self.made <= self.turns:
            call = ToolCall(self.ids.format(self.made), self.tool, json.dumps({"n": self.made}))
            yield ModelResponse(AssistantMessage("", (call,)), Usage(10 * len(request.messages), 5))
        elif self.answer:
            yield ModelResponse(AssistantMessage(self.answer), Usage(10 * len(request.messages), 5))
        else:
            raise RuntimeError("the provider is down")


class CountingStore(MemoryStore):
    """A store that remembers which lines were read."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[int] = []
        self.whole = 0

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.starts.append(start)
        return await super().load(run_id, start=start)

    def load_sync(self, run_id: str) -> Sequence[bytes]:
        self.whole += 1
        return super().load_sync(run_id)


done: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@tool(in_thread=False)
def step(n: int) -> str:
    """Take a step."""
    done.append(n)
    return f"step {n} is done"


def worker(**options: Any) -> Agent:
    return Agent("Worker", tools=[step], max_turns=10_000, **options)


def make_runner(model: Working, store: Store, agent: Any = None, **options: Any) -> Runner[Any, Any]:
    return Runner(agent or worker(), model=model, store=store, limits=NO_LIMITS, **options)


async def start(store: Store, agent: Any = None, model: Working | None = None, **options: Any) -> Working:
    """Run until the provider fails after many turns."""
    model = model or Working()
    with pytest.raises(BatonError, match="the provider is down"):
        await make_runner(model, store, agent, **options).run("Go.", run_id="r")
    return model


async def snapshot_of(store: Store) -> bytes | None:
    return (await store.read_notes(["r"], SNAPSHOT_NOTE)).get("r")


async def test_a_resumed_run_reads_its_snapshot_and_the_events_after_it() -> None:
    # B3
    store = CountingStore()
    await start(store)
    steps, before = len(done), await make_runner(Working(), store).events("r")
    store.starts.clear()
    model = Working(0, answer="ready")
    result = await make_runner(model, store).resume("r")
    assert (result.output, len(done)) == ("ready", steps)
    (read_from,) = store.starts
    assert len(before) - read_from < 1.5 * SNAPSHOT_INTERVAL
    assert result.usage.total.model_calls == TURNS + 1
    assert store.whole == 0, "what no one asks for is not read"
    assert [*result.events[: len(before)]] == before
    assert store.whole == 1
    assert result.usage == usage_from_events(result.events)
    assert len(result.messages) == 2 + 2 * TURNS
    assert [*result.messages[:-1]] == model.requests[0]


async def test_the_next_request_and_record_are_those_of_a_run_without_snapshots() -> None:
    # B3
    results: list[tuple[Any, ...]] = []
    for uses_snapshot in (True, False):
        store = MemoryStore()
        await start(store)
        if not uses_snapshot:
            await store.put_note("r", SNAPSHOT_NOTE, None)
        model = Working(3, answer="ready")
        runner = make_runner(model, store)
        result = await runner.resume("r")
        recorded = await runner.requests("r")
        messages = [request.messages for request in recorded.values()]
        results.append((model.requests, messages, result.messages, result.usage, result.values, [*recorded]))
    assert results[0] == results[1]


async def test_a_tool_that_waits_continues_from_a_snapshot() -> None:
    # B3: the run is suspended in the middle of a turn, long after the snapshot before it.
    @tool
    async def ask(ctx: RunContext, n: int) -> str:
        """Ask."""
        return f"heard {await ctx.interrupt('which?')}" if n > TURNS - 5 else "nothing to ask"

    agent, store = Agent("Worker", tools=[ask], max_turns=10_000), CountingStore()
    model = Working(answer="ready", tool="ask")
    result = await make_runner(model, store, agent).run("Go.", run_id="r")
    while result.status == "suspended":
        store.starts.clear()
        result = await make_runner(model, store, agent).resume("r", "this one")
        assert min(store.starts) > 0
    assert (result.output, model.made, store.whole) == ("ready", TURNS + 1, 0)
    assert [*result.messages[-3:]] == [*model.requests[-1][-2:], AssistantMessage("ready")]


async def test_a_completed_run_keeps_no_snapshot() -> None:
    # B3
    store = MemoryStore()
    await start(store)
    assert len(await snapshot_of(store) or b"") > 1000
    await make_runner(Working(0, answer="ready"), store).resume("r")
    assert await snapshot_of(store) == b""


def _other_version(note: bytes) -> bytes:
    fields = json.loads(note[4:])
    fields[0][2] = "99.0"
    encoded = json.dumps(fields).encode()
    return crc32(encoded).to_bytes(4) + encoded


def _too_long(note: bytes) -> bytes:
    fields = json.loads(note[4:])
    fields[2] = 10_000
    encoded = json.dumps(fields).encode()
    return crc32(encoded).to_bytes(4) + encoded


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "damaged": lambda note: note[:-3] + b"!!!",
    "empty": lambda note: b"",
    "of another shape": lambda note: crc32(b"[1]").to_bytes(4) + b"[1]",
    "of another version": _other_version,
    "of more events than the log has": _too_long,
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_snapshot_that_does_not_fit_is_ignored(what: str) -> None:
    # B3
    store = CountingStore()
    await start(store)
    await store.put_note("r", SNAPSHOT_NOTE, CHANGES[what](await snapshot_of(store) or b""))
    store.starts.clear()
    result = await make_runner(Working(0, answer="ready"), store).resume("r")
    assert (result.output, store.starts) == ("ready", [0])
    assert len(result.messages) == 2 + 2 * TURNS


async def test_the_snapshot_of_another_team_is_ignored() -> None:
    # B3
    @tool(in_thread=False)
    def other() -> str:
        """Do something else."""
        return "no"

    store, changed = CountingStore(), Agent("Worker", tools=[step, other], max_turns=10_000)
    await start(store)
    with pytest.raises(TeamChangedError):
        await make_runner(Working(0, answer="ready"), store, changed).resume("r")
    store.starts.clear()
    result = await make_runner(Working(0, answer="ready"), store, changed).resume("r", accept_changes=True)
    assert (result.output, store.starts) == ("ready", [0])


def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
    """Summarize nothing."""
    return "so far"


async def test_with_compaction_snapshots_do_not_grow() -> None:
    # B3: entries that a summary replaces are left out, and read from the log if someone asks for them.
    compaction, sizes = Compaction(at_tokens=500, keep_last=3, summarizer=summarize), dict[int, int]()
    for turns in (TURNS, 4 * TURNS):
        store = CountingStore()
        before = await start(store, model=Working(turns), compaction=compaction)
        sizes[turns] = len(await snapshot_of(store) or b"")
        model = Working(0, answer="ready")
        result = await make_runner(model, store, compaction=compaction).resume("r")
        assert (result.output, store.whole, min(store.starts) > 0) == ("ready", 0, True)
        assert result._history.dropped > turns
        assert model.requests == [before.requests[-1]]
        assert len(result.messages) == 2 + 2 * turns
        assert store.whole == 1
        assert [*result.messages] == [*(await make_runner(model, store).replay("r")).messages]
    # What is left to grow are two short numbers for each turn.
    assert sizes[4 * TURNS] < sizes[TURNS] + 3 * TURNS * 25


async def test_ids_of_tool_calls_stay_unique_after_a_snapshot() -> None:
    # B3: the provider starts to count its calls again in every process.
    for uses_snapshot in (True, False):
        store = MemoryStore()
        await start(store, model=Working(TURNS, ids="call_{}"))
        if not uses_snapshot:
            await store.put_note("r", SNAPSHOT_NOTE, None)
        result = await make_runner(Working(2, answer="ready", ids="call_{}"), store).resume("r")
        ids = [call.id for event in result.events if isinstance(event, AgentResponded) for call in event.tool_calls]
        assert len(ids) == len({*ids}) == TURNS + 2
        assert ids[-2:] == [f"call_1_m{TURNS + 1}_0", f"call_1_m{TURNS + 2}_0"]


async def test_runs_of_handoffs_have_snapshots_between_activations() -> None:
    # B3: an input filter has chosen what the next agent reads.
    def last_two(data: Any) -> Any:
        return data.clone(pre_handoff_items=data.pre_handoff_items[-2:])

    class PingPong(Working):
        async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            self.requests.append([*request.messages])
            self.made += 1
            if self.made > self.turns:
                raise RuntimeError("the provider is down")
            target = "b" if request.agent == "A" else "a"
            yield ModelResponse(
                AssistantMessage(f"{self.made}", (ToolCall(f"c{self.made}", f"transfer_to_{target}", "{}"),))
            )

    a = Agent("A", handoffs=[handoff("B", input_filter=last_two)])
    b = Agent("B", handoffs=[handoff(a, input_filter=last_two)])
    model, store = PingPong(), CountingStore()
    options: dict[str, Any] = {"extra_agents": [b]}
    await start(store, a, model, **options)
    seen, store.starts[:] = model.requests[-1], []
    again = PingPong(0)
    with pytest.raises(BatonError, match="is down"):
        await make_runner(again, store, a, **options).resume("r")
    assert again.requests == [seen]
    assert min(store.starts) > 0


class Around(Middleware):
    """Middleware around activations."""

    async def activation(self, ctx: Any, next: Any) -> Any:
        return await next()


async def approve(ctx: RunContext[Any], messages: Sequence[Message]) -> GuardrailVerdict:
    return GuardrailVerdict(passed=True)


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(lambda: worker(middleware=[Around()]), id="middleware around the activation"),
        pytest.param(lambda: worker(input_guardrails=[approve]), id="guardrails"),
    ],
)
async def test_code_around_an_agent_prevents_snapshots_inside_it(agent: Any) -> None:
    # B3: it has local variables.
    store = MemoryStore()
    await start(store, agent())
    assert await snapshot_of(store) is None
    result = await make_runner(Working(0, answer="ready"), store, agent()).resume("r")
    assert result.output == "ready"


CHANGED_SETTINGS: dict[str, Callable[[], tuple[Agent, dict[str, Any]]]] = {
    "middleware around the agent": lambda: (worker(middleware=[Around()]), {}),
    "middleware around all agents": lambda: (worker(), {"middleware": [Around()]}),
    "guardrails": lambda: (worker(input_guardrails=[approve]), {}),
    "the history policy of the agent": lambda: (worker(history="verbatim"), {}),
    "the history policy of the runner": lambda: (worker(), {"history": "answers"}),
    "hidden transfers": lambda: (worker(), {"show_transfers": False}),
}


@pytest.mark.parametrize("what", CHANGED_SETTINGS)
async def test_a_snapshot_of_other_settings_is_ignored(what: str) -> None:
    # B3: the activation must begin with the new ones.
    store, (agent, options) = CountingStore(), CHANGED_SETTINGS[what]()
    await start(store)
    store.starts.clear()
    model = Working(0, answer="ready")
    assert (await make_runner(model, store, agent, **options).resume("r")).output == "ready"
    assert store.starts[-1] == 0
    assert len(model.requests[0]) == 1 + 2 * TURNS


@pytest.mark.parametrize("limits", [{"tokens": 1000}, {"model_calls": 50}, {"cost": 0.1}])
async def test_limits_that_a_run_has_exceeded_before_its_snapshot(limits: dict[str, Any]) -> None:
    # B3: the model is not called again.
    found: list[tuple[Any, ...]] = []
    for uses_snapshot in (True, False):
        store, model = MemoryStore(), Working(0, answer="ready")
        await start(store)
        if not uses_snapshot:
            await store.put_note("r", SNAPSHOT_NOTE, None)
        run = make_runner(model, store).stream_resume("r", limits=replace(NO_LIMITS, **limits))
        with pytest.raises(BatonError):
            await run._drive()
        found.append((str(run.result.error), run.result.messages, model.requests))
    assert found[0] == found[1]
    assert found[0][2] == []


class Recorder(Observer):
    """Remembers what it is told about a run."""

    def __init__(self) -> None:
        self.past: Sequence[Event] = ()
        self.new: list[Event] = []

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        self.past = past
        yield lambda event: self.new.append(event) if isinstance(event, Event) else None


async def test_observers_are_given_all_past_events() -> None:
    # B3
    store, observer = CountingStore(), Recorder()
    await start(store)
    before = await make_runner(Working(), store).events("r")
    result = await make_runner(Working(0, answer="ready"), store, observers=[observer]).resume("r")
    assert len(observer.past) == len(before)
    assert store.whole == 0
    # They are read when they are used, and do not grow.
    assert [*observer.past] == before
    assert observer.past[-1] == before[-1]
    assert observer.past[:2] == tuple(before[:2])
    assert [*observer.past, *observer.new] == [*result.events]
    assert store.whole == 1


async def test_streams_of_a_resumed_run_deliver_new_events_only() -> None:
    # B3
    store = CountingStore()
    await start(store)
    before = len(await make_runner(Working(), store).events("r"))
    async with make_runner(Working(0, answer="ready"), store).stream_resume("r") as run:
        new = [event async for event in run if isinstance(event, Event)]
        assert len(run.events) == before + len(new)
        assert [*run.events[before:]] == new


@pytest.mark.parametrize("after", [0, 10, 2 * TURNS])
async def test_subscribers_get_the_numbers_of_all_events(after: int) -> None:
    # B3
    store = MemoryStore()
    await start(store)
    runner = make_runner(Working(0, answer="ready"), store)
    background = BackgroundRunner(runner)
    await background.resume("r")
    found = [(number, each) async for number, each in background.subscribe("r", after=after) if isinstance(each, Event)]
    assert found == [*enumerate(await runner.events("r"), 1)][after:]


async def test_a_worker_reads_no_more_than_the_events_after_the_snapshot() -> None:
    # B3
    store = CountingStore()
    runner = make_runner(Working(TURNS, answer="ready"), store)
    await start(store)
    await store.append("r", len(await runner.events("r")) + 1, [], status="running")
    store.starts.clear()
    assert (await make_runner(Working(0, answer="ready"), store).drive("r")).status == "completed"
    assert (len(store.starts), min(store.starts) > 0, store.whole) == (1, True, 0)


async def test_a_fork_of_a_run_with_snapshots_is_read_from_its_beginning() -> None:
    # B3
    store = MemoryStore()
    await start(store)
    runner = make_runner(Working(0, answer="ready"), store)
    fork = await runner.fork("r", at=101, run_id="fork")
    assert (await store.read_notes([fork], SNAPSHOT_NOTE)) == {}
    assert (await runner.resume(fork)).output == "ready"


async def test_a_trimmed_thread_makes_snapshots_of_its_last_run_unusable() -> None:
    # B3: the snapshot refers to messages of earlier runs, which are gone.
    store = CountingStore()
    await make_runner(Working(0, answer="first"), store).run("One.", thread="t", run_id="r0")
    with pytest.raises(BatonError):
        await make_runner(Working(), store).run("Two.", thread="t", run_id="r")
    await make_runner(Working(), store).thread("t").trim(1)
    store.starts.clear()
    model = Working(0, answer="ready")
    assert (await make_runner(model, store).resume("r")).output == "ready"
    assert store.starts[-1] == 0
    assert len(model.requests[0]) == 1 + 2 * TURNS


class Wrapped:
    """A store without `load_sync`."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "load_sync":
            raise AttributeError(name)
        return getattr(self._inner, name)


async def check_store(store: Store) -> None:
    """Check that a run continues from a snapshot, and that its first events can be read afterwards."""
    await start(store)
    result: RunResult[Any] = await make_runner(Working(0, answer="ready"), store).resume("r")
    assert result._run.log.head_count > 0
    assert result.output == "ready"
    assert len(result.events) == 2 * TURNS + 7
    assert len(result.messages) == 2 + 2 * TURNS


async def test_a_store_that_cannot_be_read_synchronously_is_read_before_the_run_continues() -> None:
    # B3
    await check_store(Wrapped(MemoryStore()))  # pyright: ignore[reportArgumentType]


async def test_snapshots_in_sqlite(tmp_path: Path) -> None:
    # B3
    store = SQLiteStore(tmp_path / "runs.db")
    await check_store(store)
    await store.close()


async def test_short_runs_have_no_snapshot_and_cost_no_look_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # B3
    store, names = MemoryStore(), list[str]()
    read_notes = store.read_notes

    async def counting(run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        names.append(name)
        return await read_notes(run_ids, name)

    monkeypatch.setattr(store, "read_notes", counting)
    await start(store, model=Working(20))
    assert (await make_runner(Working(0, answer="ready"), store).resume("r")).output == "ready"
    assert SNAPSHOT_NOTE not in names
