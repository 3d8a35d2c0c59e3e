"""Whatever point of a run a stream begins at, it opens what it speaks of and closes what it opened."""

from typing import Any

import pytest
from tests.serving.agui.talking import checked, kinds_of, text_in

from baton import Agent, ParallelAgent, RunContext, Runner, SequentialAgent, tool
from baton.events import (
    AgentStarted,
    Delta,
    Event,
    Origin,
    ReasoningDelta,
    RunCancelled,
    RunFailed,
    RunStarted,
    TextDelta,
    ToolCallDelta,
)
from baton.events.base import RUN_ORIGIN
from baton.serving.agui.translation import EventTranslator
from baton.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    ctx.values.set("asked", True)
    return await ctx.interrupt("well?")


def _team() -> Any:
    def says(name: str, *steps: Any) -> Agent:
        return Agent(name, description=name, tools=[ask_me], model=ScriptedModel([*steps]))

    inner = says("Inner", ScriptedStream("in", "ner"))
    desk = Agent(
        "Desk",
        description="Desk.",
        tools=[inner.as_tool("inner", "Ask.")],
        sub_agents=[says("Expert", call("ask_me"), "expert")],
        model=ScriptedModel([call("inner", request="x"), call("transfer_to_agent", agent_name="Expert")]),
    )
    both = ParallelAgent("Both", sub_agents=[says("B", call("ask_me"), "b"), says("C", "c")])
    return SequentialAgent("All", sub_agents=[desk, both])


def _told(past: list[Event], rest: list[Event | Delta]) -> list[dict[str, Any]]:
    translator = EventTranslator(
        run_id="r", thread_id="t", request_run_id="w", past=past, answered=(), show_errors=False
    )
    events = [*translator.start(), *[told for event in rest for told in translator.translate(event)]]
    if not translator.is_finished:
        events += translator.abort()
    return checked([event.model_dump(mode="json", by_alias=True) for event in events])


async def _recorded() -> list[Event]:
    runner = Runner(_team(), store="memory:")
    result = await runner.run("hi")
    while result.status == "suspended":
        result = await runner.resume(result.run_id, {interrupt.id: "fine" for interrupt in result.interrupts})
    return list(result.events)


async def test_a_stream_that_begins_anywhere_is_well_formed() -> None:
    events = await _recorded()
    stops = [place for place, event in enumerate(events, 1) if type(event).__name__ in ("RunSuspended", "RunCompleted")]
    assert len(stops) == 3
    for place in range(1, len(events)):
        end = next(stop for stop in stops if stop > place or stop == stops[-1])
        told = _told(events[:place], [*events[place:end]])
        assert told[-1]["type"] == "RUN_FINISHED"
        assert _told(events[:place], [*events[place : end - 1]])[-1]["type"] == "RUN_ERROR"


@pytest.mark.parametrize(
    "ending", [RunFailed("f", RUN_ORIGIN, 0.0, "ValueError", "secret"), RunCancelled("c", RUN_ORIGIN, 0.0)]
)
async def test_a_run_that_breaks_off_anywhere_closes_everything(ending: Event) -> None:
    events = await _recorded()
    for place in range(1, len(events) - 1):
        told = _told(events[:1], [*events[1:place], ending]) if _runs_on(events[1:place]) else []
        assert "secret" not in str(told)


def _runs_on(events: list[Event]) -> bool:
    return not any(type(event).__name__ == "RunSuspended" for event in events)


def test_thoughts_come_before_words_and_what_is_open_is_closed() -> None:
    desk = Origin("1", "Desk")
    began: list[Event] = [RunStarted("run", RUN_ORIGIN, 0.0, "r", "Desk")]
    told = _told(
        began,
        [
            AgentStarted("1/start", desk, 0.0),
            ReasoningDelta(desk, "hmm"),
            TextDelta(desk, ""),
            TextDelta(desk, "wel"),
            ToolCallDelta(desk, 0, "c1", "x"),
            RunCancelled("c", RUN_ORIGIN, 0.0),
        ],
    )
    assert kinds_of(told)[3:10] == [
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
    ]
    assert text_in(told) == "wel"
