"""Input in the formats of OpenAI and Anthropic, and the errors for dicts that are no messages."""

import re
from base64 import b64encode
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
    UserMessage,
    to_messages,
)
from batonkit.models import to_responses

BYTES = b"\x89PNG"
ENCODED = b64encode(BYTES).decode()
DATA_URL = f"data:image/jpeg;base64,{ENCODED}"
PDF_URL = f"data:application/pdf;base64,{ENCODED}"


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        # Chat Completions
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, Image("https://a/b.png")),
        (
            {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
            Image("https://a/b.png", detail="low"),
        ),
        ({"type": "image_url", "image_url": {"url": DATA_URL, "detail": "auto"}}, Image(None, BYTES, "image/jpeg")),
        ({"type": "image_url", "image_url": "https://a/b.png"}, Image("https://a/b.png")),
        (
            {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "mp3"}},
            Audio(None, BYTES, "audio/mpeg"),
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
            File(None, BYTES, "application/pdf", "a.pdf"),
        ),
        # Responses
        ({"type": "input_text", "text": "hi"}, Text("hi")),
        (
            {"type": "input_image", "image_url": "https://a/b.png", "detail": "high"},
            Image("https://a/b.png", detail="high"),
        ),
        ({"type": "input_image", "image_url": DATA_URL, "detail": "auto"}, Image(None, BYTES, "image/jpeg")),
        ({"type": "input_file", "file_url": "https://a/b.pdf"}, File("https://a/b.pdf")),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": ENCODED},
            File(None, BYTES, "application/pdf", "a.pdf"),
        ),
        # Anthropic
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": ENCODED}},
            Image(None, BYTES, "image/gif"),
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}, Image("https://a/b.png")),
        (
            {"type": "document", "title": "A", "source": {"type": "url", "url": "https://a/b.pdf"}},
            File("https://a/b.pdf", None, "application/pdf", "A"),
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": ENCODED},
                "cache_control": {"type": "ephemeral"},
            },
            File(None, BYTES, "application/pdf"),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
            File(None, b"words", "text/plain"),
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "words"}]}},
            File(None, b"words", "text/plain"),
        ),
        # Baton
        ({"type": "image", "data": ENCODED, "media_type": "image/gif"}, Image(None, BYTES, "image/gif")),
        ({"type": "image", "data": BYTES}, Image(None, BYTES)),
        ({"type": "audio", "url": "https://a/b.wav", "transcript": "hi"}, Audio("https://a/b.wav", transcript="hi")),
        ({"type": "file", "url": "https://a/b.pdf", "name": "b"}, File("https://a/b.pdf", name="b")),
        ({"type": "data", "value": {"a": 1}}, Data({"a": 1})),
    ],
)
def test_a_content_part_may_be_in_any_format(part: dict[str, Any], wanted: Any) -> None:
    assert to_messages(user(part)) == (UserMessage((Text("look"), wanted)),)
    assert to_messages([{"role": "tool", "tool_call_id": "x", "content": [part, part]}]) == (
        ToolMessage("x", "", (wanted, wanted)),
    )


def test_text_parts_stay_parts_where_they_are_a_choice() -> None:
    assert to_messages({"role": "user", "content": [{"type": "text", "text": "hi"}]}) == (UserMessage((Text("hi"),)),)
    # Models of Responses have no choice.
    assert to_messages(said("hi")) == (AssistantMessage("hi"),)
    assert to_messages(output_of("x", [{"type": "input_text", "text": "hi"}])) == (ToolMessage("x", "", "hi"),)


def test_system_and_developer_messages_stay_in_place() -> None:
    given = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"type": "message", "role": "system", "content": "Be short."},
    ]
    assert to_messages(given) == (SystemMessage("Be kind."), UserMessage("hi"), SystemMessage("Be short."))


