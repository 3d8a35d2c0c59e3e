"""Stores without an inbox, notes or retention: runs work, and features that need a part say what is missing."""

from typing import Any

import pytest
from tests.conformance.test_stores import ALL_CHECKS

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.runs import read_summaries
from batonkit.stores import (
    FullStore,
    MemoryStore,
    SQLiteStore,
    Store,
    SupportsInbox,
    SupportsNotes,
    SupportsRetention,
    WaitingMessage,
    resolve_store,
)
from batonkit.stores.parts import has_part, innermost_store, methods_of
from batonkit.stores.retention import expire_runs
from batonkit.testing import FaultyStore, ScriptedModel
from batonkit.testing.conformance import STORE_CHECKS, StoreCheck, check_name
from batonkit.worker import Worker

INBOX = "batonkit.stores.SupportsInbox: `enqueue`, `waiting`, `inbox`, `withdraw`, `notify`, `idle_threads`"


class LogsOnly:
    """A store that has the methods of `Store` and no others, as the first version of a new one may."""

    def __init__(self) -> None:
        memory = MemoryStore()
        for name in methods_of(Store):
            setattr(self, name, getattr(memory, name))


def logs_only() -> Store:
    store: Any = LogsOnly()
    return store


def _runner(store: Store, *answers: str) -> Runner[Any, Any]:
    return Runner(Agent("Clerk", model=ScriptedModel([*answers])), store=store)


def test_a_store_has_13_methods_and_its_parts_12_more() -> None:
    assert len(methods_of(Store)) == 13
    assert [len(methods_of(part)) for part in (SupportsInbox, SupportsNotes, SupportsRetention)] == [6, 4, 2]
    assert not isinstance(logs_only(), SupportsInbox | SupportsNotes | SupportsRetention)
    assert isinstance(MemoryStore(), FullStore)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=check_name)
async def test_the_suite_for_stores_needs_no_part(check: StoreCheck) -> None:
    store = logs_only()
    await check(lambda: store)


def test_the_suites_of_the_parts_are_beside_the_one_for_stores() -> None:
    names = [check_name(check) for check in ALL_CHECKS]
    assert len(names) == len({*names}) > len(STORE_CHECKS)


async def test_runs_and_threads_work_without_any_part() -> None:
    runner = _runner(logs_only(), "one", "two", "three")
    assert [(await runner.run(text, thread="t")).output for text in "abc"] == ["one", "two", "three"]
    thread = runner.thread("t")
    assert [message.content for message in await thread.messages()] == ["a", "one", "b", "two", "c", "three"]
    assert await thread.waiting() == []


async def test_a_new_runner_reads_a_thread_from_its_logs() -> None:
    store = logs_only()
    await _runner(store, "one", "two").run("a", thread="t")
    await _runner(store, "two").run("b", thread="t")
    model = ScriptedModel(["three"])
    await Runner(Agent("Clerk", model=model), store=store).run("c", thread="t")
    assert [message.content for message in model.requests[0].messages] == ["a", "one", "b", "two", "c"]


@pytest.mark.parametrize("mode", ["queue", "steer", "preempt"])
async def test_when_busy_needs_an_inbox_also_if_the_thread_is_free(mode: Any) -> None:
    runner = _runner(logs_only(), "one")
    with pytest.raises(SetupError) as refused:
        await runner.run("a", thread="t", when_busy=mode)
    assert str(refused.value) == f'when_busy="{mode}" needs a store with an inbox; LogsOnly lacks methods of {INBOX}'
    with pytest.raises(SetupError, match=f'when_busy="{mode}" needs a store with an inbox'):
        await runner.submit("a", thread="t", when_busy=mode)
    assert (await runner.run("a", thread="t")).output == "one"


async def test_a_worker_needs_notes() -> None:
    with pytest.raises(
        SetupError, match=r"Worker\(\) needs a store with notes; .*Notes: `put_note`, `notes`, `read_notes`"
    ):
        Worker(_runner(logs_only()))


async def test_expiry_and_erasure_need_retention() -> None:
    store = resolve_store(logs_only())
    for attempt in (store.expire(0), store.erase(owner="ada"), expire_runs(logs_only(), 0)):
        with pytest.raises(SetupError, match=r"needs a store with retention; .*SupportsRetention: `expire`, `erase`$"):
            await attempt


async def test_a_missing_part_is_empty_and_keeps_nothing() -> None:
    store = resolve_store(logs_only())
    await store.create("r", [b"one"], thread="t", status="completed", notes={"n": b"note"})
    assert (await store.notes("r"), await read_summaries(store, ["r"])) == ({}, {})
    assert [run.run_id for run in await store.thread_notes("t", "n", before=2)] == ["r"]
    assert await store.thread_notes("t", "n", before=1) == []
    assert (await store.waiting("m"), await store.withdraw("m")) == (None, False)
    with pytest.raises(SetupError, match="a message that waits for a thread needs a store with an inbox"):
        await store.enqueue(WaitingMessage(run_id="m", thread="t"), limit=1)
    with pytest.raises(SetupError, match="the note `n` of a run needs a store with notes"):
        await store.put_note("r", "n", b"note")


def test_a_complete_store_is_returned_unchanged_and_a_wrapper_shows_what_is_inside() -> None:
    complete, partial = SQLiteStore("runs.db"), logs_only()
    assert resolve_store(complete) is complete
    wrapped = resolve_store(partial)
    assert innermost_store(FaultyStore(wrapped)) is partial
    assert repr(wrapped) == f"PartialStore({partial!r})"
    assert (has_part(wrapped, SupportsNotes), has_part(FaultyStore(complete), SupportsNotes)) == (False, True)
