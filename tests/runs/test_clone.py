"""`runner.clone`: another runner of the same compiled team, with some options changed."""

import inspect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from batonkit import Agent, Limits, RunContext, RunHooks, Runner, SetupError, tool
from batonkit.errors import LimitError, RunNotFoundError
from batonkit.log import Event
from batonkit.runs import EventHandler, HandoffRules, HistoryOptions
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, transfer_to


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask a person."""
    return f"{ctx.context}: {await ctx.interrupt('?')}"


class Noting(RunHooks):
    """Hooks that note the ends of runs."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.ended.append(output)


class Counting:
    """An observer that counts events."""

    def __init__(self) -> None:
        self.events = 0

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        def count(event: Any) -> None:
            self.events += isinstance(event, Event)

        yield count


async def test_a_clone_shares_the_team_and_has_other_options() -> None:
    hooks, observer = Noting(), Counting()
    runner = Runner(Agent("A"), model=ScriptedModel(["one", "three"]))
    twin = runner.clone(model=ScriptedModel(["two"]), hooks=hooks, observers=[observer])
    outputs = [(await each.run("hi")).output for each in (runner, twin, runner)]
    assert (outputs, hooks.ended, observer.events > 3) == (["one", "two", "three"], ["two"], True)
    assert twin.team is runner.team
    assert twin.clone().team is runner.team


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_clone_has_the_same_runs_unless_it_gets_another_store(store: str | None) -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([call("ask")]), store=store)
    twin = runner.clone(model=ScriptedModel(["done"]))
    apart = twin.clone(store=MemoryStore())
    await runner.run("hi", run_id="r", context="mine")
    with pytest.raises(RunNotFoundError):
        await apart.resume("r", "yes")
    result = await twin.resume("r", "yes")
    assert (result.output, "mine: yes" in str(result.events)) == ("done", True)
    assert (await runner.runs.get("r")).status == "completed"


async def test_a_clone_may_be_given_none() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hi"], cycle=True)), store="memory:", limits=Limits(model_calls=0))
    with pytest.raises(LimitError):
        await runner.run("hi")
    assert (await runner.clone(limits=None).run("hi", run_id="r")).output == "hi"
    alone = runner.clone(store=None, limits=None)
    await alone.run("hi", run_id="s")
    assert repr(alone) == "Runner('A', 1 agent)"
    with pytest.raises(RunNotFoundError):
        await runner.runs.get("s")


async def test_a_clone_changes_history_and_rules_of_handoffs() -> None:
    model = ScriptedModel({"A": [[transfer_to("B"), transfer_to("C")]], "B": ["b"], "C": ["c"]}, cycle=True)
    runner = Runner(Agent("A", sub_agents=[Agent("B"), Agent("C")]), model=model)
    last = runner.clone(handoff_rules=HandoffRules(multiple_transfers="last"), history="none")
    hidden = last.clone(history=HistoryOptions(show_transfers=False))
    assert [(await each.run("hi")).agent for each in (runner, last, hidden)] == ["B", "C", "C"]
    read = [len(request.messages) for request in model.requests if request.agent != "A"]
    assert read[0] > read[1] == read[2] == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": 3}, r"int"),
        ({"hooks": 3}, r"Runner\.clone\(\) has hooks=3; give RunHooks\(…\) or None$"),
        ({"store": 3}, r"is not a store"),
        ({"history": "hiden"}, r"there is no history 'hiden'"),
        ({"handoff_rules": HandoffRules(loop_fallback="B")}, r"loop_fallback='B'\) is not an agent of the team"),
        ({"context_factory": 3}, r"Runner\.clone\(context_factory=…\)|context_factory=3"),
        ({"middleware": [3]}, r"Runner\.clone\(\) has 3 in middleware|middleware"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        Runner(Agent("A")).clone(**changes)


def test_the_options_of_a_clone_are_those_of_the_runner() -> None:
    constructor, clone = (inspect.signature(each).parameters for each in (Runner.__init__, Runner.clone))
    # The team is compiled once.
    assert {*constructor} - {*clone} == {"agent", "extra_agents", "prompt_language"}
    assert len(constructor) - len({"self"}) == 15