def test_a_chat_conversation() -> None:
    given: list[Any] = [
        UserMessage("Hot in Rome?"),
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "audio": None,
            "function_call": None,
            "annotations": [],
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "x", "content": "38"},
        {"role": "assistant", "content": None, "refusal": "I can't say."},
        {"role": "assistant", "content": None, "audio": {"id": "a", "data": "", "transcript": "Very."}},
    ]
    assert to_messages(given) == (
        UserMessage("Hot in Rome?"),
        AssistantMessage("", (ToolCall("x", "weather", "{}"),)),
        ToolMessage("x", "weather", "38"),
        AssistantMessage("I can't say."),
        AssistantMessage("Very."),
    )


def reasoning(id: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": f"thought {id}"}]
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": f"secret {id}", "status": None}


def thought(id: str, calls_before: int) -> Reasoning:
    summary = [{"type": "summary_text", "text": f"thought {id}"}]
    opaque = {"id": id, "summary": summary, "encrypted_content": f"secret {id}", "calls_before": calls_before}
    return Reasoning(f"thought {id}", "openai", opaque)


def call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": id, "name": "weather", "arguments": "{}", "status": None}


def output_of(id: str, output: Any = "38") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def said(text: str) -> dict[str, Any]:
    content: Any = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


X, Y = ToolCall("x", "weather", "{}"), ToolCall("y", "weather", "{}")


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        # The items of one response become one message.
        (
            [reasoning("r"), said("Let me see."), call("x"), call("y"), output_of("x"), output_of("y"), said("Hot.")],
            [
                AssistantMessage("Let me see.", (X, Y), (thought("r", 0),)),
                ToolMessage("x", "weather", "38"),
                ToolMessage("y", "weather", "38"),
                AssistantMessage("Hot."),
            ],
        ),
        # Reasoning between two calls keeps its place.
        (
            [call("x"), reasoning("r"), call("y")],
            [AssistantMessage("", (X, Y), (thought("r", 1),))],
        ),
        # Reasoning after text begins the next response.
        (
            [said("Let me see."), reasoning("r"), call("x")],
            [AssistantMessage("Let me see."), AssistantMessage("", (X,), (thought("r", 0),))],
        ),
        ([said("a"), said("b")], [AssistantMessage("a"), AssistantMessage("b")]),
        (
            [call("x"), UserMessage("u"), call("y")],
            [AssistantMessage("", (X,)), UserMessage("u"), AssistantMessage("", (Y,))],
        ),
        ([AssistantMessage("a"), call("x")], [AssistantMessage("a"), AssistantMessage("", (X,))]),
        # Reasoning without the output that it led to cannot be sent, and is dropped.
        ([reasoning("r"), {"role": "user", "content": "u"}, said("a")], [UserMessage("u"), AssistantMessage("a")]),
        ([reasoning("r")], []),
        # Reasoning that is stored at the provider is text only.
        (
            [
                {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                said("a"),
            ],
            [AssistantMessage("a", (), (Reasoning("hm", "openai"),))],
        ),
        (
            [
                call("x"),
                output_of("x", [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": DATA_URL}]),
            ],
            [AssistantMessage("", (X,)), ToolMessage("x", "weather", (Text("see"), Image(None, BYTES, "image/jpeg")))],
        ),
    ],
)
def test_items_of_responses(items: list[Any], wanted: list[Message]) -> None:
    assert list(to_messages(items)) == wanted


def test_turns_of_anthropic() -> None:
    given: list[Any] = [
        {"role": "user", "content": "Hot in Rome?"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s1"},
                {"type": "text", "text": "Let me "},
                {"type": "text", "text": "see."},
                {"type": "redacted_thinking", "data": "zz"},
                {"type": "tool_use", "id": "x", "name": "weather", "input": {"city": "Rome"}},
                {"type": "thinking", "thinking": "unsigned"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": "down", "is_error": True},
                {"type": "text", "text": "And in Oslo?"},
            ],
        },
    ]
    assert to_messages(given) == (
        UserMessage("Hot in Rome?"),
        AssistantMessage(
            "Let me see.",
            (ToolCall("x", "weather", '{"city":"Rome"}'),),
            (
                Reasoning("hm", "anthropic", {"signature": "s1"}),
                Reasoning("", "anthropic", {"data": "zz", "after": [11, 0]}),
                Reasoning("unsigned", "anthropic"),
            ),
        ),
        ToolMessage("x", "weather", "down", True),
        UserMessage("And in Oslo?"),
    )


def test_results_and_text_of_anthropic_keep_their_order() -> None:
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "1"}]}
    content = [{"type": "text", "text": "a"}, result, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    assert to_messages({"role": "user", "content": content}) == (
        UserMessage("a"),
        ToolMessage("x", "", "1"),
        UserMessage((Text("b"), Text("c"))),
    )


def test_own_messages_as_dicts() -> None:
    given: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [{"id": "x", "name": "t"}],
        "reasoning": [{"text": "hm", "provider": "google", "signature": "s"}],
        "author": "A",
    }
    assert to_messages(given) == (
        AssistantMessage("hi", (ToolCall("x", "t", "{}"),), (Reasoning("hm", "google", "s"),), "A"),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"role": "usr", "content": "x"},
            "role is 'usr'; use one of `user`, `assistant`, `system`, `developer`, `tool`; did you mean `user`?",
        ),
        ({"role": "user", "contents": "x"}, "content is missing; did you write `contents` instead?"),
        ({"rol": "user", "content": "x"}, "role is missing; did you write `rol` instead?"),
        ({None: 1}, "role is missing"),
        ({"role": "user", "content": [{"type": "image_ulr"}]}, "content[0].type is 'image_ulr'; use one of `text`, "),
        ({"role": "user", "content": [{"text": "x"}]}, "content[0].type is missing"),
        ({"role": "user", "content": ["x"]}, "content[0] is 'x'; give a dict"),
        (
            user({"type": "image_url", "image_url": {"uri": "x"}}),
            "content[1].image_url.url is missing; did you write `uri` instead?",
        ),
        (user({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}), "content[1].image_url.url is "),
        (user({"type": "image_url"}), "content[1].image_url is missing"),
        (user({"type": "input_audio", "input_audio": {"data": 5}}), "content[1].input_audio.data is 5; give text"),
        (
            user({"type": "file", "file": {"file_id": "f"}}),
            "content[1].file.file_id is the id of a file that a provider stores",
        ),
        (user({"type": "file", "file": {}}), "content[1].file.file_data is missing"),
        (user({"type": "file", "file": 3}), "content[1].file is 3; give a dict"),
        (user({"type": "input_image", "file_id": "f"}), "content[1].file_id is the id of a file"),
        (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "content[1].source.file_id is the id"),
        (
            user({"type": "document", "source": {"type": "disk"}}),
            "content[1].source.type is 'disk'; use `base64` or `url`",
        ),
        (user({"type": "data"}), "content[1] does not fit: object missing required field `value`"),
        (user({"type": "audio", "url": 3}), "content[1].url does not fit: expected `str | null`, got `int`"),
        (user({"type": "tool_result", "content": "r"}), "content[1].tool_use_id is missing"),
        (
            user({"type": "tool_result", "tool_use_id": "x", "content": [{"type": "hologram"}]}),
            "content[1].content[0].type is 'hologram'",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t"}]},
            "content[0].input is missing",
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}, {"type": "web_search"}]},
            "content[1].type is 'web_search'",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "t"}}]},
            "tool_calls[0].function.arguments is missing",
        ),
        ({"role": "assistant", "tool_calls": [{"id": "x", "function": 3}]}, "tool_calls[0].function is 3; give a dict"),
        ({"role": "assistant", "audio": {"id": "a"}}, "audio refers to speech that a provider stores; give its words"),
        ({"role": "assistant", "reasoning": [3]}, "reasoning does not fit"),
        ({"role": "tool", "content": "r"}, "tool_call_id is missing"),
        ({"role": "tool", "tool_call_id": "x", "is_error": "yes"}, "is_error is 'yes'; use True or False"),
        (
            {"type": "web_search_call", "id": "w"},
            "type is 'web_search_call'; use one of `function_call`, `function_call_output`, `reasoning`, or",
        ),
        ({"type": "function_call", "name": "t", "arguments": "{}"}, "call_id is missing"),
        ({"type": "function_call", "call_id": "x", "name": "t", "arguments": 3}, "arguments is 3; give JSON text"),
        ({"type": "reasoning", "summary": "hm"}, "summary is 'hm'; give a list of dicts"),
    ],
)
def test_an_invalid_dict_is_named_by_index_and_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as caught:
        to_messages([{"role": "user", "content": "fine"}, given])
    assert str(caught.value).startswith("input[1] is not a message: {")
    assert f"({message}" in str(caught.value)
    with pytest.raises(SetupError, match=r"^the input is not a message: "):
        to_messages(given)


