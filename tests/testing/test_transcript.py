"""A transcript has one readable line for every event, and nothing that differs from run to run."""

import msgspec
import pytest

from batonkit.log import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    AnyEvent,
    ControlTransferred,
    Delta,
    Event,
    EventRef,
    HistoryCompacted,
    InterruptAnswered,
    InterruptRaised,
    OpenTask,
    Origin,
    ProgressDelta,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    SummaryMessage,
    TaskEnded,
    TaskOpened,
    TextDelta,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
    ValueChanges,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, Data, Image, Reasoning, Text, ToolCall, UserMessage
from batonkit.testing import transcript

ROUTER = Origin("1", "Router")
WEATHER = Origin("2", "Weather", ROUTER)
TASK = OpenTask("1/task", "Weather", "Router", "Router")
PICTURE = Image(url="https://example.org/cat.png")


def test_a_transfer_reads_as_it_happened() -> None:
    """The events of a transfer, in order."""
    ask = ToolCall("call_1", "transfer_to_agent", '{"agent_name":"Weather"}')
    done = "successfully transferred to agent [Weather]"
    events: list[Event | Delta] = [
        RunStarted("k0", RUN_ORIGIN, 1.0, "run-7f3a", "Router", (UserMessage("Rain?"),)),
        AgentStarted("k1", ROUTER, 2.0),
        TextDelta(ROUTER, "One "),
        TextDelta(ROUTER, "moment"),
        AgentResponded("k2", ROUTER, 3.0, AssistantMessage("One moment", (ask,)), "scripted"),
        ToolReturned("k3", ROUTER, 4.0, "call_1", "transfer_to_agent", done),
        ControlTransferred("k4", ROUTER, 5.0, "Router", "Weather", "call_1"),
        AgentFinished("k5", ROUTER, 6.0),
        AgentStarted("k6", WEATHER, 7.0),
        ProgressDelta(WEATHER, "looking up"),
        AgentResponded("k7", WEATHER, 8.0, AssistantMessage("Sunny.")),
        AgentFinished("k8", WEATHER, 9.0),
        RunCompleted("k9", RUN_ORIGIN, 10.0),
    ]
    assert transcript(events) == [
        'run of Router started with "Rain?"',
        "Router started",
        'Router: said "One moment" + transfer_to_agent({"agent_name":"Weather"})',
        "Router: transfer_to_agent -> successfully transferred to agent [Weather]",
        "Router → Weather",
        "Router finished",
        "Weather started",
        'Weather: said "Sunny."',
        "Weather finished",
        "run completed",
    ]


CALLS = (ToolCall("a", "refund", '{"euro":5}'), ToolCall("b", "wave"))


class Sneezed(Event, frozen=True):
    """A kind of event that the transcript was never told of."""


