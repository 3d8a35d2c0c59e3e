"""A process that dies between two writes of a key-value store loses and repeats no message."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unfinished import recover

from batonkit import Agent, Runner, tool
from batonkit.errors import BatonError
from batonkit.log import UserMessageAdded
from batonkit.messages import UserMessage, text_of
from batonkit.models import ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from batonkit.stores import KeyValueStore, WaitingMessage

NEVER = 1 << 30
NOW = 1_000_000.0
LATER = 3600.0


class Disk:
    """Bytes by key, which outlive the processes that write them."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}


class Process:
    """The access of one process to a disk; the process dies before one of its writes."""

    def __init__(self, disk: Disk, *, dies_at: int = NEVER) -> None:
        self.blobs = disk.blobs
        self.writes_left = dies_at
        self.writes: list[str] = []

    @property
    def is_dead(self) -> bool:
        return self.writes_left < 0

    async def get(self, key: str) -> bytes | None:
        self._live()
        return self.blobs.get(key)

    async def set(self, key: str, value: bytes) -> None:
        self._write(key)
        self.blobs[key] = value

    async def delete(self, key: str) -> None:
        self._write(key)
        self.blobs.pop(key, None)

    def _write(self, key: str) -> None:
        self._live()
        self.writes_left -= 1
        self._live()
        self.writes.append(key)

    def _live(self) -> None:
        if self.is_dead:
            raise ConnectionError("the process is dead")


def message(run_id: str, mode: Any = "steer") -> WaitingMessage:
    return WaitingMessage(run_id=run_id, thread="t", mode=mode, body=b"{}")


async def test_an_append_that_takes_messages_happens_as_a_whole() -> None:
    # The log and the inbox are two writes: the document of the run says which messages were taken.
    dies_at, outcomes = 0, set[tuple[int, int]]()
    while True:
        disk = Disk()
        before = KeyValueStore(Process(disk))
        await before.create("r", [b"one"], thread="t")
        for run_id in ("a", "b", "c"):
            await before.enqueue(message(run_id), limit=10)
        process = Process(disk, dies_at=dies_at)
        try:
            await KeyValueStore(process).append("r", 1, [b"a and b"], take=["a", "b"])
        except BatonError:
            assert process.is_dead
        after = KeyValueStore(Process(disk))
        lines, waiting = await after.load("r"), [each.run_id for each in await after.inbox("t")]
        outcomes.add((len(lines), len(waiting)))
        for run_id in ("a", "b", "c"):
            assert (await after.waiting(run_id) is not None) == (run_id in waiting)
        # The next append takes exactly what is left, and nothing comes back.
        await after.append("r", len(lines), [b"rest"], take=waiting)
        assert await after.inbox("t") == []
        assert (await after.record("r")).inbox == ""  # pyright: ignore[reportOptionalMemberAccess]
        if not process.is_dead:
            break
        dies_at += 1
    # Each death leaves either everything as it was, or everything done.
    assert outcomes == {(1, 3), (2, 1)}
    assert dies_at >= 2, "the append is more than one write"


async def test_a_run_made_of_a_message_is_created_as_a_whole() -> None:
    dies_at, outcomes = 0, set[tuple[bool, int]]()
    while True:
        disk = Disk()
        before = KeyValueStore(Process(disk))
        await before.create("r", [b"one"], thread="t", status="completed")
        for run_id in ("a", "b"):
            await before.enqueue(message(run_id, "queue"), limit=10)
        process = Process(disk, dies_at=dies_at)
        try:
            await KeyValueStore(process).create("a", [b"from a"], thread="t", previous="r", from_inbox=True)
        except BatonError:
            assert process.is_dead
        after = KeyValueStore(Process(disk))
        is_created = await after.record("a") is not None
        waiting = [each.run_id for each in await after.inbox("t")]
        outcomes.add((is_created, len(waiting)))
        if not is_created:
            await after.create("a", [b"from a"], thread="t", previous="r", from_inbox=True)
        assert [each.run_id for each in await after.inbox("t")] == ["b"]
        await after.append("a", 1, [], status="completed")
        await after.create("b", [b"from b"], thread="t", previous="a", from_inbox=True)
        assert await after.inbox("t") == []
        runs = [record.run_id for record in (await after.list(thread="t", oldest_first=True)).records]
        assert runs == ["r", "a", "b"]
        if not process.is_dead:
            break
        dies_at += 1
    assert outcomes == {(False, 2), (True, 1)}
    assert dies_at >= 3


class Echo:
    """A model that calls `look` before the first answer, and answers with what the user said."""

    name = "echo"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Any]:
        said = [text_of(each.content) for each in request.messages if isinstance(each, UserMessage)]
        if len(request.messages) == 1:
            yield ToolCallChunk(0, "c1", "look", "{}")
        else:
            yield TextChunk(" | ".join(said))
        yield ModelResponse(stop_reason="stop")


def desk(process: Process, entered: asyncio.Event, opened: asyncio.Event, *, now: float = 0.0) -> Runner[Any, Any]:
    @tool
    async def look() -> str:
        """Look."""
        entered.set()
        await opened.wait()
        return "seen"

    store = KeyValueStore(process, clock=lambda: NOW + now)
    return Runner(Agent("Desk", model=Echo(), tools=[look]), store=store)


async def handle_messages(dies_at: int) -> bool:
    """Let the process that drives a run die at a write; return whether it did."""
    disk, entered, opened = Disk(), asyncio.Event(), asyncio.Event()
    process = Process(disk)
    runner = desk(process, entered, opened)
    first = asyncio.create_task(runner.run("one", thread="t"))
    await entered.wait()
    for text, mode in (("two", "steer"), ("three", "steer"), ("four", "queue")):
        await runner.submit(text, thread="t", when_busy=mode)  # pyright: ignore[reportArgumentType]
    process.writes_left = dies_at
    opened.set()
    await asyncio.wait([first])
    assert (first.exception() is not None) <= process.is_dead

    another = desk(Process(disk), asyncio.Event(), opened, now=LATER)
    while await recover(another):
        pass
    thread = another.thread("t")
    assert await thread.waiting() == []
    assert {record.status for record in await thread.runs()} == {"completed"}
    said = [text_of(each.content) for each in await thread.messages() if isinstance(each, UserMessage)]
    assert said == ["one", "two", "three", "four"]
    steered = [text_of(each.message.content) for each in await thread.events() if isinstance(each, UserMessageAdded)]
    assert steered == ["two", "three"]
    return process.is_dead


async def test_messages_survive_the_death_of_their_driver_at_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.runs.stored.journal._FIRST_PAUSE", 0.0)
    deaths = 0
    while await handle_messages(deaths):
        deaths += 1
    assert deaths >= 7
