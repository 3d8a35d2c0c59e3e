"""Conversations in Google's format."""

from typing import Any

import pytest

from batonkit.messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from batonkit.models.google.google_request import as_contents

CALL = ToolCall("c1", "look", '{"at":"cat"}')
UNSIGNED = b"skip_thought_signature_validator"


def turns(*messages: Message, needs_signatures: bool = False) -> list[tuple[str, list[Any]]]:
    contents = as_contents(messages, needs_signatures=needs_signatures)[1]
    return [(content["role"], content["parts"]) for content in contents]


def test_function_responses_match_the_calls_and_precede_text() -> None:
    converted = turns(
        UserMessage("Hi"),
        AssistantMessage("Wait.", (CALL, ToolCall("c2", "bow"))),
        ToolMessage("c1", "look", "a cat"),
        ToolMessage("c2", "bow", "too stiff", is_error=True),
        UserMessage("So?"),
    )
    assert [role for role, _ in converted] == ["user", "model", "user"]
    assert converted[2][1] == [
        {"function_response": {"id": "c1", "name": "look", "response": {"result": "a cat"}}},
        {"function_response": {"id": "c2", "name": "bow", "response": {"error": "too stiff"}}},
        {"text": "So?"},
    ]


def test_images_of_results_come_after_all_function_responses() -> None:
    converted = turns(
        UserMessage("Hi"),
        AssistantMessage(tool_calls=(CALL, ToolCall("c2", "bow"))),
        ToolMessage("c1", "look", (Text("this"), Image(data=b"png"))),
        ToolMessage("c2", "bow", "done"),
    )
    assert [next(iter(part)) for part in converted[2][1]] == [
        *("function_response", "function_response", "text", "inline_data"),
    ]


def test_system_messages_go_to_system_at_the_start_and_to_the_user_later() -> None:
    messages = (SystemMessage("Be kind."), UserMessage("Hi"), SystemMessage("They are in a hurry."))
    converted, contents = as_contents(messages, needs_signatures=True)
    assert converted == ["Be kind."]
    assert contents == [{"role": "user", "parts": [{"text": "Hi"}, {"text": "They are in a hurry."}]}]


def test_a_conversation_starts_and_ends_with_a_user_turn() -> None:
    assert [role for role, _ in turns(AssistantMessage("Hello?"))] == ["user", "model", "user"]
    assert [role for role, _ in turns()] == ["user"]


def test_calls_after_text_of_the_model_get_a_separate_turn() -> None:
    converted = turns(UserMessage("Hi"), AssistantMessage("One."), AssistantMessage(tool_calls=(CALL,)))
    assert [role for role, _ in converted] == ["user", "model", "user", "model", "user"]


def test_signatures_are_sent_back_with_their_call() -> None:
    reasoning = (
        Reasoning("Hm.", "google", {"signature": "YQ==", "call": 1, "name": "bow"}),
        Reasoning("", "anthropic", {"signature": "foreign"}),
    )
    message = AssistantMessage("Wait.", (CALL, ToolCall("c2", "bow")), reasoning)
    _, parts = turns(UserMessage("Hi"), message, needs_signatures=True)[1]
    assert [part.get("thought_signature") for part in parts] == [None, None, b"a"]


def test_a_signature_of_a_missing_call_is_dropped() -> None:
    reasoning = (Reasoning("", "google", {"signature": "YQ==", "call": 0, "name": "transfer"}),)
    _, parts = turns(
        UserMessage("Hi"), AssistantMessage(tool_calls=(CALL,), reasoning=reasoning), needs_signatures=True
    )[1]
    assert [part.get("thought_signature") for part in parts] == [UNSIGNED]


def test_a_signature_of_text_is_sent_back_with_it() -> None:
    message = AssistantMessage("Yes.", reasoning=(Reasoning("Hm.", "google", {"signature": "YQ=="}),))
    assert turns(UserMessage("Hi"), message)[1] == ("model", [{"text": "Yes.", "thought_signature": b"a"}])


def test_calls_of_other_models_are_marked_as_unsigned_if_signatures_are_required() -> None:
    message = AssistantMessage(tool_calls=(CALL, ToolCall("c2", "bow")))
    assert [
        part.get("thought_signature") for part in turns(UserMessage("Hi"), message, needs_signatures=True)[1][1]
    ] == [
        UNSIGNED,
        None,
    ]
    assert "thought_signature" not in turns(UserMessage("Hi"), message)[1][1][0]


@pytest.mark.parametrize("opaque", ["text", {"signature": 7}, {"signature": "!"}, {}])
def test_an_invalid_signature_is_dropped(opaque: Any) -> None:
    message = AssistantMessage("Yes.", reasoning=(Reasoning("", "google", opaque),))
    assert turns(UserMessage("Hi"), message)[1] == ("model", [{"text": "Yes."}])


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (Image(data=b"x"), {"inline_data": {"mime_type": "image/png", "data": b"x"}}),
        (Audio(data=b"x"), {"inline_data": {"mime_type": "audio/wav", "data": b"x"}}),
        (Image(url="data:image/gif;base64,eA=="), {"inline_data": {"mime_type": "image/gif", "data": b"x"}}),
        (
            File(url="https://e.org/a.pdf", media_type="application/pdf"),
            {"file_data": {"mime_type": "application/pdf", "file_uri": "https://e.org/a.pdf"}},
        ),
        (Data({"a": 1}), {"text": '{"a":1}'}),
    ],
)
def test_parts_have_googles_format(part: Part, wire: dict[str, Any]) -> None:
    assert turns(UserMessage((part,))) == [("user", [wire])]
