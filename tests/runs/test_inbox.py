"""Messages for a thread whose run has not finished: they wait, steer the run, or take its place."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unfinished import recover
from tests.waiting import PATIENCE, until

from batonkit import Agent, Runner, tool
from batonkit.errors import (
    InboxFullError,
    MessageGoneError,
    RunConflictError,
    RunNotFoundError,
    SetupError,
    StoreError,
    ThreadBusyError,
)
from batonkit.log import Event, RunStarted, UserMessageAdded
from batonkit.messages import AssistantMessage, UserMessage, text_of
from batonkit.runs import BackgroundRunner
from batonkit.runs.threads import inbox as inbox_module
from batonkit.stores import KeyValueStore, MemoryStore, RunRecord, SQLiteStore, Store
from batonkit.testing import FaultyStore, ScriptedModel, call


class Gate:
    """A tool that waits until it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

        @tool
        async def look() -> str:
            """Look."""
            self.entered.set()
            await self.opened.wait()
            return "seen"

        self.tool = look


class Echo:
    """A model that answers with the user messages it read, after one call of `look` in the first run."""

    name = "echo"

    def __init__(self, *, looks: int = 1) -> None:
        self.looks = looks

    async def respond(self, request: Any) -> AsyncIterator[Any]:
        from batonkit.models import ModelResponse, TextChunk, ToolCallChunk

        said = [text_of(message.content) for message in request.messages if isinstance(message, UserMessage)]
        if self.looks:
            self.looks -= 1
            yield ToolCallChunk(0, f"c{self.looks}", "look", "{}")
        else:
            yield TextChunk(" | ".join(said))
        yield ModelResponse(stop_reason="stop")


class Bucket(dict[str, bytes]):
    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


@pytest.fixture(params=["none", "memory", "sqlite", "keyvalue"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store | None:
    kinds: dict[str, Any] = {
        "none": lambda: None,
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db"),
        "keyvalue": lambda: KeyValueStore(Bucket()),
    }
    return kinds[request.param]()


def desk(gate: Gate, store: Store | None, *, looks: int = 1, **options: Any) -> Runner[Any, Any]:
    return Runner(Agent("Desk", model=Echo(looks=looks), tools=[gate.tool]), store=store, **options)


async def texts(runner: Runner[Any, Any], thread: str = "t") -> list[str]:
    return [text_of(message.content) for message in await runner.thread(thread).messages()]


async def until_waiting(runner: Runner[Any, Any], count: int = 1) -> None:
    await until(runner.thread("t").waiting, lambda messages: len(messages) >= count)


async def test_a_queued_message_runs_after_the_active_run(store: Store | None) -> None:
    # It follows the run before it, in the order in which messages were sent.
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="queue", run_id="second"))
    await until_waiting(runner)
    third = asyncio.create_task(runner.run("three", thread="t", when_busy="queue"))
    await until_waiting(runner, 2)
    gate.opened.set()
    results = [await task for task in (first, second, third)]
    assert [result.output for result in results] == ["one", "one | two", "one | two | three"]
    assert results[1].run_id == "second"
    runs = await runner.thread("t").runs()
    assert [run.run_id for run in runs] == [result.run_id for result in results]
    assert [run.previous for run in runs] == ["", results[0].run_id, "second"]
    assert await runner.thread("t").waiting() == []


async def test_a_message_to_a_free_thread_runs_at_once(store: Store | None) -> None:
    runner = desk(Gate(), store, looks=0)
    for mode in ("queue", "steer", "preempt"):
        result = await runner.run(mode, thread=mode, when_busy=mode)
        assert result.output == mode
        assert isinstance(result.events[0], RunStarted)


