"""Processes that send messages to busy threads and are killed at random: each message is handled once, in order.

A small sample with every test run; INBOX_MESSAGES, or 500 of them, with `make soak`.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import PROFILE
from tests.unfinished import recover

from batonkit import Agent, Runner, tool
from batonkit.errors import BatonError, RunConflictError
from batonkit.log import RunStarted, UserMessageAdded
from batonkit.messages import Message, ToolMessage, UserMessage, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from batonkit.runs.run_args import WhenBusy
from batonkit.stores import FullStore, iter_records, resolve_store

MESSAGES = int(os.environ.get("INBOX_MESSAGES", "500" if PROFILE == "soak" else "40"))
THREADS = ("t0", "t1")
MODES: tuple[WhenBusy, ...] = ("queue", "steer", "preempt")
WORKERS = 2
LEASE = 0.4
MAX_PER_KILL = 7
LEAST_KILLS = MESSAGES // 10
"""The largest number of messages that are sent between two kills."""
TIME_LIMIT = 1200


class Sent(NamedTuple):
    """A message that a process has begun to send."""

    text: str
    thread: str
    before: int
    after: int | None
    """The time at which the process learned that it was sent; None if it was killed before."""


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(random.uniform(0, 0.01))
    return "seen"


class Looking:
    """A model that calls a tool a few times, depending on the last message of the user, and then answers."""

    name = "looking"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        messages: Sequence[Message] = list(request.messages)
        last = max((place for place, one in enumerate(messages) if isinstance(one, UserMessage)), default=0)
        looked = sum(isinstance(one, ToolMessage) for one in messages[last:])
        if looked < sum(text_of(messages[last].content).encode()) % 3:
            yield ToolCallChunk(0, "", "look", "{}")
        else:
            yield TextChunk("Yes.")
        yield ModelResponse(stop_reason="stop")


def make_runner(store: Any) -> Runner[Any, Any]:
    store.lease_seconds = LEASE
    return Runner(Agent("Desk", model=Looking(), tools=[look], max_turns=20), store=store)


async def work(url: str, log_path: Path) -> None:
    """Send messages, and drive the runs that they become, without end."""
    runner = make_runner(resolve_store(url))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(drive(runner))
        for number in range(2):
            tasks.create_task(send(runner, log_path, number))


async def drive(runner: Runner[Any, Any]) -> None:
    while True:
        with suppress(BatonError):  # The other process was faster.
            await recover(runner, max_concurrency=4)
        await asyncio.sleep(0.01)


async def send(runner: Runner[Any, Any], log_path: Path, sender: int) -> None:
    for number in range(10_000):
        text, thread, mode = f"{os.getpid()}.{sender}.{number}", random.choice(THREADS), random.choice(MODES)
        if not await is_accepting(runner, thread):
            await asyncio.sleep(0.02)
            continue
        note(log_path, f"begin {text} {thread} {time.monotonic_ns()}")
        try:
            if random.random() < 0.5:
                await runner.submit(text, thread=thread, when_busy=mode)
            else:
                await runner.run(text, thread=thread, when_busy=mode)
        except RunConflictError:
            continue  # The machine was so busy that the lease expired; another worker handles the message.
        except BatonError as error:
            note(log_path, f"error {text} {type(error).__name__}:{error}".replace("\n", " "))
            continue
        note(log_path, f"end {text} {time.monotonic_ns()}")
        await asyncio.sleep(random.uniform(0, 0.02))


async def is_accepting(runner: Runner[Any, Any], thread: str) -> bool:
    return len(await runner.thread(thread).waiting()) < 30


def note(log_path: Path, line: str) -> None:
    with log_path.open("a") as file:
        file.write(line + "\n")


def read_notes(log_path: Path) -> tuple[list[Sent], list[str]]:
    sent, errors = dict[str, Sent](), list[str]()
    for line in log_path.read_text().splitlines():
        kind, text, *rest = line.split(" ", 3)
        if kind == "begin":
            sent[text] = Sent(text, rest[0], int(rest[1]), None)
        elif kind == "end":
            sent[text] = sent[text]._replace(after=int(rest[0]))
        else:
            errors.append(line)
    return [*sent.values()], errors


def count_sent(log_path: Path) -> int:
    return log_path.read_text().count("begin ")


def fork_worker(url: str, log_path: Path) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            random.seed()
            asyncio.run(work(url, log_path))
        finally:
            os._exit(1)
    return worker


def kill(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


async def finish_all(runner: Runner[Any, Any], store: FullStore) -> None:
    async with asyncio.timeout(TIME_LIMIT):
        while [r async for r in iter_records(store, status=["running"])] or await any_waiting(store):
            await recover(runner)
            await asyncio.sleep(0.05)


async def any_waiting(store: FullStore) -> bool:
    return any([await store.inbox(thread, limit=1) for thread in THREADS])


async def handled(runner: Runner[Any, Any], thread: str) -> tuple[list[str], int]:
    """Return the messages of a thread in the order in which its runs handled them, and how many steered one."""
    texts, steered = list[str](), 0
    for record in await runner.thread(thread).runs():
        for event in await runner.runs.events(record.run_id):
            if isinstance(event, RunStarted):
                texts += [text_of(message.content) for message in event.input]
            elif isinstance(event, UserMessageAdded):
                texts.append(event.text)
                steered += 1
    return texts, steered


async def find_violations(url: str, log_path: Path) -> tuple[dict[str, int], list[str]]:
    store = resolve_store(url)
    runner, found = make_runner(store), list[str]()
    await finish_all(runner, store)
    sent, errors = read_notes(log_path)
    by_text = {one.text: one for one in sent}
    figures = {"sent": len(sent), "confirmed": sum(one.after is not None for one in sent), "errors": len(errors)}
    figures |= {"handled": 0, "steered": 0, "cancelled": 0}
    found += errors
    for thread in THREADS:
        texts, steered = await handled(runner, thread)
        statuses = [record.status for record in await runner.thread(thread).runs()]
        figures["handled"] += len(texts)
        figures["steered"] += steered
        figures["cancelled"] += statuses.count("cancelled")
        found += [f"{status} run in {thread}" for status in statuses if status not in ("completed", "cancelled")]
        found += [f"{text} was handled {texts.count(text)} times" for text in set(texts) if texts.count(text) > 1]
        lost = {one.text for one in sent if one.thread == thread and one.after is not None} - set(texts)
        found += [f"{thread} lost {text}" for text in lost]
        messages = [one for one in await runner.thread(thread).messages() if isinstance(one, UserMessage)]
        if [text_of(one.content) for one in messages] != texts:
            found.append(f"the history of {thread} differs from its runs")
        latest = 0
        for text in texts:
            # A message that was sent before another one was begun must be handled before it.
            after = by_text[text].after
            if after is not None and after < latest:
                found.append(f"{text} of {thread} was handled too late")
            latest = max(latest, by_text[text].before)
    await store.close()
    return figures, found


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_kill_loses_or_repeats_a_message(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    log_path, kills, began = tmp_path / "messages", 0, time.monotonic()
    log_path.touch()
    asyncio.run(find_violations(url, log_path))
    workers = [fork_worker(url, log_path) for _ in range(WORKERS)]
    try:
        while time.monotonic() < began + TIME_LIMIT:
            count = count_sent(log_path)
            # On a busy machine it takes so long to start a process that more messages are sent before enough kills.
            if count >= MESSAGES and kills >= LEAST_KILLS:
                break
            # Counted in messages, not in seconds: the faster the workers, the sooner they die.
            wanted = count + random.randint(1, MAX_PER_KILL)
            while count_sent(log_path) < wanted and time.monotonic() < began + TIME_LIMIT:
                time.sleep(0.002)
            time.sleep(random.uniform(0, 0.02))
            kill(workers.pop(random.randrange(WORKERS)))
            kills += 1
            workers.append(fork_worker(url, log_path))
    finally:
        for worker in workers:
            kill(worker)
    figures, found = asyncio.run(find_violations(url, log_path))
    seconds = time.monotonic() - began
    sys.stderr.write(f"\n{kind}: {kills} kills, {figures}, {len(found)} violations {found[:3]}, {seconds:.0f} s\n")
    assert found == []
    assert figures["sent"] >= MESSAGES
    assert kills >= LEAST_KILLS
