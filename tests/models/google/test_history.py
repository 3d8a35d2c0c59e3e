"""Conversations as Google wants them."""

from typing import Any

import pytest

from baton.messages import (
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
from baton.models.google.request import as_contents

CALL = ToolCall("c1", "look", '{"at":"cat"}')
UNSIGNED = b"skip_thought_signature_validator"


def turns(*messages: Message, needs_signatures: bool = False) -> list[tuple[str, list[Any]]]:
    contents = as_contents(messages, needs_signatures=needs_signatures)[1]
    return [(content["role"], content["parts"]) for content in contents]


def test_responses_match_the_calls_in_number_and_order_and_words_follow() -> None:
    told = turns(
        UserMessage("Hi"),
        AssistantMessage("Wait.", (CALL, ToolCall("c2", "bow"))),
        ToolMessage("c1", "look", "a cat"),
        ToolMessage("c2", "bow", "too stiff", is_error=True),
        UserMessage("So?"),
    )
    assert [role for role, _ in told] == ["user", "model", "user"]
    assert told[2][1] == [
        {"function_response": {"id": "c1", "name": "look", "response": {"result": "a cat"}}},
        {"function_response": {"id": "c2", "name": "bow", "response": {"error": "too stiff"}}},
        {"text": "So?"},
    ]


def test_pictures_of_results_come_after_all_responses() -> None:
    told = turns(
        UserMessage("Hi"),
        AssistantMessage(tool_calls=(CALL, ToolCall("c2", "bow"))),
        ToolMessage("c1", "look", (Text("this"), Image(data=b"png"))),
        ToolMessage("c2", "bow", "done"),
    )
    assert [next(iter(part)) for part in told[2][1]] == [
        *("function_response", "function_response", "text", "inline_data"),
    ]


def test_the_application_speaks_in_system_before_all_else_and_in_the_middle_as_the_user() -> None:
    messages = (SystemMessage("Be kind."), UserMessage("Hi"), SystemMessage("They are in a hurry."))
    told, contents = as_contents(messages, needs_signatures=True)
    assert told == ["Be kind."]
    assert contents == [{"role": "user", "parts": [{"text": "Hi"}, {"text": "They are in a hurry."}]}]


def test_a_conversation_begins_and_ends_with_the_user() -> None:
    assert [role for role, _ in turns(AssistantMessage("Hello?"))] == ["user", "model", "user"]
    assert [role for role, _ in turns()] == ["user"]


def test_calls_after_words_of_the_model_have_a_turn_of_their_own() -> None:
    told = turns(UserMessage("Hi"), AssistantMessage("One."), AssistantMessage(tool_calls=(CALL,)))
    assert [role for role, _ in told] == ["user", "model", "user", "model", "user"]


def test_signatures_go_back_to_the_call_they_came_with() -> None:
    reasoning = (
        Reasoning("Hm.", "google", {"signature": "YQ==", "call": 1, "name": "bow"}),
        Reasoning("", "anthropic", {"signature": "foreign"}),
    )
    message = AssistantMessage("Wait.", (CALL, ToolCall("c2", "bow")), reasoning)
    _, parts = turns(UserMessage("Hi"), message, needs_signatures=True)[1]
    assert [part.get("thought_signature") for part in parts] == [None, None, b"a"]


def test_a_signature_of_a_call_that_is_gone_is_dropped() -> None:
    reasoning = (Reasoning("", "google", {"signature": "YQ==", "call": 0, "name": "transfer"}),)
    _, parts = turns(
        UserMessage("Hi"), AssistantMessage(tool_calls=(CALL,), reasoning=reasoning), needs_signatures=True
    )[1]
    assert [part.get("thought_signature") for part in parts] == [UNSIGNED]


def test_a_signature_of_words_goes_back_with_them() -> None:
    message = AssistantMessage("Yes.", reasoning=(Reasoning("Hm.", "google", {"signature": "YQ=="}),))
    assert turns(UserMessage("Hi"), message)[1] == ("model", [{"text": "Yes.", "thought_signature": b"a"}])


def test_calls_of_other_models_are_marked_where_signatures_are_wanted() -> None:
    said = AssistantMessage(tool_calls=(CALL, ToolCall("c2", "bow")))
    assert [part.get("thought_signature") for part in turns(UserMessage("Hi"), said, needs_signatures=True)[1][1]] == [
        UNSIGNED,
        None,
    ]
    assert "thought_signature" not in turns(UserMessage("Hi"), said)[1][1][0]


@pytest.mark.parametrize("opaque", ["text", {"signature": 7}, {"signature": "!"}, {}])
def test_a_signature_that_is_none_is_dropped(opaque: Any) -> None:
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
def test_parts(part: Part, wire: dict[str, Any]) -> None:
    assert turns(UserMessage((part,))) == [("user", [wire])]