async def test_a_steering_message_is_read_before_the_next_model_call(store: Store | None) -> None:
    # Recorded at `{scope}/m{turn}/user{n}`; the caller gets the result of the run that it steered.
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t", run_id="first"))
    await gate.entered.wait()
    steering = [
        asyncio.create_task(runner.run("louder", thread="t", when_busy="steer", run_id="louder")),
        asyncio.create_task(runner.run("softer", thread="t", when_busy="steer", run_id="softer")),
    ]
    await until_waiting(runner, 2)
    gate.opened.set()
    result = await first
    assert result.output == "one | louder | softer"
    added = [event for event in result.events if isinstance(event, UserMessageAdded)]
    assert [(event.key, event.message_id) for event in added] == [("1/m2/user1", "louder"), ("1/m2/user2", "softer")]
    for task in steering:
        steered = await task
        assert (steered.run_id, steered.output) == ("first", "one | louder | softer")
    assert [type(message).__name__ for message in result.messages] == [
        *("UserMessage", "AssistantMessage", "ToolMessage", "UserMessage", "UserMessage", "AssistantMessage")
    ]
    assert await texts(runner) == ["one", "", "seen", "louder", "softer", "one | louder | softer"]
    assert (await runner.runs.replay(result.events)).output == result.output
    following = await runner.run("two", thread="t")
    assert following.output == "one | louder | softer | two"


async def test_only_agents_of_the_outermost_flow_read_a_steering_message(store: Store | None) -> None:
    # An agent that is called as a tool has a task of its own.
    gate = Gate()
    inner = Agent("Inner", description="Looks.", model=Echo(), tools=[gate.tool])
    model = ScriptedModel([call("ask_inner", request="look"), lambda request: text_of(request.messages[-1].content)])
    runner = Runner(Agent("Desk", model=model, tools=[inner.as_tool("ask_inner")]), store=store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    steering = asyncio.create_task(runner.run("louder", thread="t", when_busy="steer"))
    await until_waiting(runner)
    gate.opened.set()
    result = await first
    assert (result.output, (await steering).output) == ("louder", "louder")
    assert [event.key for event in result.events if isinstance(event, UserMessageAdded)] == ["1/m2/user1"]


async def test_a_steering_message_too_late_becomes_a_run(store: Store | None) -> None:
    # Rows left when the run ends become runs.
    entered, opened = asyncio.Event(), asyncio.Event()

    class Slow(Echo):
        async def respond(self, request: Any) -> AsyncIterator[Any]:
            entered.set()
            await opened.wait()
            async for chunk in super().respond(request):
                yield chunk

    runner: Runner[Any, Any] = Runner(Agent("Desk", model=Slow(looks=0)), store=store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await entered.wait()
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="steer", run_id="two"))
    await until_waiting(runner)
    opened.set()
    assert (await first).output == "one"
    result = await second
    assert (result.run_id, result.output) == ("two", "one | two")


async def test_a_preempting_message_cancels_after_the_turn(store: Store | None) -> None:
    # The active run is cancelled after its turn; the message becomes the next run.
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="preempt"))
    await until_waiting(runner)
    gate.opened.set()
    result = await first
    assert result.status == "cancelled"
    assert [text_of(message.content) for message in result.messages] == ["one", "", "seen"]
    assert (await second).output == "one | two"


async def test_messages_do_not_overtake_one_another(store: Store | None) -> None:
    # A message that steers stays behind an older one that does not.
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    tasks: list[asyncio.Task[Any]] = []
    for count, (text, mode) in enumerate([("two", "queue"), ("three", "steer"), ("four", "preempt")], 1):
        arguments: dict[str, Any] = {"thread": "t", "when_busy": mode}
        tasks.append(asyncio.create_task(runner.run(text, **arguments)))
        await until_waiting(runner, count)
    with pytest.raises(ThreadBusyError):
        await runner.run("five", thread="t")
    gate.opened.set()
    await asyncio.gather(first, *tasks)
    said = [text for text in await texts(runner) if text in ("one", "two", "three", "four", "five")]
    assert said == ["one", "two", "three", "four"]


