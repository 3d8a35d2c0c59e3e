"""Conversations in Anthropic's format."""

from typing import Any

import pytest

from batonkit.errors import ModelRequestError
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
from batonkit.models.anthropic.anthropic_request import as_turns

CALL = ToolCall("c1", "look", '{"at":"cat"}')
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "cat"}}


def turns(*messages: Message) -> list[tuple[str, list[Any]]]:
    return [(turn["role"], turn["content"]) for turn in as_turns(messages, "anthropic:claude")[1]]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def block_of(part: Part) -> Any:
    ((_, (block,)),) = turns(UserMessage((part,)))
    return block


def test_tool_results_come_before_the_users_text() -> None:
    converted = turns(
        UserMessage("Hi"), AssistantMessage("Wait.", (CALL,)), ToolMessage("c1", "look", "a cat"), UserMessage("So?")
    )
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text("a cat")]}
    assert converted == [("user", [text("Hi")]), ("assistant", [text("Wait."), USE]), ("user", [result, text("So?")])]


def test_system_messages_go_to_system_at_the_start_and_to_the_user_later() -> None:
    messages = (SystemMessage("Be kind."), UserMessage("Hi"), SystemMessage("They are in a hurry."))
    assert as_turns(messages, "m") == (
        ["Be kind."],
        [{"role": "user", "content": [text("Hi"), text("They are in a hurry.")]}],
    )


def test_a_conversation_starts_and_ends_with_a_user_turn() -> None:
    assert [role for role, _ in turns(AssistantMessage("Hello?"))] == ["user", "assistant", "user"]
    assert [role for role, _ in turns()] == ["user"]


def test_blank_text_is_left_out() -> None:
    assert turns(UserMessage("Hi"), AssistantMessage("\n ", (CALL,)), ToolMessage("c1", "look", "  ")) == [
        ("user", [text("Hi")]),
        ("assistant", [USE]),
        ("user", [{"type": "tool_result", "tool_use_id": "c1"}]),
    ]


def test_images_of_a_failed_call_come_after_all_results() -> None:
    second = ToolCall("c2", "look")
    converted = turns(
        UserMessage("Hi"),
        AssistantMessage(tool_calls=(CALL, second)),
        ToolMessage("c1", "look", (Text("blurred"), Image(url="https://example.org/a.png")), is_error=True),
        ToolMessage("c2", "look", "a dog"),
        UserMessage("So?"),
    )
    (_, blocks) = converted[-1]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text", "image", "text"]
    assert blocks[0]["content"] == [text("blurred")]
    assert blocks[0]["is_error"] is True


def test_an_image_of_the_assistant_becomes_part_of_a_user_turn() -> None:
    converted = turns(UserMessage("Draw"), AssistantMessage((Text("Here."), Image(data=b"png"))), UserMessage("Nice"))
    assert [(role, [block["type"] for block in blocks]) for role, blocks in converted] == [
        ("user", ["text"]),
        ("assistant", ["text"]),
        ("user", ["text", "image", "text"]),
    ]


def test_reasoning_blocks_keep_their_positions() -> None:
    reasoning = (
        Reasoning("first", "anthropic", {"signature": "s1"}),
        Reasoning("", "anthropic", {"data": "hidden", "after": [5, 0]}),
        Reasoning("foreign", "google", {"signature": "s2"}),
        Reasoning("unsigned", "anthropic"),
        Reasoning("last", "anthropic", {"signature": "s3", "after": [5, 1]}),
    )
    second = ToolCall("c2", "look", "{}")
    message = AssistantMessage("Wait.Now.", (CALL, second), reasoning)
    _, blocks = turns(UserMessage("Hi"), message)[1]
    assert blocks == [
        {"type": "thinking", "thinking": "first", "signature": "s1"},
        text("Wait."),
        {"type": "redacted_thinking", "data": "hidden"},
        USE,
        {"type": "thinking", "thinking": "last", "signature": "s3"},
        text("Now."),
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
    ]


def test_reasoning_alone_makes_no_turn() -> None:
    message = AssistantMessage(reasoning=(Reasoning("hm", "anthropic", {"signature": "s"}),))
    assert turns(UserMessage("Hi"), message) == [("user", [text("Hi")])]


def test_foreign_call_ids_are_sanitized_and_stay_unique() -> None:
    calls = (ToolCall("a:b", "look"), ToolCall("a/b", "look"))
    converted = turns(
        UserMessage("Hi"), AssistantMessage(tool_calls=calls), ToolMessage("a:b", "look"), ToolMessage("a/b", "look")
    )
    assert [block["id"] for block in converted[1][1]] == ["a_b", "a_bx"]
    assert [block["tool_use_id"] for block in converted[2][1]] == ["a_b", "a_bx"]


@pytest.mark.parametrize("arguments", ['{"at": ', "[1]", "7"])
def test_arguments_that_are_not_an_object_are_wrapped(arguments: str) -> None:
    converted = turns(UserMessage("Hi"), AssistantMessage(tool_calls=(ToolCall("c1", "look", arguments),)))
    assert converted[1][1][0]["input"] == {"arguments": arguments}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Image(data=b"x"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}),
        (Image(url="https://e.org/a"), {"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}),
        (
            Image(url="data:image/gif;base64,eA=="),
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "eA=="}},
        ),
        (
            File(data=b"x", media_type="application/pdf", name="a.pdf"),
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "eA=="},
            },
        ),
        (
            File(url="https://e.org/a.pdf", media_type="application/pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://e.org/a.pdf"}},
        ),
        (
            File(data=b"hi", media_type="text/csv"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        ),
        (Audio(data=b"x", transcript="Hello"), {"type": "text", "text": "Hello"}),
        (Data({"a": 1}), {"type": "text", "text": '{"a":1}'}),
    ],
)
def test_parts_become_blocks(part: Part, block: dict[str, Any]) -> None:
    assert block_of(part) == block


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Audio(data=b"x"), "does not accept audio; pass a transcript"),
        (Image(data=b"x", media_type="image/tiff"), "does not accept images of type image/tiff; it accepts image/jpeg"),
        (
            File(data=b"x", media_type="application/zip"),
            "does not accept files of type application/zip; it accepts PDF",
        ),
    ],
)
def test_unsupported_media_raise_an_error_that_names_the_supported_ones(part: Part, why: str) -> None:
    with pytest.raises(ModelRequestError, match=why):
        block_of(part)
