"""Shard keys of runs and threads."""

from batonkit import Agent, Runner
from batonkit.stores import MemoryStore
from batonkit.stores.shards import SHARD_KEYS, add_shard_key, shard_key
from batonkit.testing import ScriptedModel

KNOWN = [3643, 2762, 3314, 2330, 255, 2640]


def test_the_key_is_a_stable_function_of_the_id() -> None:
    # These values must never change.
    assert [shard_key(id) for id in ("", "customer-7", "日本", "\ud800", "r~0ff", "r~0FF")] == KNOWN
    keys = {shard_key(f"thread {number}") for number in range(100_000)}
    assert len(keys) == SHARD_KEYS


def test_a_run_id_gets_the_key_of_its_thread_once() -> None:
    run_id = add_shard_key("r", "customer-7")
    assert shard_key(run_id) == shard_key("customer-7")
    assert add_shard_key(run_id, "customer-7") == run_id
    assert add_shard_key("r", "") == "r"
    other = add_shard_key("r~0ff", "customer-7")
    assert shard_key(other) == shard_key("customer-7")
    assert add_shard_key("r", "t~abc") == "r~abc"


async def test_runs_of_a_thread_are_generated_with_its_key() -> None:
    store = MemoryStore()
    runner = Runner(Agent("A", model=ScriptedModel(["hello"], cycle=True)), store=store)
    for _ in range(3):
        await runner.run("hi", thread="customer-7")
    await runner.submit("hi", thread="customer-7")
    runs = (await store.list()).records
    assert {shard_key(record.run_id) for record in runs} == {shard_key("customer-7")}
    fork = await runner.runs.fork(runs[0].run_id)
    assert shard_key(fork) == shard_key("customer-7")
    assert "~" not in (alone := (await runner.run("hi")).run_id)
    assert shard_key(await runner.runs.fork(alone)) == shard_key(alone)