async def test_a_stream_waits_and_delivers_its_own_run(store: Store | None) -> None:
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    events: list[Event] = []

    async def read() -> str:
        async with runner.stream("two", thread="t", when_busy="queue") as run:
            events.extend([event async for event in run if isinstance(event, Event)])
            return run.result.output

    second = asyncio.create_task(read())
    await until_waiting(runner)
    gate.opened.set()
    await first
    assert await second == "one | two"
    assert isinstance(events[0], RunStarted)
    assert [event.key for event in events] == ["run", "1/start", "1/m1", "1/end", "completed"]


async def test_a_steering_stream_delivers_the_run_that_it_steers(store: Store | None) -> None:
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()

    async def read() -> list[str]:
        async with runner.stream("two", thread="t", when_busy="steer") as run:
            keys = [event.key async for event in run if isinstance(event, Event)]
            assert run.events == run.result.events
            return keys

    second = asyncio.create_task(read())
    await until_waiting(runner)
    gate.opened.set()
    result = await first
    assert await second == [event.key for event in result.events]


async def test_leaving_a_stream_that_waits_withdraws_the_message(store: Store | None) -> None:
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    async with runner.stream("two", thread="t", when_busy="queue"):
        await until_waiting(runner)
    assert await runner.thread("t").waiting() == []
    third = asyncio.create_task(runner.run("three", thread="t", when_busy="steer"))
    await until_waiting(runner)
    third.cancel()
    await asyncio.wait([third])
    assert await runner.thread("t").waiting() == []
    gate.opened.set()
    assert (await first).output == "one"
    assert len(await runner.thread("t").runs()) == 1


