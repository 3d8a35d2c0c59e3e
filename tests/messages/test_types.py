"""Messages: what callers may give as input, text and media in content, and conversations made whole."""

from typing import Any

import pytest

from batonkit import SetupError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    is_empty,
    media_of,
    pair_calls_with_results,
    text_of,
    to_messages,
)

PICTURE = Image(url="https://example.org/cat.png")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("hi", (UserMessage("hi"),)),
        (UserMessage("hi"), (UserMessage("hi"),)),
        ({"role": "user", "content": "hi"}, (UserMessage("hi"),)),
        ({"role": "system", "content": "s"}, (SystemMessage("s"),)),
        ({"role": "assistant", "content": None}, (AssistantMessage(""),)),
        ({"role": "assistant"}, (AssistantMessage(""),)),
        ([], ()),
        (
            [{"role": "user", "content": "a"}, AssistantMessage("b")],
            (UserMessage("a"), AssistantMessage("b")),
        ),
        # As OpenAI and Swarm write them, with fields that are not ours.
        (
            {
                "role": "assistant",
                "content": None,
                "sender": "A",
                "tool_calls": [{"id": "x", "type": "function", "function": {"name": "t", "arguments": '{"a":1}'}}],
            },
            (AssistantMessage("", (ToolCall("x", "t", '{"a":1}'),)),),
        ),
        (
            {"role": "tool", "tool_call_id": "x", "tool_name": "t", "content": "r"},
            (ToolMessage("x", "t", "r"),),
        ),
        ({"role": "tool", "tool_call_id": "x", "content": "r"}, (ToolMessage("x", "", "r"),)),
        # As our own messages are written.
        (
            {"role": "tool", "tool_call_id": "x", "name": "t", "content": "r", "is_error": True},
            (ToolMessage("x", "t", "r", True),),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": PICTURE.url}]},
            (UserMessage((Text("look"), PICTURE)),),
        ),
    ],
)
def test_input_may_be_given_in_many_forms(given: Any, wanted: tuple[Message, ...]) -> None:
    assert to_messages(given) == wanted


def test_the_given_messages_are_not_changed() -> None:
    given: dict[str, Any] = {"role": "tool", "tool_call_id": "x", "content": None}
    to_messages([given])
    assert given == {"role": "tool", "tool_call_id": "x", "content": None}


def test_text_and_media_in_content() -> None:
    sound, paper = Audio(url="u"), File(url="u")
    content = (Text("a"), PICTURE, Data({"b": [1]}), sound, Text("c"), paper)
    assert text_of(content) == 'a\n{"b":[1]}\nc'
    assert media_of(content) == (PICTURE, sound, paper)
    assert (text_of("plain"), media_of("plain")) == ("plain", ())


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (UserMessage(""), True),
        (UserMessage(()), True),
        (UserMessage((Text(""),)), True),
        (SystemMessage(""), True),
        (AssistantMessage(), True),
        (UserMessage("x"), False),
        (UserMessage((PICTURE,)), False),
        (AssistantMessage(tool_calls=(ToolCall("x", "t"),)), False),
        (AssistantMessage(reasoning=(Reasoning("hm"),)), False),
        # The result of a call must be there even if it says nothing.
        (ToolMessage("x", "t", ""), False),
    ],
)
def test_empty_messages_are_recognised(message: Message, wanted: bool) -> None:
    assert is_empty(message) is wanted


def test_usage_adds_up() -> None:
    total = Usage(1, 2, 3, 4, 0.5, 1) + Usage(10, 20, 30, 40, 0.25, 1)
    assert total == Usage(11, 22, 33, 44, 0.75, 2)
    assert total.total_tokens == 33


X, Y = ToolCall("x", "t", "{}"), ToolCall("y", "t", "{}")
MISSING = "The result of this call is not available."


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        # What is whole stays as it is.
        (
            [UserMessage("u"), AssistantMessage("", (X, Y)), ToolMessage("x", "t", "1"), ToolMessage("y", "t", "2")],
            [UserMessage("u"), AssistantMessage("", (X, Y)), ToolMessage("x", "t", "1"), ToolMessage("y", "t", "2")],
        ),
        # Results come directly after their call, in its order.
        (
            [AssistantMessage("", (X, Y)), ToolMessage("y", "t", "2"), UserMessage("u"), ToolMessage("x", "t", "1")],
            [AssistantMessage("", (X, Y)), ToolMessage("x", "t", "1"), ToolMessage("y", "t", "2"), UserMessage("u")],
        ),
        # A result without a call, or before it, is dropped; a call without a result gets one.
        ([ToolMessage("x", "t", "1"), UserMessage("u")], [UserMessage("u")]),
        (
            [ToolMessage("x", "t", "1"), AssistantMessage("", (X,))],
            [AssistantMessage("", (X,)), ToolMessage("x", "t", MISSING, True)],
        ),
        ([AssistantMessage("", (X,))], [AssistantMessage("", (X,)), ToolMessage("x", "t", MISSING, True)]),
        # Providers that restart their ids: each call has the result that follows it, and a unique id.
        (
            [
                AssistantMessage("", (X,)),
                ToolMessage("x", "t", "1"),
                AssistantMessage("", (X,)),
                ToolMessage("x", "t", "2"),
            ],
            [
                AssistantMessage("", (X,)),
                ToolMessage("x", "t", "1"),
                AssistantMessage("", (ToolCall("xx", "t"),)),
                ToolMessage("xx", "t", "2"),
            ],
        ),
        # A second result of one call is dropped.
        (
            [AssistantMessage("", (X,)), ToolMessage("x", "t", "1"), ToolMessage("x", "t", "2")],
            [AssistantMessage("", (X,)), ToolMessage("x", "t", "1")],
        ),
        # Nothing empty is sent.
        ([UserMessage(""), AssistantMessage(), UserMessage("u")], [UserMessage("u")]),
    ],
)
def test_a_conversation_is_made_whole(messages: list[Message], wanted: list[Message]) -> None:
    assert pair_calls_with_results(messages) == wanted
    assert pair_calls_with_results(wanted) == wanted


@pytest.mark.parametrize(
    "given",
    [
        {"role": "robot", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "tool", "content": "r"},
        {},
    ],
)
def test_a_dict_that_is_no_message_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=r"not a message: .*; give role and content") as caught:
        to_messages([given])
    assert repr(given) in str(caught.value)
