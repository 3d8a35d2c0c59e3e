"""Stored runs are resumed by any runner of the same team, one at a time, without repeating recorded steps."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.runs.recording_store import RecordingStore, copy_without_leases, get_record, load_events
from tests.unfinished import list_unfinished, recover

from batonkit import Agent, Limits, RunContext, Runner, handoff, tool
from batonkit.errors import (
    AnswerError,
    LimitError,
    LogError,
    ReplayMismatchError,
    RunConflictError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    TeamChangedError,
    ThreadBusyError,
)
from batonkit.log import Delta, Event, InterruptRaised, encode_event
from batonkit.stores import KeyValueStore, MemoryStore, SQLiteStore
from batonkit.testing import ScriptedModel, call, transcript


class RecordingTeam:
    """A team that records its effects outside of its runs."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.callback_count = 0

    def runner(self, store: Any, steps: Any = None, **options: Any) -> Runner[Any, Any]:
        """Create a runner, as another process would."""

        @tool
        async def note(ctx: RunContext, word: str) -> str:
            """Note."""
            self.done.append(word)
            return f"noted {word}"

        @tool
        async def ask(ctx: RunContext, question: str) -> str:
            """Ask."""
            self.done.append("before asking")
            await ctx.step("once", lambda: self.done.append("in a step"))
            return str(await ctx.interrupt(question))

        def greet(ctx: RunContext) -> None:
            self.callback_count += 1

        b = Agent("B", description="b", tools=[note, ask])
        team = Agent("A", tools=[note, ask], handoffs=[handoff(b, on_handoff=greet)])
        model = ScriptedModel(steps or {"A": [], "B": []}, stream=options.pop("stream", False))
        return Runner(team, model=model, store=store, **options)


FIRST = {
    "A": [call("note", word="a"), call("transfer_to_b")],
    "B": [[call("note", word="b"), call("ask", question="sure?")]],
}
REST = {"A": [], "B": ["done"]}
LOGS = Path(__file__).parent / "logs"


# --- resume


@pytest.mark.parametrize("streams", [(False, False), (True, False), (False, True), (True, True)])
async def test_another_runner_resumes_where_one_stopped(streams: tuple[bool, bool]) -> None:
    # With and without streaming, before and after.
    store, recording_team = RecordingStore(), RecordingTeam()
    first, second = recording_team.runner(store, FIRST, stream=True), recording_team.runner(store, REST, stream=True)
    if streams[0]:
        async with first.stream("hi", run_id="r") as live:
            _ = [event async for event in live]
        assert live.result.status == "suspended"
    else:
        assert (await first.run("hi", run_id="r")).status == "suspended"
    before = await load_events(store, "r")
    if streams[1]:
        async with second.stream_resume("r", "yes") as live:
            received: list[Event | Delta] = [event async for event in live]
        result = live.result
        # Only new events.
        assert tuple(event for event in received if isinstance(event, Event)) == result.events[len(before) :]
        assert {event.agent for event in received if isinstance(event, Delta)} == {"B"}
    else:
        result = await second.resume("r", "yes")
    assert (result.status, result.output, result.agent) == ("completed", "done", "B")
    assert recording_team.done == ["a", "b", "before asking", "in a step", "before asking"]
    assert recording_team.callback_count == 1
    assert tuple(await load_events(store, "r")) == result.events
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called note({"word":"a"})',
            "A: note -> noted a",
            "A: called transfer_to_b({})",
            "A: step on_handoff -> null",
            'A: transfer_to_b -> {"assistant":"B"}',
            "A → B",
            "A finished",
            "B started",
            'B: called note({"word":"b"}) + ask({"question":"sure?"})',
            "B: note -> noted b",
            "B: step once -> null",
            'B: asked "sure?" about ask({"question":"sure?"})',
            "run suspended with 1 open question",
            "run resumed",
            'B: got the answer "yes"',
            "B: ask -> yes",
            'B: said "done"',
            "B finished",
            "run completed",
        ]
    )


