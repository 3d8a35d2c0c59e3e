"""History read from a log: it equals the history that the run had."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given, note, settings
from pydantic import BaseModel
from tests.laws.conftest import quiet_baton as quiet_baton
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import Scenario
from tests.laws.strategies import scenarios

from batonkit import (
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
from batonkit.agents.middleware import Middleware, NextActivation
from batonkit.errors import ModelError
from batonkit.log import Event, HistoryEntry, decode_log, encode_log
from batonkit.log import history as histories
from batonkit.log.events import KnownEvent
from batonkit.log.fold import history_from_log
from batonkit.messages import AssistantMessage, ToolMessage, text_of
from batonkit.team.tasks import last_active_agent
from batonkit.testing import ScriptedModel, call, say, transfer_to

pytestmark = pytest.mark.usefixtures("quiet_baton")


def comparable(entries: Sequence[HistoryEntry]) -> list[tuple[Any, ...]]:
    """Return the fields of the entries to compare."""
    return [(entry.message, entry.author, entry.is_answer, entry.hidden, entry.followed) for entry in entries]


def history_of_run(result: RunResult[Any]) -> list[HistoryEntry]:
    """Return the history that the run had."""
    return result._history.entries


def encode_and_decode(events: Sequence[Event]) -> list[Event]:
    """Return the events as a store returns them."""
    return decode_log(encode_log(events))


@settings(max_examples=settings().max_examples * 2)
@given(scenario=scenarios())
def test_the_history_from_the_log_equals_the_history_of_the_run(scenario: Scenario) -> None:
    note(repr(scenario))
    result = run_in_loop(Execution(scenario).run())
    of_run, from_log = (
        comparable(history_of_run(result)),
        comparable(history_from_log(encode_and_decode(result.events))),
    )
    if result.status == "completed":
        assert from_log == of_run
    else:
        # The log of a stopped run can contain messages that were not yet in its history.
        assert [entry[:2] for entry in from_log[: len(of_run)]] == [entry[:2] for entry in of_run]
    check_calls_have_results([message for message, *_ in from_log])


def check_calls_have_results(messages: Sequence[Any]) -> None:
    """Check that results directly follow their calls, in order, as providers require."""
    expected_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == expected_ids.pop(0)
        else:
            assert not expected_ids
            expected_ids = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    assert not expected_ids


def speaker(name: str) -> Agent:
    return Agent(name, description=f"Is {name}.")


@tool
async def look_up(word: str) -> str:
    """Look up a word."""
    return f"saw {word}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask."""
    return str(await ctx.interrupt(question))


async def test_branches_are_in_the_order_of_their_declaration() -> None:
    a, b = Agent("A", description="a", tools=[look_up]), speaker("B")
    steps = {"A": [call("look_up", word="x"), "from A"], "B": ["from B"], "Last": ["the end"]}
    team = SequentialAgent("All", sub_agents=[ParallelAgent("Both", sub_agents=[a, b]), speaker("Last")])
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert comparable(history_from_log(encode_and_decode(result.events))) == comparable(history_of_run(result))
    contents = [entry.message.content for entry in history_from_log(result.events)]
    assert contents == ["hi", "", "saw x", "from A", "from B", "the end"]
    assert last_active_agent(result.events) == "All"


async def test_a_failed_branch_is_replaced_by_its_error_report() -> None:
    a, b = Agent("A", description="a", tools=[look_up]), speaker("B")
    steps = {"A": [call("look_up", word="x"), ModelError("gone")], "B": ["from B"]}
    team = ParallelAgent("Both", sub_agents=[a, b], on_error="ignore")
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert comparable(history_from_log(encode_and_decode(result.events))) == comparable(history_of_run(result))
    assert [entry.message.content for entry in history_from_log(result.events)] == [
        "hi",
        "[A] failed: ModelError: gone",
        "from B",
    ]


async def test_iterations_of_a_loop_are_in_order() -> None:
    team = LoopAgent("Rounds", sub_agents=[speaker("A"), speaker("B")], max_iterations=12)
    steps = {"A": [f"a{n}" for n in range(12)], "B": [f"b{n}" for n in range(12)]}
    result = await Runner(team, model=ScriptedModel(steps)).run("hi")
    assert comparable(history_from_log(encode_and_decode(result.events))) == comparable(history_of_run(result))
    assert [entry.message.content for entry in history_from_log(result.events)][-2:] == ["a11", "b11"]


async def test_messages_of_an_agent_used_as_a_tool_are_not_included() -> None:
    inner = Agent("Inner", description="i", tools=[look_up])
    outer = Agent("Outer", tools=[inner.as_tool()])
    steps = {"Outer": [call("inner", request="go"), "outer ends"], "Inner": [call("look_up", word="x"), "inner ends"]}
    result = await Runner(outer, model=ScriptedModel(steps)).run("hi")
    assert comparable(history_from_log(encode_and_decode(result.events))) == comparable(history_of_run(result))
    assert [entry.message.content for entry in history_from_log(result.events)] == [
        "hi",
        "",
        "inner ends",
        "outer ends",
    ]


