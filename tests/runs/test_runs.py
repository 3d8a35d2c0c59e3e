"""`runner.runs`, with a store and without: the same operations, the same errors."""

import asyncio
import inspect
from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import ModelError, RunConflictError, RunError, RunExistsError, RunNotFoundError
from batonkit.log import Event, RunCompleted, RunStarted
from batonkit.runs import Runs
from batonkit.stores import Store
from batonkit.testing import ScriptedModel, call

STORES = pytest.mark.parametrize("store", [None, "memory:"])


@tool
async def ask(ctx: RunContext[Any], question: str) -> str:
    """Ask a person."""
    return f"{ctx.context}: {await ctx.interrupt(question)}"


def desk(*steps: Any, store: Store | str | None = None) -> Runner[Any, str]:
    return Runner(Agent("A", tools=[ask]), model=ScriptedModel([*steps]), store=store)


def asking(store: Store | str | None = None) -> Runner[Any, str]:
    return desk(call("ask", question="?"), "done", store=store)


async def test_a_run_without_a_store_is_kept_only_if_it_stops_before_its_end() -> None:
    runner = desk("hello", call("ask", question="?"), ModelError("down"))
    await runner.run("hi", run_id="completed")
    await runner.run("hi", run_id="suspended")
    with pytest.raises(ModelError):
        await runner.run("hi", run_id="failed")
    statuses = {record.run_id: record.status for record in (await runner.runs.list()).records}
    assert statuses == {"suspended": "suspended", "failed": "failed"}
    with pytest.raises(RunNotFoundError, match="`completed` in the memory of this runner, which has no store"):
        await runner.runs.get("completed")


@STORES
async def test_a_run_is_inspected_answered_driven_and_deleted(store: str | None) -> None:
    runner = asking(store)
    await runner.run("hi", run_id="r", context="mine")
    assert (await runner.runs.get("r")).status == "suspended"
    await runner.runs.answer("r", "yes")
    assert (await runner.runs.get("r")).status == "running"
    assert (await runner.runs.drive("r")).status == "completed"
    watched: list[Event] = [event async for _, event in runner.runs.watch("r")]
    assert watched == await runner.runs.events("r")
    assert (type(watched[0]), type(watched[-1])) == (RunStarted, RunCompleted)
    assert "mine: yes" in str(watched), "the context stays attached to the run in this process"
    assert [await runner.runs.delete("r") for _ in range(2)] == [True, False]
    with pytest.raises(RunNotFoundError):
        await runner.runs.events("r")


@STORES
async def test_the_errors_of_resuming_do_not_depend_on_the_store(store: str | None) -> None:
    runner = asking(store)
    await runner.run("hi", run_id="r")
    outcomes = await asyncio.gather(*[runner.resume("r", "yes") for _ in range(2)], return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["RunConflictError", "RunResult"]
    with pytest.raises(RunError, match="`r` has completed and cannot be resumed"):
        await runner.resume("r", "yes")
    with pytest.raises(RunExistsError):
        await runner.run("hi", run_id="r")


@STORES
async def test_a_run_that_is_driven_is_not_deleted(store: str | None) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await go.wait()
        return "waited"

    runner = Runner(Agent("A", tools=[wait]), model=ScriptedModel([call("wait"), "done"]), store=store)
    run_id = await runner.submit("hi")
    driving = asyncio.create_task(runner.runs.drive(run_id))
    await entered.wait()
    with pytest.raises(RunConflictError, match="is being driven: cancel it"):
        await runner.runs.delete(run_id)
    go.set()
    assert (await driving).status == "completed"
    assert await runner.runs.delete(run_id)


async def test_a_run_keeps_its_id_while_another_with_the_same_id_is_refused() -> None:
    runner = asking()
    await runner.run("hi", run_id="r")
    before = await runner.runs.events("r")
    with pytest.raises(RunExistsError, match="`r` already exists; resume it, or choose another run_id"):
        await runner.run("again", run_id="r")
    assert await runner.runs.events("r") == before


async def test_a_runner_without_a_store_forgets_the_oldest_runs_that_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.runs.stored.repository._MAX_COMPLETED", 2)
    runner = desk(*[step for _ in range(4) for step in (call("ask", question="?"), "done")], call("ask", question="?"))
    for number in range(4):
        await runner.run("hi", run_id=f"r{number}")
        await runner.resume(f"r{number}", "yes")
    await runner.run("hi", run_id="open")
    assert {record.run_id for record in (await runner.runs.list()).records} == {"r2", "r3", "open"}


def test_every_method_shows_its_parameters() -> None:
    public = {name: method for name, method in vars(Runs).items() if not name.startswith("_")}
    assert len(public) == 14
    for name, method in public.items():
        parameters = [each.kind for each in inspect.signature(method).parameters.values()]
        assert name == "list" or inspect.Parameter.VAR_KEYWORD not in parameters, name
        assert inspect.Parameter.VAR_POSITIONAL not in parameters, name
        assert inspect.getdoc(method), name