async def test_with_partial_answers_the_other_interrupts_stay_open() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    calls = [call("ask", question="one?"), call("ask", question="two?")]
    suspended = await recording_team.runner(store, {"A": [calls]}).run("hi", run_id="r")
    one, two = [question.id for question in suspended.interrupts]
    half = await recording_team.runner(store).resume("r", {two: "2"})
    assert (half.status, [question.id for question in half.interrupts]) == ("suspended", [one])
    assert (await get_record(store, "r")).status == "suspended"
    again = await recording_team.runner(store).resume("r")
    assert [question.id for question in again.interrupts] == [one]
    result = await recording_team.runner(store, {"A": ["done"]}).resume("r", "1")
    assert [message.content for message in result.messages[2:4]] == ["1", "2"]
    assert sum(isinstance(event, InterruptRaised) for event in result.events) == 2


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"1/m9.9/ask1": "x"}, "no open interrupt has the id `1/m9.9/ask1`"),
        ({"A": 1, "1/m1.0/ask1": "x"}, "no open interrupt has the id `A`"),
    ],
)
async def test_answers_to_unknown_interrupts_change_nothing(answers: Any, message: str) -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    runner = recording_team.runner(store, {"A": [call("ask", question="?")]})
    await runner.run("hi", run_id="r")
    before = await store.load("r")
    for resumed in (runner, recording_team.runner(store)):
        with pytest.raises(AnswerError, match=message):
            await resumed.resume("r", answers)
    with pytest.raises(AnswerError, match=message):
        await runner.runs.answer("r", answers)
    record = await get_record(store, "r")
    assert (await store.load("r"), record.status, record.lease_until) == (before, "suspended", 0.0)


async def test_completed_and_unknown_runs_are_refused() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    runner = recording_team.runner(store, {"A": ["done"]})
    await runner.run("hi", run_id="r")
    before = await store.load("r")
    with pytest.raises(RunError, match="run `r` has completed and cannot be resumed"):
        await runner.resume("r")
    answers_list: list[Any] = [None, {}, "yes"]
    for answers in answers_list:
        with pytest.raises(RunError, match="run `r` has completed"):
            await runner.runs.answer("r", answers)
    assert (await store.load("r"), (await get_record(store, "r")).status) == (before, "completed")
    for use in (runner.resume, runner.runs.events, runner.runs.drive, runner.runs.replay, runner.runs.cancel):
        with pytest.raises(RunNotFoundError, match="`q`"):
            await use("q")
    with pytest.raises(RunNotFoundError, match="`q`"):
        await runner.runs.answer("q", 1)


async def test_a_run_id_cannot_be_reused() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    runner = recording_team.runner(store, {"A": [call("ask", question="?"), "done"]})
    await runner.run("hi", run_id="r", context="mine")
    for started in (runner.run("hello", run_id="r", context="another's"), runner.submit("hello", run_id="r")):
        with pytest.raises(RunExistsError, match="`r`"):
            await started
    # The failed attempts do not affect the first run.
    async with runner.stream_resume("r", "yes") as live:
        _ = [event async for event in live]
        assert live.events[0].key == "run"
    assert live.result.status == "completed"


async def test_a_resumed_run_is_recovered_if_its_driver_dies() -> None:
    store = RecordingStore()
    started = asyncio.Event()

    @tool
    async def hang(ctx: RunContext) -> str:
        """Ask, then hang."""
        await ctx.interrupt("?")
        started.set()
        await asyncio.Event().wait()
        return "never"

    def runner(store: Any) -> Runner[Any, Any]:
        return Runner(Agent("A", model=ScriptedModel([call("hang"), "done"]), tools=[hang]), store=store)

    await runner(store).run("hi", run_id="r")
    resuming = asyncio.create_task(runner(store).resume("r", "yes"))
    await started.wait()
    assert (await get_record(store, "r")).status == "running"
    copy = await copy_without_leases(store)
    resuming.cancel()
    assert [record.run_id for record in await list_unfinished(runner(copy))] == ["r"]
    with pytest.raises(asyncio.CancelledError):
        await resuming


async def test_a_run_has_one_driver_at_a_time() -> None:
    store = RecordingStore()
    started, go = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go.wait()
        return "waited"

    def runner() -> Runner[Any, Any]:
        return Runner(Agent("A", model=ScriptedModel([call("wait"), "done"]), tools=[wait]), store=store)

    first_runner = runner()
    running = asyncio.create_task(first_runner.run("hi", run_id="r"))
    await started.wait()
    lines = await store.load("r")
    for attempt in (
        runner().resume("r"),
        first_runner.resume("r"),
        runner().runs.drive("r"),
        runner().runs.answer("r", 1),
    ):
        with pytest.raises(RunConflictError, match="`r`"):
            await attempt
    assert await store.load("r") == lines
    assert await recover(runner()) == {}
    go.set()
    assert (await running).status == "completed"