LINES: list[tuple[Event, str]] = [
    (RunStarted("k", RUN_ORIGIN, 0, "r", "Router"), "run of Router started with nothing"),
    (
        RunStarted("k", RUN_ORIGIN, 0, "r", "Router", (UserMessage("A"), UserMessage((Text("B"), PICTURE)))),
        'run of Router started with "A", "B" + image',
    ),
    (
        AgentResponded("k", ROUTER, 0, AssistantMessage(tool_calls=CALLS)),
        'Router: called refund({"euro":5}) + wave({})',
    ),
    (AgentResponded("k", ROUTER, 0, AssistantMessage('Two\n"lines"')), 'Router: said "Two\\n\\"lines\\""'),
    (
        AgentResponded("k", ROUTER, 0, AssistantMessage((PICTURE, Data({"x": 1})))),
        'Router: said "{\\"x\\":1}" + image',
    ),
    (AgentResponded("k", ROUTER, 0, AssistantMessage(reasoning=(Reasoning("Hm"),))), "Router: said nothing"),
    (ToolReturned("k", ROUTER, 0, "a", "look_up", "A\nB"), "Router: look_up -> A\\nB"),
    (ToolReturned("k", ROUTER, 0, "a", "draw", (Text("Here"), PICTURE)), "Router: draw -> Here + image"),
    (ToolReturned("k", ROUTER, 0, "a", "draw", (PICTURE,)), "Router: draw -> image"),
    (ToolReturned("k", ROUTER, 0, "a", "wave"), 'Router: wave -> ""'),
    (ToolReturned("k", ROUTER, 0, "a", "look_up", "no", is_error=True), "Router: look_up failed -> no"),
    (ToolReturned("k", ROUTER, 0, "a", "exit", "42", is_final=True), "Router: exit -> 42 (final)"),
    (StepCompleted("k", ROUTER, 0, "fetch", {"name": "Zoë"}), 'Router: step fetch -> {"name":"Zoë"}'),
    (
        ControlTransferred("k", ROUTER, 0, "Router", "Weather", payload={"why": "rain"}, reason="then_transfer"),
        'Router → Weather with {"why":"rain"} (then_transfer)',
    ),
    (TaskOpened("k", ROUTER, 0, TASK), "Router: opened a task for Weather"),
    (TaskEnded("k", WEATHER, 0, TASK, "finished", {"a": 1}), 'Weather: finished the task of Weather -> {"a":1}'),
    (
        TaskEnded("k", WEATHER, 0, TASK, "cancelled", reason="no\nnews"),
        "Weather: cancelled the task of Weather (no\\nnews)",
    ),
    (UserMessageAdded("k", ROUTER, 0, UserMessage("Hi"), "item"), 'user: said "Hi"'),
    (ResponseTruncated("k", ROUTER, 0, "j", "It is", 400), 'Router: was interrupted, heard "It is"'),
    (
        HistoryCompacted("k", ROUTER, 0, EventRef("r", "1/m2"), (SummaryMessage(UserMessage("Rain\nin Rome")),)),
        'Router: compacted the history up to 1/m2 -> "Rain\\nin Rome"',
    ),
    (InterruptRaised("k", ROUTER, 0, "Really?"), 'Router: asked "Really?"'),
    (InterruptRaised("k", ROUTER, 0, None, CALLS[0]), 'Router: asked null about refund({"euro":5})'),
    (InterruptAnswered("k", ROUTER, 0, "k", {"approved": True}), 'Router: got the answer {"approved":true}'),
    (InterruptAnswered("k", RUN_ORIGIN, 0, "k", "yes"), 'run: got the answer "yes"'),
    (RunResumed("k", RUN_ORIGIN, 0), "run resumed"),
    (RunSuspended("k", RUN_ORIGIN, 0, ("q",)), "run suspended with 1 open question"),
    (RunSuspended("k", RUN_ORIGIN, 0, ("q", "r")), "run suspended with 2 open questions"),
    (RunFailed("k", RUN_ORIGIN, 0, "LimitError", "too\nmany"), "run failed with LimitError: too\\nmany"),
    (RunCancelled("k", RUN_ORIGIN, 0), "run cancelled"),
    (RunCompleted("k", RUN_ORIGIN, 0), "run completed"),
    (AgentStarted("k", ROUTER, 0), "Router started"),
    (UnknownEvent("k", RUN_ORIGIN, 0, "Danced", msgspec.Raw(b"{}")), "run: unknown event Danced"),
    (Sneezed("k", ROUTER, 0), "Router: Sneezed"),
    (
        AgentFinished("k", ROUTER, 0, ValueChanges({"city": "Rome", "days": 2}, ("mood",))),
        'Router finished [city="Rome", days=2, mood removed]',
    ),
    (AgentFinished("k", ROUTER, 0, ValueChanges()), "Router finished"),
]


@pytest.mark.parametrize(("event", "line"), LINES)
def test_every_kind_of_event_has_its_line(event: Event, line: str) -> None:
    assert transcript([event]) == [line]


def test_no_event_class_is_left_to_the_default() -> None:
    advice = "give the new class a case in testing/transcripts.py and a line in LINES"
    assert set(AnyEvent.__args__) == {type(event) for event, _ in LINES} - {Sneezed}, advice
