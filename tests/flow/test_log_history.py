"""A conversation read from a log alone is the one that the run itself had."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, note, settings
from pydantic import BaseModel
from tests.laws.conftest import quiet_baton as quiet_baton
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import Scenario
from tests.laws.strategies import scenarios

from baton import (
    Agent,
    AgentContext,
    BaseAgent,
    LoopAgent,
    ParallelAgent,
    RunContext,
    Runner,
    RunResult,
    SequentialAgent,
    handoff,
    tool,
)
from baton.context import HistoryEntry
from baton.errors import ModelError
from baton.events import Event, decode_log, encode_log
from baton.flow.log_history import history_from_log, last_active_agent
from baton.messages import AssistantMessage, ToolMessage, UserMessage, text_of
from baton.testing import ScriptedModel, call, say, transfer_to

pytestmark = pytest.mark.usefixtures("quiet_baton")
_MADE_UP = "For context: ["


def as_read(entries: Sequence[HistoryEntry]) -> list[tuple[Any, ...]]:
    """What counts of entries: what was said, by whom, and what others do not read of it."""
    return [
        (entry.message, entry.author, entry.is_answer, sorted(entry.hidden), entry.followed)
        for entry in entries
        if not (
            isinstance(entry.message, UserMessage) and entry.author and str(entry.message.content).startswith(_MADE_UP)
        )
    ]


def own_history(result: RunResult[Any]) -> list[HistoryEntry]:
    """The history that the run itself had."""
    return result._history.entries


def stored(events: Sequence[Event]) -> list[Event]:
    """The log as a store gives it back."""
    return decode_log(encode_log(events))


@settings(max_examples=settings().max_examples * 2)
@given(scenario=scenarios())
def test_what_is_recalled_is_what_the_run_itself_remembers(scenario: Scenario) -> None:
    # D14
    note(repr(scenario))
    result = run_in_loop(Execution(scenario).run())
    mine, read = as_read(own_history(result)), as_read(history_from_log(stored(result.events)))
    if result.status == "completed":
        assert read == mine
    else:
        # What a run that stopped halfway had not entered yet is there as well, each call with a result.
        assert [said[:2] for said in read[: len(mine)]] == [said[:2] for said in mine]
    check_calls_have_results([message for message, *_ in read])


def check_calls_have_results(messages: Sequence[Any]) -> None:
    """Whatever became of a run, a provider takes its history."""
    wanted: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == wanted.pop(0)
        else:
            assert not wanted
            wanted = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    assert not wanted


def speaker(name: str) -> Agent:
    return Agent(name, description=f"Is {name}.")


@tool
async def look(word: str) -> str:
    """Look."""
    return f"saw {word}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask."""
    return str(await ctx.interrupt(question))


async def test_branches_are_recalled_as_they_were_declared_and_not_as_they_ended() -> None:
    # D14
    a, b = Agent("A", description="a", tools=[look]), speaker("B")
    steps = {"A": [call("look", word="x"), "from A"], "B": ["from B"], "Last": ["the end"]}
    team = SequentialAgent("All", sub_agents=[ParallelAgent("Both", sub_agents=[a, b]), speaker("Last")])
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert as_read(history_from_log(stored(result.events))) == as_read(own_history(result))
    said = [entry.message.content for entry in history_from_log(result.events)]
    assert said == ["hi", "", "saw x", "from A", "from B", "the end"]
    assert last_active_agent(result.events) == "All"


async def test_a_branch_that_failed_is_recalled_by_its_report() -> None:
    # D14
    a, b = Agent("A", description="a", tools=[look]), speaker("B")
    steps = {"A": [call("look", word="x"), ModelError("gone")], "B": ["from B"]}
    team = ParallelAgent("Both", sub_agents=[a, b], on_error="ignore")
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert as_read(history_from_log(stored(result.events))) == as_read(own_history(result))
    assert [entry.message.content for entry in history_from_log(result.events)] == [
        "hi",
        "[A] failed: ModelError: gone",
        "from B",
    ]