async def test_a_runner_remembers_the_context_of_a_stored_run() -> None:
    # The context of a run that stopped here, unless another is given.
    store = RecordingStore()
    seen: list[Any] = []

    @tool
    async def look(ctx: RunContext) -> str:
        """Look."""
        seen.append(ctx.context)
        return str(await ctx.interrupt("?"))

    runner = Runner(Agent("A", model=ScriptedModel([call("look"), "done"], cycle=True), tools=[look]), store=store)
    await runner.run("hi", run_id="r1", context={"me": 1})
    await runner.resume("r1", "yes")
    await runner.run("hi", run_id="r2", context={"me": 1})
    await runner.resume("r2", "yes", context={"you": 2})
    assert seen == [{"me": 1}, {"me": 1}, {"me": 1}, {"you": 2}]


async def test_limits_of_a_run_apply_in_every_runner_that_resumes_it() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    await recording_team.runner(store, {"A": [call("ask", question="?")]}).run(
        "hi", run_id="r", limits=Limits(model_calls=2)
    )
    rest = {"A": [call("note", word="a"), call("note", word="b"), "done"]}
    with pytest.raises(LimitError):
        await recording_team.runner(store, rest).resume("r", "yes")
    result = await recording_team.runner(store, {"A": ["done"]}).resume("r", limits=Limits(model_calls=9))
    assert result.status == "completed"


async def test_values_are_restored() -> None:
    store = RecordingStore()

    @tool
    async def count(ctx: RunContext) -> str:
        """Count."""
        ctx.values.set("count", ctx.values.get("count", 0) + 1)
        return str(await ctx.interrupt("?")) if ctx.values.get("count") == 3 else "ok"

    team = Agent("A", model=ScriptedModel([call("count"), call("count"), "done"]), tools=[count])
    await Runner(team, store=store).run("hi", run_id="r", values={"count": 1, "x": [1]})
    result = await Runner(team, store=store).resume("r", "yes")
    assert result.values == {"count": 3, "x": [1]}


# --- the team has changed


async def test_a_changed_team_is_refused_with_the_difference_unless_it_is_accepted() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    await recording_team.runner(store, {"A": [call("ask", question="?")]}).run("hi", run_id="r")
    before = await store.load("r")

    @tool
    async def ask(ctx: RunContext, question: str) -> str:
        """Ask."""
        await ctx.step("once", lambda: None)
        return str(await ctx.interrupt(question))

    other = Runner(Agent("A", model=ScriptedModel(["done"]), tools=[ask], sub_agents=[Agent("C")]), store=store)
    with pytest.raises(TeamChangedError) as caught:
        await other.resume("r", "yes")
    assert [*caught.value.differences] == snapshot(
        [
            "~ `A` was (Agent; tools note, ask; to B), is (Agent; tools ask; to C)",
            "- `B` is gone",
            "+ `C` is new",
        ]
    )
    with pytest.raises(TeamChangedError):
        await other.runs.drive(await recording_team.runner(store).submit("hi", run_id="new"))
    assert (await store.load("r"), (await get_record(store, "r")).lease_until) == (before, 0.0)
    assert (await other.resume("r", "yes", accept_changes=True)).output == "done"


async def test_other_instructions_or_models_do_not_change_the_team() -> None:
    # Instructions may be changed while runs are suspended.
    store, recording_team = RecordingStore(), RecordingTeam()
    await recording_team.runner(store, {"A": [call("ask", question="?")]}).run("hi", run_id="r")
    assert (await recording_team.runner(store, {"A": ["done"]}).resume("r", "yes")).output == "done"


# --- bad logs


@pytest.mark.parametrize("what", ["cut", "garbage", "foreign", "newer", "empty", "twice", "another's"])
async def test_a_damaged_log_is_left_unchanged(what: str) -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    await recording_team.runner(store, {"A": [call("ask", question="?")]}).run("hi", run_id="good")
    lines = list(await store.load("good"))
    lines[1] = lines[1].replace(b'"good"', b'"r"')
    damaged = {
        "cut": [*lines[:-1], lines[-1][:-9]],
        "garbage": [*lines[:3], b"\x00\xff garbage", *lines[4:]],
        "foreign": [b"<xml/>", *lines[1:]],
        "newer": [b'{"format":99}', *lines[1:]],
        "empty": lines[:1],
        "twice": [*lines, lines[3]],
        "another's": [lines[0], encode_event((await load_events(store, "good"))[0]), *lines[2:]],
    }[what]
    await store.create("r", damaged)
    runner = recording_team.runner(store)
    expected = RunError if what == "twice" else LogError
    for use in (
        lambda: runner.resume("r", "yes"),
        lambda: runner.runs.drive("r"),
        lambda: runner.runs.answer("r", "yes"),
    ):
        with pytest.raises(expected):
            await use()
    record = await get_record(store, "r")
    assert (await store.load("r"), record.status, record.lease_until) == (damaged, "running", 0.0)


