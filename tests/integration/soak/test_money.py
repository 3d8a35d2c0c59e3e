"""Payments while processes die: forks, edited approvals, cancelled cancels, calls that were cut off, steered messages.

A few kills with every test run; MONEY_KILLS, or 300 of them for each database, with `make soak`.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import PROFILE
from tests.integration.soak.test_threads import kill, prepare_store
from tests.unfinished import recover

from batonkit import Agent, Approval, RunContext, Runner, guardrail, tool
from batonkit.errors import BatonError
from batonkit.log import InterruptAnswered, RunFailed, RunStarted, ToolReturned
from batonkit.log.log import Log
from batonkit.log.once_calls import OUTCOME_UNKNOWN
from batonkit.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse
from batonkit.stores import RunRecord, iter_records, resolve_store

KILLS = int(os.environ.get("MONEY_KILLS", "300" if PROFILE == "soak" else "8"))
FIRST_PAYMENT_SECONDS = 60
"""The time limit for the first payment, on a machine that is busy with other tests."""
WORKERS = 3
LEASE = 0.5
MAX_LIFETIME = {"sqlite": 0.4, "postgres": 0.8}
MAX_PAUSE = 0.01
THREADS = [f"t{number}" for number in range(6)]
EUROS = 100
EVIL = "evil"


class Ledger:
    """Files to which lines are appended with one write, so that a kill neither loses nor truncates one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, book: str, *words: object) -> None:
        line = " ".join([str(word) for word in words]) + "\n"
        file = os.open(self._folder / book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def read(self, book: str) -> list[list[str]]:
        path = self._folder / book
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def has_paid(self, order: str) -> bool:
        return any(words[0] == order for words in self.read("paid"))


class ObstinateModel:
    """Pays for the order of the last message, and again for every order whose outcome it reads to be unknown."""

    name = "obstinate"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        await _pause()
        messages = request.messages
        for message in messages:
            if isinstance(message, UserMessage):
                self._ledger.note("read", *text_of(message.content).split())
        orders = [] if isinstance(messages[-1], ToolMessage) else _orders(messages)
        if not orders:
            yield ModelResponse(AssistantMessage("Done."))
            return
        calls = [
            ToolCall(f"c{n}", "pay", json.dumps({"order": order, "euro": EUROS})) for n, order in enumerate(orders)
        ]
        yield ModelResponse(AssistantMessage("", tuple(calls)))


def _orders(messages: Sequence[Message]) -> list[str]:
    arguments = {
        call.id: call.arguments for each in messages if isinstance(each, AssistantMessage) for call in each.tool_calls
    }
    unknown = [
        json.loads(arguments[message.tool_call_id])["order"]
        for message in messages
        if isinstance(message, ToolMessage) and OUTCOME_UNKNOWN in text_of(message.content)
    ]
    _, _, order = text_of(messages[-1].content).partition("pay ")
    return list(dict.fromkeys([*unknown, order] if order else unknown))


async def _pause() -> None:
    await asyncio.sleep(random.uniform(0, MAX_PAUSE))


def make_runner(store: Any, ledger: Ledger) -> Runner[Any, Any]:
    store.lease_seconds = LEASE

    @tool(effect="once", needs_approval=True)
    async def pay(ctx: RunContext, order: str, euro: int) -> str:
        """Pay for an order."""
        await _pause()
        ledger.note("paid", order, euro, ctx.idempotency_key)
        await _pause()
        return f"paid {order} {euro}"

    @guardrail
    async def no_evil(ctx: RunContext, messages: Any) -> bool:
        await _pause()
        for message in messages:
            ledger.note("checked", *text_of(message.content).split())
        return not any(EVIL in text_of(message.content) for message in messages)

    till = Agent("Till", model=ObstinateModel(ledger), tools=[pay], input_guardrails=[no_evil])
    return Runner(till, store=store)


class Shop:
    """The acts of one process, at random, until it is killed."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self.store = resolve_store(url)
        self.ledger = ledger
        self.runner = make_runner(self.store, ledger)

    async def work(self) -> None:
        acts: list[Callable[[], Awaitable[object]]] = [
            *(self.order, self.order, self.steer, self.answer, self.answer, self.answer),
            *(self.cancel, self.cancel_the_cancel, self.fork, self.recover),
        ]
        while True:
            try:
                await random.choice(acts)()
            except BatonError:
                await _pause()

    async def order(self) -> None:
        result = await self.runner.run(self._new_order(), thread=random.choice(THREADS))
        self.ledger.note("accepted", result.run_id)

    async def steer(self) -> None:
        text = f"{EVIL} {self._new_order()}" if random.random() < 0.3 else self._new_order()
        await self.runner.run(text, thread=random.choice(THREADS), when_busy="steer")

    async def answer(self) -> None:
        record = await self._waiting_run()
        if record is not None:
            await self.runner.resume(record.run_id, await self._answers(record.run_id))

    async def cancel(self) -> None:
        """Stop a run at any moment, a payment included."""
        async with await self._stream() as run:
            await _pause()
            await run.cancel()

    async def cancel_the_cancel(self) -> None:
        """Cancel a task that drives a run, and again while it leaves, as servers and scopes do."""
        driving = asyncio.ensure_future(self.answer() if random.random() < 0.7 else self.order())
        for _ in range(random.randint(1, 4)):
            await _pause()
            driving.cancel()
        await asyncio.wait([driving])
        if not driving.cancelled() and isinstance(error := driving.exception(), Exception):
            raise error

    async def fork(self) -> None:
        """Try a run out from anywhere; nothing may be paid for that."""
        record = await self._any_run(["completed", "suspended", "cancelled"])
        if record is None:
            return
        length = len(await self.runner.runs.events(record.run_id))
        fork = await self.runner.runs.fork(record.run_id, at=random.randint(1, length))
        result = await self.runner.resume(fork)
        while result.status == "suspended":
            result = await self.runner.resume(fork, await self._answers(fork))

    async def recover(self) -> None:
        await recover(self.runner)

    async def _stream(self) -> Any:
        record = await self._waiting_run()
        if record is None:
            return self.runner.stream(self._new_order(), thread=random.choice(THREADS))
        return self.runner.stream_resume(record.run_id, await self._answers(record.run_id))

    async def _waiting_run(self) -> RunRecord | None:
        """Return a run that waits for a person; a fork that its process left is ended with the others."""
        records = [record async for record in iter_records(self.store, status=["suspended"]) if record.thread]
        return random.choice(records) if records else None

    async def _any_run(self, statuses: list[Any]) -> RunRecord | None:
        records = [record async for record in iter_records(self.store, status=statuses)]
        return random.choice(records) if records else None

    async def _answers(self, run_id: str) -> Mapping[str, Any]:
        events = await self.runner.runs.events(run_id)
        return {key: self._decide(raised.payload) for key, raised in Log(events).open_interrupts().items()}

    def _decide(self, question: dict[str, Any]) -> Any:
        if question["kind"] == "approval":
            edited = Approval(True, arguments={**question["arguments"], "euro": random.randint(1, EUROS - 1)})
            return random.choice([Approval(True), edited, Approval(False, reason="Not now.")])
        if "forked_from" in question:
            return question["default"]
        # A person looks into the bank's books.
        order = question["arguments"]["order"]
        return {"result": f"paid {order}"} if self.ledger.has_paid(order) else {"run_again": True}

    def _new_order(self) -> str:
        order = f"{os.getpid()}.{time.monotonic_ns()}"
        return f"pay {order}"


def fork_worker(url: str, folder: Path) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            random.seed()
            asyncio.run(Shop(url, Ledger(folder)).work())
        finally:
            os._exit(1)
    return worker


class Figures(NamedTuple):
    """Counts of what was tried, and the violations."""

    runs: int
    forks: int
    paid: int
    edited: int
    asked: int
    violations: list[str]


async def finish_and_check(url: str, folder: Path) -> Figures:
    """End all runs as a person and a worker would, and compare the books with the logs."""
    shop = Shop(url, Ledger(folder))
    async with asyncio.timeout(300):
        while [record async for record in iter_records(shop.store, status=["running", "suspended"])]:
            await recover(shop.runner)
            async for record in iter_records(shop.store, status=["suspended"]):
                try:
                    await shop.runner.resume(record.run_id, await shop._answers(record.run_id))
                except BatonError as error:
                    shop.ledger.note("refused", record.run_id, type(error).__name__)
            await asyncio.sleep(0.02)
    paid = {order: int(euro) for order, euro, _ in shop.ledger.read("paid")}
    times = Counter(words[0] for words in shop.ledger.read("paid"))
    violations = [f"{order} was paid {count} times" for order, count in times.items() if count > 1]
    checked = {" ".join(words) for words in shop.ledger.read("checked")}
    unchecked = {" ".join(words) for words in shop.ledger.read("read")} - checked
    violations += [f"{text!r} was read, but not checked" for text in unchecked]
    violations += [f"{' '.join(words)!r} was read" for words in shop.ledger.read("read") if EVIL in words]
    lost = {words[0] for words in shop.ledger.read("accepted")}
    runs = forks = edited = asked = 0
    async for record in iter_records(shop.store):
        events = await shop.runner.runs.events(record.run_id)
        lost.discard(record.run_id)
        started = events[0]
        assert isinstance(started, RunStarted)
        runs, forks = runs + 1, forks + bool(started.forked_from)
        asked += sum(isinstance(event, InterruptAnswered) and "/ask" in event.key for event in events)
        for event in events:
            if isinstance(event, RunFailed) and event.error_type != "GuardrailTrippedError":
                violations.append(f"{record.run_id} failed: {event.error_type}: {event.message}")
            if not isinstance(event, ToolReturned) or event.is_error:
                continue
            _, order, *euro = text_of(event.content).split()
            if order not in paid:
                violations.append(f"{record.run_id} says that {order} was paid")
            if euro and int(euro[0]) != paid.get(order):
                violations.append(f"{record.run_id} says that {euro[0]} was paid for {order}, not {paid.get(order)}")
            edited += bool(event.edited_arguments)
    await shop.store.close()
    violations += [f"{run_id} is lost" for run_id in lost]
    return Figures(runs, forks, len(paid), edited, asked, violations)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_kill_pays_twice_loses_a_run_or_lets_a_message_pass(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    asyncio.run(prepare_store(url))
    workers = [fork_worker(url, tmp_path) for _ in range(WORKERS)]
    try:
        deadline = time.monotonic() + FIRST_PAYMENT_SECONDS
        while not Ledger(tmp_path).read("paid") and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(KILLS):
            time.sleep(random.uniform(0, MAX_LIFETIME[kind]))
            kill(workers.pop(0))
            workers.append(fork_worker(url, tmp_path))
    finally:
        for worker in workers:
            kill(worker)
    figures = asyncio.run(finish_and_check(url, tmp_path))
    sys.stderr.write(
        f"\n{kind}: {KILLS} kills, {figures.runs} runs ({figures.forks} forks), {figures.paid} payments, "
        f"{figures.edited} of them edited, {figures.asked} answers, {len(figures.violations)} violations\n"
    )
    assert figures.violations == []
    assert figures.paid > 0