class LateReader(FaultyStore):
    """A store that shows the record of run `r` only once another process drives it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.is_driven = asyncio.Event()

    async def record(self, run_id: str) -> RunRecord | None:
        if run_id == "r":
            await self.is_driven.wait()
        return await self.inner.record(run_id)


async def test_cancelling_an_unread_stream_cancels_its_run_in_another_process() -> None:
    first = Gate()
    last = Gate()

    @tool
    def wave() -> str:
        """Wave."""
        return "waved"

    steps = [call("look"), "one", [call("wave") for _ in range(150)], call("wait"), "two"]
    wait = tool(last.tool.function, name="wait")
    store = MemoryStore()
    elsewhere = Runner(Agent("Desk", model=ScriptedModel(steps), tools=[first.tool, wait, wave]), store=store)
    late = LateReader(store)
    here = Runner(Agent("Desk", model=ScriptedModel([]), tools=[first.tool, wait, wave]), store=late)
    before = asyncio.create_task(elsewhere.run("one", thread="t"))
    await first.entered.wait()
    async with here.stream("two", thread="t", when_busy="queue", run_id="r") as stream:
        await until_waiting(here)
        first.opened.set()
        await before
        driving = asyncio.create_task(elsewhere.runs.drive("r"))
        await last.entered.wait()
        late.is_driven.set()
        await until(lambda: stream._queue is not None and stream._queue.is_full)
        await stream.cancel()
        async with asyncio.timeout(PATIENCE):
            assert (await driving).status == "cancelled"


async def test_cancelling_a_waiting_message_removes_it(store: Store | None) -> None:
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="queue", run_id="two"))
    await until_waiting(runner)
    assert await runner.runs.cancel("two") == "cancelled"
    with pytest.raises(MessageGoneError, match="message `two` does not wait any more"):
        await second
    with pytest.raises(RunNotFoundError):
        await runner.runs.cancel("two")
    gate.opened.set()
    assert (await first).output == "one"


async def test_a_full_inbox_is_refused(store: Store | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # The inbox is bounded.
    monkeypatch.setattr(inbox_module, "MAX_WAITING", 1)
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="queue"))
    await until_waiting(runner)
    with pytest.raises(InboxFullError, match="1 messages wait for thread `t` already"):
        await runner.run("three", thread="t", when_busy="queue")
    gate.opened.set()
    await asyncio.gather(first, second)


async def test_the_context_of_a_refused_message_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MAX_WAITING", 1)
    gate = Gate()
    background = BackgroundRunner(desk(gate, MemoryStore()))
    await background.start("one", thread="t")
    await gate.entered.wait()
    await background.start("two", thread="t", when_busy="queue", run_id="two", context="kept")
    with pytest.raises(InboxFullError):
        await background.start("three", thread="t", when_busy="queue", context="refused")
    assert background._waiting == {"two": "kept"}
    gate.opened.set()
    await background.close()


async def test_submitted_messages_wait_for_a_worker(tmp_path: Path) -> None:
    # `submit` returns the reserved run id, and another process drives it.
    gate, path = Gate(), tmp_path / "runs.db"
    runner, other = desk(gate, SQLiteStore(path)), desk(Gate(), SQLiteStore(path), looks=0)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    ids = [await other.submit(text, thread="t", when_busy="queue") for text in ("two", "three")]
    assert [message.run_id for message in await runner.thread("t").waiting()] == ids
    with pytest.raises(RunConflictError, match="has not started and waits"):
        await other.runs.drive(ids[0])
    gate.opened.set()
    await first
    assert (await other.runs.drive(ids[0])).status == "completed"
    assert (await other.runs.drive(ids[1])).status == "completed"
    assert (await texts(other))[-2:] == ["three", "one | two | three"]


async def test_recovery_makes_runs_of_messages_that_were_left(tmp_path: Path) -> None:
    # Recovery finds that the run has ended, as if its process had died right after its last write.
    gate, path = Gate(), tmp_path / "runs.db"
    runner = desk(gate, SQLiteStore(path))
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    ids = [await runner.submit(text, thread="t", when_busy="queue") for text in ("two", "three")]
    runner._repository.inbox.promote_safely = _do_nothing
    gate.opened.set()
    await first
    assert len(await runner.thread("t").waiting()) == 2
    other = desk(Gate(), SQLiteStore(path), looks=0)
    assert await recover(other) == {ids[0]: "completed"}
    assert await recover(other) == {ids[1]: "completed"}
    assert (await texts(other))[-1] == "one | two | three"


async def _do_nothing(thread: str) -> None:
    """Do what a process does that has died."""


async def test_a_message_between_the_end_and_the_next_run_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # A run without a place in the queue does not slip in before a waiting message.
    monkeypatch.setattr("batonkit.runs.threads.waiting._ABANDONED_AFTER", 0.0)
    store = MemoryStore()
    runner = desk(Gate(), store, looks=0)
    await runner.run("one", thread="t")
    repository: Any = runner._repository
    started = runner._run_started("two", {"thread": "t"})
    from batonkit.runs.threads.waiting_messages import to_message

    await store.enqueue(to_message(started, "queue", "active"), limit=5)
    with pytest.raises(ThreadBusyError, match="is waiting"):
        await runner.run("three", thread="t")
    result = await runner.run("four", thread="t", when_busy="queue")
    assert await repository.inbox.promote("t") == ""
    assert result.output == "one | two | four"


async def test_a_message_to_a_suspended_run_waits(store: Store | None) -> None:
    # On a suspended run a message waits, whatever its mode.
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([[call("pay")], "Done.", "Later."])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model, tools=[pay]), store=store)
    first = await runner.run("one", thread="t")
    assert first.status == "suspended"
    second = asyncio.create_task(runner.run("two", thread="t", when_busy="preempt"))
    await until_waiting(runner)
    resumed = await runner.resume(first.run_id, True)
    assert resumed.output == "Done."
    assert (await second).output == "Later."


async def test_resuming_a_run_with_a_successor_suggests_a_fork(store: Store | None) -> None:
    model = ScriptedModel([ValueError("down"), "Two.", "One."])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model), store=store)
    with pytest.raises(Exception, match="down"):
        await runner.run("one", thread="t", run_id="first")
    await runner.run("two", thread="t")
    with pytest.raises(RunConflictError, match=r"not the last one of its thread.*runner\.runs\.fork\('first'\)"):
        await runner.resume("first")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "keyvalue"])
async def test_a_successor_that_comes_and_ends_during_a_resumption_is_noticed(kind: str, tmp_path: Path) -> None:
    # It was checked only before the log was loaded, so that the thread had two ends.
    stores: dict[str, Any] = {"memory": MemoryStore, "keyvalue": lambda: KeyValueStore(Bucket())}
    inner: Store = stores.get(kind, lambda: SQLiteStore(tmp_path / "runs.db"))()
    store = FaultyStore(inner)
    model = ScriptedModel([ValueError("down"), "Two.", "Three."])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model), store=store)
    with pytest.raises(Exception, match="down"):
        await runner.run("one", thread="t", run_id="first")
    before = await inner.load("first")
    store.hang("append")
    resumed = asyncio.create_task(runner.resume("first"))
    await store.wait_until_hanging()
    other: Runner[Any, Any] = Runner(Agent("Desk", model=model), store=inner)
    assert (await other.run("two", thread="t", run_id="second")).output == "Two."
    store.resume()
    with pytest.raises(RunConflictError, match=r"not the last one of its thread.*`second` follows it"):
        await resumed
    assert await inner.load("first") == before
    assert [record.status for record in await other.thread("t").runs()] == ["failed", "completed"]
    assert (await other.run("three", thread="t")).output == "Three."


async def test_when_busy_needs_a_thread() -> None:
    runner = desk(Gate(), None)
    with pytest.raises(SetupError, match="needs thread=… for when_busy='queue'"):
        await runner.run("one", when_busy="queue")
    with pytest.raises(SetupError, match="when_busy"):
        await runner.run("one", thread="t", when_busy="later")  # type: ignore[typeddict-item]


async def test_only_user_messages_steer(store: Store | None) -> None:
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    with pytest.raises(SetupError, match="takes a text or user messages"):
        await runner.run([UserMessage("a"), AssistantMessage("b")], thread="t", when_busy="steer")
    steering = asyncio.create_task(runner.run([UserMessage("a"), UserMessage("b")], thread="t", when_busy="steer"))
    await until_waiting(runner)
    gate.opened.set()
    assert (await first).output == "one | a | b"
    await steering


async def test_a_turn_without_messages_costs_no_further_statement() -> None:
    # Append and lease renewal return the flags, so that a turn reads nothing.
    store = FaultyStore(MemoryStore())
    gate = Gate()
    gate.opened.set()
    runner = desk(gate, store, looks=3)
    await runner.run("one", thread="t")
    # The last turn, the end of the run and the release of its lease are one append.
    assert store.calls == ["list", "create", *["append"] * 7]


async def test_a_lost_confirmation_does_not_repeat_a_steering_message() -> None:
    store = FaultyStore(MemoryStore())
    gate = Gate()
    runner = desk(gate, store)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await gate.entered.wait()
    steering = asyncio.create_task(runner.run("two", thread="t", when_busy="steer"))
    await until_waiting(runner)
    inner_append, taken = store.inner.append, list[Any]()

    async def append(*arguments: Any, **options: Any) -> Any:
        flags = await inner_append(*arguments, **options)
        if options.get("take") and not taken:
            taken.append(options["take"])
            raise StoreError("the answer was lost")
        return flags

    store.inner.append = append
    gate.opened.set()
    result = await first
    assert taken
    assert result.output == "one | two"
    assert (await steering).output == "one | two"


async def test_deleting_a_thread_removes_its_messages() -> None:
    store = MemoryStore()
    runner = desk(Gate(), store, looks=0)
    await runner.run("one", thread="t")
    from batonkit.runs.threads.waiting_messages import to_message

    await store.enqueue(to_message(runner._run_started("two", {"thread": "t"}), "queue", "active"), limit=5)
    await runner.thread("t").delete()
    assert (list(await store.inbox("t")), await runner.thread("t").runs()) == ([], [])
