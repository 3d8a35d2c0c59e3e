"""Summaries kept beside stored runs, and the versions of their readers."""

from typing import Any

import pytest
from tests.runs.recording_store import get_record

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import ModelError, StoreError
from batonkit.log import codec
from batonkit.runs import RunSummary, read_summaries
from batonkit.runs.stored import backends as stored_backends
from batonkit.stores import SUMMARY_NOTE, MemoryStore
from batonkit.testing import ScriptedModel, call, transfer_to


@tool
async def ask(ctx: RunContext) -> str:
    """Ask."""
    return str(await ctx.interrupt("?"))


async def summary_of(store: MemoryStore, run_id: str) -> RunSummary:
    """Return the summary of a run, which must have one."""
    return (await read_summaries(store, [run_id]))[run_id]


async def test_a_list_of_runs_can_show_summaries_without_reading_logs() -> None:
    store = MemoryStore()
    router = Agent("Router", sub_agents=[Agent("Clerk", tools=[ask])])
    runner = Runner(router, model=ScriptedModel([transfer_to("Clerk"), call("ask"), "done"]), store=store)
    await runner.submit("  Where is\n my " + "long " * 100, run_id="r")
    assert await summary_of(store, "r") == RunSummary(("Where is my " + "long " * 100)[:200].strip(), "Router")
    await runner.runs.drive("r")
    assert (await summary_of(store, "r")).agents == ("Router", "Clerk")
    await runner.runs.answer("r", "yes")
    await runner.runs.drive("r")
    summary = await summary_of(store, "r")
    assert (summary.agents, summary.usage.model_calls, summary.error) == (("Router", "Clerk"), 3, "")
    assert await store.notes("r") == {}


async def test_a_summary_names_the_error_until_the_run_is_resumed() -> None:
    store = MemoryStore()
    runner = Runner(Agent("A", model=ScriptedModel([ModelError("overloaded"), "done"])), store=store)
    with pytest.raises(ModelError):
        await runner.run("hi", run_id="r")
    assert (await summary_of(store, "r")).error == "ModelError: overloaded"
    await runner.resume("r")
    assert (await summary_of(store, "r")).error == ""
    fork = await runner.runs.fork("r", at=3)
    assert (await summary_of(store, fork)).forked_from == "r@3"


async def test_an_agent_inside_another_never_stands_for_the_run() -> None:
    store = MemoryStore()
    pick = Agent("Pick", description="Picks.", model=ScriptedModel(["red"]))
    clerk = Agent(
        "Clerk", tools=[ask, pick.as_tool("pick")], model=ScriptedModel([call("pick", request="?"), call("ask")])
    )
    steps = [transfer_to("Clerk"), "done"]
    runner = Runner(Agent("Router", sub_agents=[clerk], model=ScriptedModel(steps)), store=store)
    await runner.run("hi", run_id="r")
    summary = await summary_of(store, "r")
    assert (summary.agents, summary.inner_agents, summary.active_agent) == (("Router", "Clerk"), ("Pick",), "Clerk")


async def test_a_summary_names_the_agent_that_control_came_back_to() -> None:
    store = MemoryStore()
    clerk = Agent("Clerk", tools=[ask])
    steps = [transfer_to("Clerk"), call("ask"), transfer_to("Router"), "done"]
    runner = Runner(Agent("Router", sub_agents=[clerk]), model=ScriptedModel(steps), store=store)
    await runner.run("hi", run_id="r")
    assert (await summary_of(store, "r")).active_agent == "Clerk"
    await runner.resume("r", "yes")
    summary = await summary_of(store, "r")
    assert (summary.agents, summary.active_agent) == (("Router", "Clerk"), "Router")


async def test_a_damaged_summary_is_a_store_error() -> None:
    store = MemoryStore()
    await store.create("r", [b"{}"], notes={SUMMARY_NOTE: b"not JSON"})
    with pytest.raises(StoreError, match="the summary of run `r` is damaged"):
        await read_summaries(store, ["r"])


async def test_a_run_that_a_newer_version_wrote_to_is_left_to_newer_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def runner(*steps: Any) -> Runner[Any, Any]:
        return Runner(Agent("A", model=ScriptedModel(steps), tools=[ask]), store=store)

    await runner(call("ask")).run("hi", run_id="r")
    assert (await get_record(store, "r")).reader == codec.READER_VERSION
    monkeypatch.setattr(stored_backends, "READER_VERSION", codec.READER_VERSION + 1)
    await runner(call("ask")).resume("r", "yes")
    assert (await get_record(store, "r")).reader == codec.READER_VERSION + 1
    await runner().runs.answer("r", "yes")
    assert await store.runnable() == []
    assert [run.run_id for run in await store.runnable(reader=codec.READER_VERSION + 1)] == ["r"]
