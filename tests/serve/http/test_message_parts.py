"""Parts of messages: what protocols that stream messages translate."""

from collections.abc import Iterator

from batonkit.log import AgentFinished, AgentResponded, Delta, Event, Origin, ReasoningDelta, ResponseRestarted
from batonkit.log import TextDelta as Text
from batonkit.messages import AssistantMessage, Reasoning, ToolCall
from batonkit.serve.http.message_parts import (
    CallWritten,
    MessageParts,
    PartClosed,
    PartExtended,
    PartOpened,
    PartsDiscarded,
    PartUpdate,
)

DESK = Origin("1", "Desk")
CALL = ToolCall("c", "look_up")


def updates(parts: MessageParts, *items: Event | Delta) -> Iterator[PartUpdate]:
    for item in items:
        yield from parts.update(item)


def responded(text: str, *calls: ToolCall, key: str = "1/m1") -> AgentResponded:
    return AgentResponded(key, DESK, 0.0, AssistantMessage(text, calls), "m")


def test_reasoning_text_and_calls_follow_one_another() -> None:
    items = (ReasoningDelta(DESK, "hm"), Text(DESK, "I "), Text(DESK, "look."), responded("I look.", CALL))
    assert [*updates(MessageParts("r"), *items)] == [
        PartOpened("reasoning", "r:1/m1/thought", "Desk"),
        PartExtended("reasoning", "r:1/m1/thought", "hm"),
        PartClosed("reasoning", "r:1/m1/thought"),
        PartOpened("text", "r:1/m1", "Desk"),
        PartExtended("text", "r:1/m1", "I "),
        PartExtended("text", "r:1/m1", "look."),
        PartClosed("text", "r:1/m1"),
        CallWritten(CALL, "r:1/m1"),
    ]


def test_text_that_no_delta_has_delivered_comes_with_the_response() -> None:
    parts = MessageParts("r")
    parts.skip(responded("earlier"))
    assert [*updates(parts, Text(DESK, "He"), responded("Hello", key="1/m2"))] == [
        PartOpened("text", "r:1/m2", "Desk"),
        PartExtended("text", "r:1/m2", "He"),
        PartExtended("text", "r:1/m2", "llo"),
        PartClosed("text", "r:1/m2"),
    ]


def test_reasoning_that_no_delta_has_delivered_comes_with_the_response() -> None:
    message = AssistantMessage("Yes.", reasoning=(Reasoning("hm"), Reasoning("so")))
    assert [*updates(MessageParts("r"), AgentResponded("1/m1", DESK, 0.0, message, "m"))] == [
        PartOpened("reasoning", "r:1/m1/thought", "Desk"),
        PartExtended("reasoning", "r:1/m1/thought", "hm\n\nso"),
        PartClosed("reasoning", "r:1/m1/thought"),
        PartOpened("text", "r:1/m1", "Desk"),
        PartExtended("text", "r:1/m1", "Yes."),
        PartClosed("text", "r:1/m1"),
    ]
    items = (ReasoningDelta(DESK, "hm"), Text(DESK, "Yes."), AgentResponded("1/m1", DESK, 0.0, message, "m"))
    assert [type(update) for update in updates(MessageParts("r"), *items)].count(PartOpened) == 2


def test_a_response_that_starts_again_discards_its_parts_and_has_a_new_id() -> None:
    items = (Text(DESK, "He"), ResponseRestarted(DESK), Text(DESK, "Hi"), responded("Ho"))
    assert [*updates(MessageParts("r"), *items)] == [
        PartOpened("text", "r:1/m1", "Desk"),
        PartExtended("text", "r:1/m1", "He"),
        PartClosed("text", "r:1/m1"),
        PartsDiscarded(("r:1/m1",)),
        PartOpened("text", "r:1/m1/again", "Desk"),
        PartExtended("text", "r:1/m1/again", "Hi"),
        PartClosed("text", "r:1/m1/again"),
        PartsDiscarded(("r:1/m1/again",)),
        PartOpened("text", "r:1/m1/again2", "Desk"),
        PartExtended("text", "r:1/m1/again2", "Ho"),
        PartClosed("text", "r:1/m1/again2"),
    ]


def test_an_agent_that_finishes_leaves_nothing_open() -> None:
    parts = MessageParts("r")
    assert len([*updates(parts, Text(DESK, "He"))]) == 2
    assert parts.open_activations() == ["1"]
    assert [*updates(parts, AgentFinished("1/end", DESK, 0.0))] == [PartClosed("text", "r:1/m1")]
    assert parts.open_activations() == []