async def test_corrected_invalid_output_is_not_included() -> None:
    # Later agents do not read it either.
    class City(BaseModel):
        name: str

    model = ScriptedModel(["Rome", '{"name": "Rome"}'])
    result = await Runner(Agent("A", model=model, output_type=City)).run("hi")
    assert [entry.message.content for entry in history_from_log(encode_and_decode(result.events))] == [
        "hi",
        '{"name": "Rome"}',
    ]


async def test_the_message_with_the_input_of_a_handoff_is_included() -> None:
    class Reason(BaseModel):
        why: str

    desk = Agent("Desk", handoffs=[handoff(speaker("Other"), input_type=Reason)])
    steps = {"Desk": [say("over", call("transfer_to_other", why="late"))], "Other": ["hello"]}
    result = await Runner(desk, model=ScriptedModel(steps)).run("hi")
    told = 'For context: [Desk] handed over with: {"why":"late"}.'
    assert told in [entry.message.content for entry in history_of_run(result)]
    assert comparable(history_from_log(encode_and_decode(result.events))) == comparable(history_of_run(result))


async def test_the_next_run_of_a_thread_reads_the_input_of_a_handoff() -> None:
    class Reason(BaseModel):
        why: str

    desk = Agent("Desk", handoffs=[handoff(speaker("Other"), input_type=Reason)])
    model = ScriptedModel({"Desk": [call("transfer_to_other", why="late")], "Other": ["hello", "again"]})
    runner = Runner(desk, model=model)
    await runner.run("hi", thread="t")
    await runner.run("and now?", thread="t")
    told = 'For context: [Desk] handed over with: {"why":"late"}.'
    assert [told in [text_of(m.content) for m in request.messages] for request in model.requests] == [False, True, True]


async def test_the_next_run_of_a_thread_does_not_read_an_error_that_middleware_has_handled() -> None:
    class Again(Middleware):
        async def activation(self, ctx: AgentContext[Any], next: NextActivation) -> Any:
            try:
                return await next()
            except ModelError:
                return await next()

    model = ScriptedModel([call("look_up", word="x"), ModelError("gone"), "hello", "again"])
    runner = Runner(Agent("A", tools=[look_up]), model=model, middleware=[Again()])
    await runner.run("hi", thread="t")
    await runner.run("and now?", thread="t")
    assert [text_of(message.content) for message in model.requests[-1].messages] == ["hi", "hello", "and now?"]


async def test_the_last_active_agent_is_read_from_the_log() -> None:
    team = Agent("A", sub_agents=[speaker("B")])
    result = await Runner(team, model=ScriptedModel({"A": [transfer_to("B")], "B": ["hello"]})).run("hi")
    assert last_active_agent(result.events) == "B"
    assert last_active_agent(result.events[:1]) == ""


async def test_every_call_of_a_suspended_run_has_a_result() -> None:
    model = ScriptedModel([[call("look_up", word="x"), call("ask", question="?")]])
    result = await Runner(Agent("A", model=model, tools=[look_up, ask])).run("hi")
    assert [entry.message.content for entry in history_from_log(encode_and_decode(result.events))] == [
        "hi",
        "",
        "saw x",
        "This call did not finish.",
    ]


async def test_inner_agents_with_textual_keys_are_in_the_order_of_their_start() -> None:
    # The agent has no messages of its own, so only keys and start events give the order.
    class TwoSteps(BaseAgent[Any, Any]):
        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (writer, critic)

        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.run_agent(writer, "writing")
            await ctx.run_agent(critic, "reviewing.first")

    writer, critic = Agent("Writer", handoffs=[Agent("Aide", description="d")]), Agent("Critic")
    script = {"Writer": [call("transfer_to_aide")], "Aide": ["w"], "Critic": ["c"]}
    result = await Runner(TwoSteps("Root"), model=ScriptedModel(script)).run("go")
    entries = history_from_log(result.events)
    assert [text_of(entry.message.content) for entry in entries] == [
        "go",
        "",
        '{"assistant":"Aide"}',
        "w",
        "c",
    ]
    assert [entry.message for entry in entries] == [*result.messages]


IGNORED = {
    "TaskOpened",
    "InterruptRaised",
    "InterruptAnswered",
    "RunResumed",
    "RunCompleted",
    "RunSuspended",
    "RunFailed",
    "RunCancelled",
}
"""The events that change nothing in what agents read."""


def test_history_decides_what_each_event_changes() -> None:
    folded = {event.__name__ for event in histories._FOLDS}
    known = {event.__name__ for event in get_args(KnownEvent)}
    assert folded | IGNORED == known
    assert not folded & IGNORED