async def test_a_flipped_bit_in_a_file_is_detected_and_nothing_is_overwritten(tmp_path: Any) -> None:
    path, recording_team = tmp_path / "runs.db", RecordingTeam()
    async with recording_team.runner(path, {"A": [call("ask", question="findable")]}) as runner:
        await runner.run("hi", run_id="r")
    data = bytearray(path.read_bytes())
    position = data.rindex(b"findable")
    data[position] ^= 1
    path.write_bytes(data)
    async with recording_team.runner(path) as runner:
        with pytest.raises(LogError, match=r"line|checksum"):
            await runner.resume("r", "yes")
    assert path.read_bytes().count(bytes(data[position : position + 8])) == data.count(
        bytes(data[position : position + 8])
    )


async def test_a_stored_log_of_the_current_format_is_resumed() -> None:
    # This file must never be changed.
    store, recording_team = RecordingStore(), RecordingTeam()
    await store.create("r", (LOGS / "format2.jsonl").read_bytes().splitlines())
    result = await recording_team.runner(store, REST).resume("r", "yes")
    assert (result.output, result.agent) == ("done", "B")
    assert recording_team.done == ["before asking"]


async def test_a_stored_log_of_format_1_is_refused() -> None:
    store = RecordingStore()
    await store.create("r", (LOGS / "format1.jsonl").read_bytes().splitlines())
    with pytest.raises(LogError):
        await RecordingTeam().runner(store, REST).resume("r", "yes")
    assert (await get_record(store, "r")).lease_until == 0


# --- every store


@pytest.fixture(params=["memory", "sqlite", "sqlite, power", "keys and values"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store of each kind."""
    match request.param:
        case "memory":
            return MemoryStore()
        case "keys and values":
            return KeyValueStore(KeyValueDict())
        case "sqlite":
            return tmp_path / "runs.db"
        case _:
            return f"sqlite:///{tmp_path}/runs.db?durability=power"


class KeyValueDict(dict[str, bytes]):
    """A key-value store in memory."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value


async def test_every_store_supports_all_operations(any_store: Any) -> None:
    recording_team = RecordingTeam()
    async with recording_team.runner(any_store, FIRST) as first:
        suspended = await first.run("hi", run_id="r", thread="t")
        await first.submit("hello", run_id="s")
    steps = {"A": ["hello back"], "B": ["done", "still B"]}
    async with recording_team.runner(any_store, steps) as second:
        assert await second.runs.events("r") == list(suspended.events)
        assert await recover(second) == {"s": "completed"}
        with pytest.raises(ThreadBusyError):
            await second.run("and?", thread="t")
        await second.runs.answer("r", "yes")
        assert (await second.runs.drive("r")).status == "completed"
        assert (await second.run("and?", thread="t")).output == "still B"
        assert await second.thread("t").active_agent() == "B"
        assert (await second.runs.replay("r")).output == "done"
        fork = await second.runs.fork("r", edit={"2/m1.1/ask1!": "no"})
        assert await second.runs.cancel(fork) == "cancelled"
        assert len(await second.thread("t").runs()) == 2
        assert await second.thread("t").delete() == 2
    assert recording_team.done == ["a", "b", "before asking", "in a step", "before asking"]


# --- on disk


def test_run_sync_stores_runs_in_a_file(tmp_path: Any) -> None:
    # Each call has its own event loop.
    recording_team = RecordingTeam()
    path = tmp_path / "runs.db"
    results = [
        recording_team.runner(path, {"A": [f"done {number}"]}).run_sync("hi", run_id=f"r{number}")
        for number in range(3)
    ]
    assert [result.output for result in results] == ["done 0", "done 1", "done 2"]
    store = SQLiteStore(path)

    async def statuses() -> list[str]:
        return [record.status for record in (await store.list()).records]

    assert asyncio.run(statuses()) == ["completed"] * 3


async def test_a_replay_by_id_has_no_effect_and_finds_the_first_difference() -> None:
    store, recording_team = RecordingStore(), RecordingTeam()
    runner = recording_team.runner(store, {"A": [call("note", word="a"), call("transfer_to_b")], "B": ["done"]})
    result = await runner.run("hi", run_id="r")
    recording_team.done.clear()
    replayed = await recording_team.runner(store).runs.replay("r")
    assert (replayed.output, replayed.events, recording_team.done) == ("done", result.events, [])

    changed_runner = Runner(Agent("A", model=ScriptedModel([])), store=store)
    with pytest.raises(ReplayMismatchError) as caught:
        await changed_runner.runs.replay("r")
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == ("1/m3", "nothing", "AgentResponded")
