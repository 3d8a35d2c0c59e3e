"""The ids that new runs, threads and owners may have."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from batonkit import Agent, Runner
from batonkit.errors import InvalidIdError
from batonkit.realtime import RealtimeAgent, RealtimeRunner
from batonkit.runs import BackgroundRunner
from batonkit.stores import MemoryStore, RunRecord, iter_records
from batonkit.testing import ScriptedModel
from batonkit.testing.realtime import ScriptedRealtimeModel

REFUSED_RUN_IDS = ["a\r\nSet-Cookie: b=c", "a\n", 'a"b', "a b", "a/b", "a\\b", "ä", "a\0", "a\u202eb", "\ud800", "`a`"]
REFUSED_NAMES = ["a\r\nb", "a\n", "a\0", "a\x1b[2J", "a\u2028b", "a\u202eb", "\ud800"]
NAMES = ["u42", "ann@example.com", "+49 30 1234", "Zoë", "王芳", "C017/1699.5", "team #3: 'night'", "a" * 300]


def make_runner(store: Any = "memory:") -> Runner[Any, Any]:
    return Runner(Agent("Desk"), model=ScriptedModel(["Hello."], cycle=True), store=store)


async def run(store: MemoryStore, **args: Any) -> None:
    await make_runner(store).run("Hi.", **args)


async def submit(store: MemoryStore, **args: Any) -> None:
    await make_runner(store).submit("Hi.", **args)


async def start(store: MemoryStore, **args: Any) -> None:
    await BackgroundRunner(make_runner(store)).start("Hi.", **args)


async def connect(store: MemoryStore, **args: Any) -> None:
    RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel([]), store=store).connect(**args)


async def fork(store: MemoryStore, **args: Any) -> None:
    await make_runner(store).runs.fork((await make_runner().run("Hi.")).events, **args)


Start = Callable[..., Awaitable[None]]
STARTS: list[Start] = [run, submit, start, connect, fork]


async def ids_in(store: MemoryStore) -> list[str]:
    return [record.run_id async for record in iter_records(store)]


@pytest.mark.parametrize("begin", STARTS)
@pytest.mark.parametrize("run_id", REFUSED_RUN_IDS)
async def test_a_run_id_with_other_characters_is_refused_before_anything_is_stored(begin: Start, run_id: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidIdError, match=r"^run_id is .*; use ASCII letters, digits and [.] _ ~ : @ % [+] = -$"):
        await begin(store, run_id=run_id)
    assert await ids_in(store) == []


@pytest.mark.parametrize("begin", STARTS)
@pytest.mark.parametrize("thread", REFUSED_NAMES)
async def test_a_thread_with_control_characters_is_refused_before_anything_is_stored(begin: Start, thread: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidIdError, match=r"^thread is .*; use printable characters$"):
        await begin(store, thread=thread)
    assert await ids_in(store) == []


@pytest.mark.parametrize("begin", [run, submit, start, connect])
@pytest.mark.parametrize("owner", REFUSED_NAMES)
async def test_an_owner_with_control_characters_is_refused_before_anything_is_stored(begin: Start, owner: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidIdError, match=r"^owner is .*; use printable characters$"):
        await begin(store, owner=owner)
    assert await ids_in(store) == []


async def test_the_message_names_the_character_and_those_that_work() -> None:
    with pytest.raises(InvalidIdError) as caught:
        await make_runner(None).run("Hi.", run_id='order "7"')
    allowed = "ASCII letters, digits and . _ ~ : @ % + = -"
    assert str(caught.value) == f"run_id is 'order \"7\"', which contains ' '; use {allowed}"
    assert (caught.value.parameter, caught.value.id) == ("run_id", 'order "7"')


@pytest.mark.parametrize("name", NAMES)
async def test_threads_and_owners_may_have_any_printable_characters(name: str) -> None:
    store = MemoryStore()
    await make_runner(store).run("Hi.", thread=name, owner=name)
    record: RunRecord = (await store.list(thread=name, owner=name)).records[0]
    assert (record.thread, record.owner) == (name, name)


async def test_generated_ids_of_runs_and_forks_are_valid_as_ids_of_new_runs() -> None:
    runner = make_runner()
    result = await runner.run("Hi.", thread="王芳")
    for id in (
        result.run_id,
        await runner.runs.fork(result.run_id),
        await runner.runs.fork(result.run_id, thread="t2"),
    ):
        again = await make_runner().run("Hi.", run_id=id)
        assert again.run_id == id


@pytest.mark.parametrize("id", ["r", "2026-11-18T01:47:27+00:00", "ann%40example.com:r1", "a=b@c_d~e.f", "R" * 300])
async def test_a_run_id_may_have_the_documented_characters(id: str) -> None:
    assert (await make_runner().run("Hi.", run_id=id)).run_id == id