class DumpedMessage:
    """Stands for an object of a provider's SDK."""

    def model_dump(self) -> dict[str, Any]:
        return {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([DumpedMessage()], r"input\[0\] is not a message: .*; give a dict: pass DumpedMessage.model_dump\(\)"),
        (["hello"], r"input\[0\] is not a message: 'hello'; give the text itself instead of a list"),
        (b"hello", "^the input must be text, a message or a list of them, not b'hello'$"),
        (None, "^the input must be text, a message or a list of them, not None$"),
        (UserMessage, "^the input must be text, a message or a list of them, not the class UserMessage$"),
        ([None], r"^input\[0\] must be a message, or a dict with role and content, not None$"),
        ([[UserMessage("a")]], r"^input\[0\] must be a message, or a dict with role and content, not \[UserMessage"),
    ],
)
def test_an_object_that_is_no_message_is_named(given: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        to_messages(given)


@pytest.mark.parametrize("value", [object(), "\ud800"], ids=["object", "surrogate"])
@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "tool_calls[0].function.arguments",
            {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ...}}]},
        ),
        ("content[0].input", {"content": [{"type": "tool_use", "id": "1", "name": "f", "input": ...}]}),
    ],
)
def test_arguments_that_json_cannot_represent_are_named(key: str, message: Any, value: object) -> None:
    call = message["tool_calls"][0]["function"] if "tool_calls" in message else message["content"][0]
    call["arguments" if "arguments" in call else "input"] = {"a": value}
    with pytest.raises(SetupError, match=rf"^input\[0\] is not a message: .*\({re.escape(key)} is .*not JSON"):
        to_messages([{"role": "assistant", **message}])


def test_the_input_can_be_named_in_errors() -> None:
    with pytest.raises(SetupError, match=r"^filtered messages\[0\] is not a message: \{\} "):
        to_messages([{}], what="filtered messages")


def test_messages_are_returned_as_they_are() -> None:
    messages = (UserMessage("a"), AssistantMessage("b"))
    assert to_messages(messages) is messages
    mixed = to_messages([messages[0], {"role": "user", "content": "c"}, messages[1]])
    assert (mixed[0], mixed[2]) == messages
    assert mixed[0] is messages[0]


def test_the_phase_of_a_message_of_responses_is_kept() -> None:
    items: Any = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "phase": "commentary", "content": "I look it up."},
        {
            "type": "message",
            "role": "assistant",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "Rome."}],
        },
    ]
    messages = to_messages(items)
    assert messages[1:] == (
        AssistantMessage((Text("I look it up.", "commentary"),)),
        AssistantMessage((Text("Rome.", "final_answer"),)),
    )
    assert [item.get("phase") for item in to_responses(messages)] == [None, "commentary", "final_answer"]
