"""A transcript has one readable line for every event, and nothing that differs from run to run."""

import msgspec
import pytest

from baton.events import (
    NOBODY,
    Answered,
    Asked,
    Cancelled,
    Changes,
    Completed,
    CutShort,
    Delta,
    Event,
    Failed,
    Finished,
    Heard,
    Origin,
    Progress,
    Resumed,
    RunStarted,
    Said,
    Started,
    Stepped,
    Suspended,
    TextDelta,
    ToolReturned,
    Transferred,
    Unknown,
)
from baton.messages import AssistantMessage, Data, Image, Reasoning, Text, ToolCall, UserMessage
from baton.testing import transcript

ROUTER = Origin("1", "Router")
WEATHER = Origin("2", "Weather", ROUTER)
PICTURE = Image(url="https://example.org/cat.png")


def test_a_transfer_reads_as_it_happened() -> None:
    """T16: the events of a transfer, in order."""
    ask = ToolCall("call_1", "transfer_to_agent", '{"agent_name":"Weather"}')
    done = "successfully transferred to agent [Weather]"
    events: list[Event | Delta] = [
        RunStarted("k0", NOBODY, 1.0, "run-7f3a", "Router", (UserMessage("Rain?"),)),
        Started("k1", ROUTER, 2.0),
        TextDelta(ROUTER, "One "),
        TextDelta(ROUTER, "moment"),
        Said("k2", ROUTER, 3.0, AssistantMessage("One moment", (ask,)), "scripted"),
        ToolReturned("k3", ROUTER, 4.0, "call_1", "transfer_to_agent", done),
        Transferred("k4", ROUTER, 5.0, "Router", "Weather", "call_1"),
        Finished("k5", ROUTER, 6.0),
        Started("k6", WEATHER, 7.0),
        Progress(WEATHER, "looking up"),
        Said("k7", WEATHER, 8.0, AssistantMessage("Sunny.")),
        Finished("k8", WEATHER, 9.0),
        Completed("k9", NOBODY, 10.0),
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


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunStarted("k", NOBODY, 0, "r", "Router"), "run of Router started with nothing"),
        (
            RunStarted("k", NOBODY, 0, "r", "Router", (UserMessage("A"), UserMessage((Text("B"), PICTURE)))),
            'run of Router started with "A", "B" + image',
        ),
        (Said("k", ROUTER, 0, AssistantMessage(calls=CALLS)), 'Router: called refund({"euro":5}) + wave({})'),
        (Said("k", ROUTER, 0, AssistantMessage('Two\n"lines"')), 'Router: said "Two\\n\\"lines\\""'),
        (Said("k", ROUTER, 0, AssistantMessage((PICTURE, Data({"x": 1})))), 'Router: said "{\\"x\\":1}" + image'),
        (Said("k", ROUTER, 0, AssistantMessage(reasoning=(Reasoning("Hm"),))), "Router: said nothing"),
        (ToolReturned("k", ROUTER, 0, "a", "look_up", "A\nB"), "Router: look_up -> A\\nB"),
        (ToolReturned("k", ROUTER, 0, "a", "draw", (Text("Here"), PICTURE)), "Router: draw -> Here + image"),
        (ToolReturned("k", ROUTER, 0, "a", "draw", (PICTURE,)), "Router: draw -> image"),
        (ToolReturned("k", ROUTER, 0, "a", "wave"), 'Router: wave -> ""'),
        (ToolReturned("k", ROUTER, 0, "a", "look_up", "no", is_error=True), "Router: look_up failed -> no"),
        (ToolReturned("k", ROUTER, 0, "a", "exit", "42", is_final=True), "Router: exit -> 42 (final)"),
        (Stepped("k", ROUTER, 0, "fetch", {"name": "Zoë"}), 'Router: step fetch -> {"name":"Zoë"}'),
        (
            Transferred("k", ROUTER, 0, "Router", "Weather", payload={"why": "rain"}, reason="then_transfer"),
            'Router → Weather with {"why":"rain"} (then_transfer)',
        ),
        (Heard("k", ROUTER, 0, UserMessage("Hi"), "item"), 'user: said "Hi"'),
        (CutShort("k", ROUTER, 0, "j", "It is", 400), 'Router: was interrupted, heard "It is"'),
        (Asked("k", ROUTER, 0, "Really?"), 'Router: asked "Really?"'),
        (Asked("k", ROUTER, 0, None, CALLS[0]), 'Router: asked null about refund({"euro":5})'),
        (Answered("k", ROUTER, 0, "k", {"approved": True}), 'Router: got the answer {"approved":true}'),
        (Answered("k", NOBODY, 0, "k", "yes"), 'run: got the answer "yes"'),
        (Resumed("k", NOBODY, 0), "run resumed"),
        (Suspended("k", NOBODY, 0, ("q",)), "run suspended with 1 open question"),
        (Suspended("k", NOBODY, 0, ("q", "r")), "run suspended with 2 open questions"),
        (Failed("k", NOBODY, 0, "LimitError", "too\nmany"), "run failed with LimitError: too\\nmany"),
        (Cancelled("k", NOBODY, 0), "run cancelled"),
        (Unknown("k", NOBODY, 0, "Danced", msgspec.Raw(b"{}")), "run: unknown event Danced"),
        (Sneezed("k", ROUTER, 0), "Router: Sneezed"),
        (
            Finished("k", ROUTER, 0, Changes({"city": "Rome", "days": 2}, ("mood",))),
            'Router finished [city="Rome", days=2, mood removed]',
        ),
        (Finished("k", ROUTER, 0, Changes()), "Router finished"),
    ],
)
def test_every_kind_of_event_has_its_line(event: Event, line: str) -> None:
    assert transcript([event]) == [line]