async def test_rounds_of_a_loop_are_recalled_in_turn() -> None:
    # D14
    team = LoopAgent("Rounds", sub_agents=[speaker("A"), speaker("B")], max_iterations=12)
    steps = {"A": [f"a{n}" for n in range(12)], "B": [f"b{n}" for n in range(12)]}
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert as_read(history_from_log(stored(result.events))) == as_read(own_history(result))
    assert [entry.message.content for entry in history_from_log(result.events)][-2:] == ["a11", "b11"]


async def test_what_happens_inside_a_call_is_not_part_of_the_conversation() -> None:
    # D14
    inner = Agent("Inner", description="i", tools=[look])
    outer = Agent("Outer", tools=[inner.as_tool()])
    steps = {"Outer": [call("inner", request="go"), "outer ends"], "Inner": [call("look", word="x"), "inner ends"]}
    result = await Runner(outer, model=ScriptedModel(steps)).run("hi")
    assert as_read(history_from_log(stored(result.events))) == as_read(own_history(result))
    assert [entry.message.content for entry in history_from_log(result.events)] == [
        "hi",
        "",
        "inner ends",
        "outer ends",
    ]


async def test_an_answer_that_was_taken_back_is_not_recalled() -> None:
    # D14: later readers do not read of it either.
    class City(BaseModel):
        name: str

    model = ScriptedModel(["Rome", '{"name": "Rome"}'])
    result = await Runner(Agent("A", model=model, output_type=City)).run("hi")
    assert [entry.message.content for entry in history_from_log(stored(result.events))] == ["hi", '{"name": "Rome"}']


async def test_messages_that_handoffs_made_up_are_left_out_and_nothing_else() -> None:
    # D14
    class Reason(BaseModel):
        why: str

    desk = Agent("Desk", handoffs=[handoff(speaker("Other"), input_type=Reason)])
    steps = {"Desk": [say("over", call("transfer_to_other", why="late"))], "Other": ["hello"]}
    result = await Runner(desk, model=ScriptedModel(steps)).run("hi")
    assert len(own_history(result)) == len(history_from_log(stored(result.events))) + 1
    assert as_read(history_from_log(stored(result.events))) == as_read(own_history(result))


async def test_the_floor_is_with_whoever_had_it_last() -> None:
    # D14
    team = Agent("A", sub_agents=[speaker("B")])
    result = await Runner(team, model=ScriptedModel({"A": [transfer_to("B")], "B": ["hello"]})).run("hi")
    assert last_active_agent(result.events) == "B"
    assert last_active_agent(result.events[:1]) == ""


async def test_a_run_that_waits_is_recalled_with_a_result_for_every_call() -> None:
    # D14
    model = ScriptedModel([[call("look", word="x"), call("ask", question="?")]])
    result = await Runner(Agent("A", model=model, tools=[look, ask])).run("hi")
    assert [entry.message.content for entry in history_from_log(stored(result.events))] == [
        "hi",
        "",
        "saw x",
        "This call did not finish.",
    ]


async def test_places_may_be_words_and_stay_in_the_order_in_which_they_began() -> None:
    # The agent says nothing between its parts, so that only their places and their beginnings tell them apart.
    class Stage(BaseAgent[Any, Any]):
        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (writer, critic)

        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.run_agent(writer, "writing")
            await ctx.run_agent(critic, "judging.first")

    writer, critic = Agent("Writer", handoffs=[Agent("Aide", description="d")]), Agent("Critic")
    script = {"Writer": [call("transfer_to_aide")], "Aide": ["w"], "Critic": ["c"]}
    result = await Runner(Stage("Stage"), model=ScriptedModel(script)).run("go")
    entries = history_from_log(result.events)
    assert [text_of(entry.message.content) for entry in entries] == [
        "go",
        "",
        '{"assistant":"Aide"}',
        "w",
        "c",
    ]
    assert [entry.message for entry in entries] == [*result.messages]
