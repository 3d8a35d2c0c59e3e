"""A stream that starts at any event of a run opens and closes everything correctly."""

from typing import Any

import pytest
from tests.serve.agui.frontend import assert_valid, kinds_of, text_in

from batonkit import Agent, ParallelAgent, RunContext, Runner, SequentialAgent, tool
from batonkit.log import (
    AgentResponded,
    AgentStarted,
    Delta,
    Event,
    OpenTask,
    Origin,
    ReasoningDelta,
    ResponseRestarted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    TaskEnded,
    TaskOpened,
    TextDelta,
    ToolCallDelta,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.serve.agui.translation import EventTranslator
from batonkit.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    ctx.values.set("asked", True)
    return await ctx.interrupt("well?")


def _team() -> Any:
    def agent_with(name: str, *steps: Any) -> Agent:
        return Agent(name, description=name, tools=[ask_me], model=ScriptedModel([*steps]))

    inner = agent_with("Inner", ScriptedStream("in", "ner"))
    desk = Agent(
        "Desk",
        description="Desk.",
        tools=[inner.as_tool("inner", "Ask.")],
        sub_agents=[agent_with("Expert", call("ask_me"), "expert")],
        model=ScriptedModel([call("inner", request="x"), call("transfer_to_agent", agent_name="Expert")]),
    )
    both = ParallelAgent("Both", sub_agents=[agent_with("B", call("ask_me"), "b"), agent_with("C", "c")])
    return SequentialAgent("All", sub_agents=[desk, both])


def _translate(past: list[Event], rest: list[Event | Delta]) -> list[dict[str, Any]]:
    translator = EventTranslator(
        run_id="r", thread_id="t", request_run_id="w", past=past, answered=(), show_errors=False
    )
    events = [*translator.start(), *[each for event in rest for each in translator.translate(event)]]
    if not translator.is_finished:
        events += translator.abort()
    return assert_valid([event.model_dump(mode="json", by_alias=True) for event in events])


async def _recorded_run() -> list[Event]:
    runner = Runner(_team(), store="memory:")
    result = await runner.run("hi")
    while result.status == "suspended":
        result = await runner.resume(result.run_id, {interrupt.id: "fine" for interrupt in result.interrupts})
    return list(result.events)


async def test_a_stream_that_starts_at_any_event_is_valid() -> None:
    events = await _recorded_run()
    stops = [
        position for position, event in enumerate(events, 1) if type(event).__name__ in ("RunSuspended", "RunCompleted")
    ]
    assert len(stops) == 3
    for position in range(1, len(events)):
        end = next(stop for stop in stops if stop > position or stop == stops[-1])
        translated = _translate(events[:position], [*events[position:end]])
        assert translated[-1]["type"] == "RUN_FINISHED"
        assert _translate(events[:position], [*events[position : end - 1]])[-1]["type"] == "RUN_ERROR"


@pytest.mark.parametrize(
    "ending", [RunFailed("f", RUN_ORIGIN, 0.0, "ValueError", "secret"), RunCancelled("c", RUN_ORIGIN, 0.0)]
)
async def test_a_run_that_ends_at_any_event_closes_everything(ending: Event) -> None:
    events = await _recorded_run()
    for position in range(1, len(events) - 1):
        translated = _translate(events[:1], [*events[1:position], ending]) if _is_running(events[1:position]) else []
        assert "secret" not in str(translated)


def _is_running(events: list[Event]) -> bool:
    return not any(type(event).__name__ == "RunSuspended" for event in events)


def test_reasoning_is_closed_before_text_and_everything_at_the_end() -> None:
    desk = Origin("1", "Desk")
    past: list[Event] = [RunStarted("run", RUN_ORIGIN, 0.0, "r", "Desk")]
    events = _translate(
        past,
        [
            AgentStarted("1/start", desk, 0.0),
            ReasoningDelta(desk, "hmm"),
            TextDelta(desk, ""),
            TextDelta(desk, "wel"),
            ToolCallDelta(desk, 0, "c1", "x"),
            RunCancelled("c", RUN_ORIGIN, 0.0),
        ],
    )
    assert kinds_of(events)[3:10] == [
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
    ]
    assert text_in(events) == "wel"


def test_a_response_that_starts_again_is_another_message() -> None:
    # The text of both attempts was one message.
    origin = Origin("1", "A")
    said = AgentResponded("1/m1", origin, 0.0, AssistantMessage("Hello", (ToolCall("c", "wave"),)))
    started: list[Event] = [RunStarted("run", RUN_ORIGIN, 0.0, "r", "A"), AgentStarted("1/start", origin, 0.0)]
    events = _translate(
        [], [*started, TextDelta(origin, "Goo"), ResponseRestarted(origin), TextDelta(origin, "Hel"), said]
    )
    texts = [(event["messageId"], event["delta"]) for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert texts == [("r:1/m1", "Goo"), ("r:1/m1/again", "Hel"), ("r:1/m1/again", "lo")]
    (discarded,) = [event for event in events if event["type"] == "CUSTOM"]
    assert (discarded["name"], discarded["value"]) == (
        "baton.response_restarted",
        {"discardedMessageIds": ["r:1/m1"]},
    )
    (called,) = [event for event in events if event["type"] == "TOOL_CALL_START"]
    assert called["parentMessageId"] == "r:1/m1/again"


def test_tasks_are_custom_events() -> None:
    task, origin = OpenTask("1/task", "B", "A", "A", "transfer_to_b", "call_1"), Origin("1", "A")
    sent = _translate(
        [],
        [
            RunStarted("run", RUN_ORIGIN, 0.0, "r", "A"),
            AgentStarted("1/start", origin, 0.0),
            TaskOpened("1/task", origin, 0.0, task),
            TaskEnded("1/task1", origin, 0.0, task, "cancelled", reason="no"),
            RunCompleted("completed", RUN_ORIGIN, 0.0),
        ],
    )
    facts = {"agent": "B", "caller": "A", "toolCallId": "call_1"}
    assert [(each["name"], each["value"]) for each in sent if each["type"] == "CUSTOM"] == [
        ("baton.task_opened", facts),
        ("baton.task_ended", {**facts, "outcome": "cancelled", "result": None, "reason": "no"}),
    ]
