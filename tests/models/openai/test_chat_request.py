"""Requests to Chat Completions are valid for any conversation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.openai.raw_server import RawServer, json_reply, read_response

from batonkit.errors import ModelRequestError
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
    ToolSpec,
    UserMessage,
    pair_calls_with_results,
)
from batonkit.models import ModelRequest, ModelSettings, OutputSchema
from batonkit.models.openai.chat import ChatDialect
from batonkit.models.openai.responses import ResponsesDialect

DIALECT = ChatDialect("m", "openai:m")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}}
ADD = ToolSpec("add", parameters=SCHEMA)


def _messages(*messages: Message, dialect: ChatDialect = DIALECT, instructions: str = "") -> list[dict[str, Any]]:
    return dialect.body(ModelRequest(messages, instructions))["messages"]


def test_media_of_a_result_follows_all_results_of_the_turn() -> None:
    calls = ToolCall("c1", "look"), ToolCall("c2", "add")
    results = (
        ToolMessage("c1", "look", (Text("A cat."), Image(url="https://cat"))),
        ToolMessage("c2", "add", "3"),
    )
    body_messages = _messages(AssistantMessage("", calls), *results, UserMessage("And?"))
    assert [message["role"] for message in body_messages] == ["assistant", "tool", "tool", "user", "user"]
    assert body_messages[0]["content"] is None
    assert body_messages[1] == {"role": "tool", "tool_call_id": "c1", "content": "A cat."}
    assert body_messages[3]["content"] == [
        {"type": "text", "text": "From the result of `look`:"},
        {"type": "image_url", "image_url": {"url": "https://cat"}},
    ]


def test_a_result_without_text_refers_to_the_next_message() -> None:
    body_messages = _messages(
        AssistantMessage("", (ToolCall("c1", "look"),)), ToolMessage("c1", "look", (Image(data=b"1"),))
    )
    assert body_messages[1]["content"] == "The result is in the message below."
    assert body_messages[2]["role"] == "user"


def test_media_of_an_assistant_become_part_of_a_user_message() -> None:
    body_messages = _messages(AssistantMessage((Text("Here."), Image(data=b"1"))), SystemMessage("Be brief."))
    assert [(message["role"], type(message["content"])) for message in body_messages] == [
        ("assistant", str),
        ("user", list),
        ("system", str),
    ]


@pytest.mark.parametrize(
    ("part", "body_messages"),
    [
        (Text("Hi"), {"type": "text", "text": "Hi"}),
        (Data({"a": [1]}), {"type": "text", "text": '{"a":[1]}'}),
        (
            Image(url="https://x", detail="low"),
            {"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}},
        ),
        (
            Image(data=b"1", media_type="image/jpeg"),
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,MQ=="}},
        ),
        (Audio(data=b"1"), {"type": "input_audio", "input_audio": {"data": "MQ==", "format": "wav"}}),
        (
            Audio(data=b"1", media_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "MQ==", "format": "mp3"}},
        ),
        (Audio(url="https://x", transcript="Hello"), {"type": "text", "text": "Hello"}),
        (
            File(data=b"1", media_type="application/pdf", name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,MQ=="}},
        ),
        (File(data=b"a,b", media_type="text/csv", name="a.csv"), {"type": "text", "text": "a.csv:\na,b"}),
    ],
)
def test_parts_have_the_format_of_the_api(part: Any, body_messages: dict[str, Any]) -> None:
    assert _messages(UserMessage((part,)))[0]["content"] == [body_messages]


@pytest.mark.parametrize(
    "part", [Audio(url="https://x"), Audio(data=b"1", media_type="audio/ogg"), File(url="https://x")]
)
def test_unsupported_parts_raise_a_model_request_error(part: Any) -> None:
    with pytest.raises(ModelRequestError, match="`openai:m` does not accept") as caught:
        _messages(UserMessage((part,)))
    assert not caught.value.retryable


def test_ids_names_and_arguments_are_sanitized() -> None:
    long = "call_" + "x" * 60
    calls = ToolCall(long, "look at.it", '{"a": '), ToolCall("c2", "", ""), ToolCall("c3", "a" * 80, "[1]")
    body_messages = _messages(AssistantMessage("", calls), *[ToolMessage(call.id, call.name, "ok") for call in calls])
    first, second, third = body_messages[0]["tool_calls"]
    assert len(first["id"]) <= 40
    assert body_messages[1]["tool_call_id"] == first["id"]
    assert first["function"] == {"name": "look_at_it", "arguments": '{"malformed":"{\\"a\\": "}'}
    assert second["function"] == {"name": "unnamed", "arguments": "{}"}
    assert third["function"] == {"name": "a" * 64, "arguments": '{"malformed":"[1]"}'}


def test_reasoning_is_sent_back_only_with_calls_and_only_to_its_provider() -> None:
    thoughts = Reasoning("Mine.", "deepseek"), Reasoning("Foreign.", "openai", {"id": "rs"})
    call, result = ToolCall("c1", "add"), ToolMessage("c1", "add", "3")
    conversation = AssistantMessage("", (call,), thoughts), result, AssistantMessage("Three.", (), thoughts)
    deepseek = ChatDialect("m", "deepseek:m", "deepseek", returns_reasoning=True)
    assert [message.get("reasoning_content") for message in _messages(*conversation, dialect=deepseek)] == [
        "Mine.",
        None,
        None,
    ]
    assert "Mine" not in json.dumps(_messages(*conversation))


def test_instructions_have_the_configured_role() -> None:
    developer = ChatDialect("m", "openai:m", system_role="developer")
    body_messages = _messages(SystemMessage("And kind."), dialect=developer, instructions="Be brief.")
    assert body_messages == [
        {"role": "developer", "content": "Be brief."},
        {"role": "developer", "content": "And kind."},
    ]


def test_tool_settings_are_left_out_without_tools() -> None:
    settings = ModelSettings(parallel_tool_calls=True)
    request = ModelRequest([UserMessage("Hi")], settings=settings, stream=False, tool_choice="required")
    body = DIALECT.body(request)
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("choice", "body_messages"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_tool_choice_has_the_format_of_the_api(choice: str, body_messages: Any) -> None:
    request = ModelRequest([UserMessage("Hi")], tools=(ADD,), tool_choice=choice)
    assert DIALECT.body(request)["tool_choice"] == body_messages


async def test_the_name_of_the_token_limit_depends_on_the_server() -> None:
    reply = json_reply({"choices": [{"message": {"content": "Hi."}}]})
    request = ModelRequest([UserMessage("Hi")], settings=ModelSettings(max_tokens=9), stream=False)
    async with RawServer(reply) as server:
        await read_response(server.model(), request)
    assert server.requests[0].body["max_tokens"] == 9
    assert DIALECT.body(request)["max_completion_tokens"] == 9


def test_in_json_mode_the_schema_is_in_the_instructions() -> None:
    dialect = ChatDialect("m", "qwen:m", structured="json_object")
    body = dialect.body(ModelRequest([UserMessage("Hi")], "Be brief.", output_schema=OutputSchema("Sum", SCHEMA)))
    assert body["response_format"] == {"type": "json_object"}
    instructions_sent = body["messages"][0]["content"]
    assert instructions_sent.startswith("Be brief.\n\n")
    assert json.dumps(SCHEMA, separators=(",", ":")) in instructions_sent
    assert "JSON" in instructions_sent


_CONTENTS = st.one_of(
    st.sampled_from(["", "Hello", "你好"]),
    st.lists(
        st.sampled_from([Text("a"), Text(""), Data(None), Image(data=b"1"), Audio(data=b"1", transcript="x")]),
        max_size=3,
    ).map(tuple),
)
_IDS = st.sampled_from(["", "c1", "c2", "call_" + "y" * 70])
_CALLS = st.builds(
    ToolCall, _IDS, st.sampled_from(["add", "", "no such.tool"]), st.sampled_from(["{}", "", "{", "null"])
)
_BLOCKS = st.sampled_from([Reasoning("x", "anthropic", {"a": 1}), Reasoning("y", "openai", {"id": "r", "summary": []})])
_CONVERSATIONS = st.lists(
    st.one_of(
        st.builds(UserMessage, _CONTENTS),
        st.builds(SystemMessage, _CONTENTS),
        st.builds(
            AssistantMessage,
            _CONTENTS,
            st.lists(_CALLS, max_size=3).map(tuple),
            st.lists(_BLOCKS, max_size=2).map(tuple),
        ),
        st.builds(ToolMessage, _IDS, st.just("add"), _CONTENTS),
    ),
    max_size=8,
)


@given(_CONVERSATIONS)
def test_every_conversation_is_valid_for_chat_completions(conversation: list[Message]) -> None:
    open_calls: list[str] = []
    for message in _messages(*pair_calls_with_results(conversation)):
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert open_calls == []
        if message["role"] == "assistant":
            assert isinstance(message["content"], str) or message["tool_calls"]
            assert "reasoning_content" not in message
            for call in message.get("tool_calls", ()):
                assert 0 < len(call["id"]) <= 40
                assert call["function"]["name"]
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                open_calls.append(call["id"])
            assert len(set(open_calls)) == len(open_calls)
        elif message["role"] == "user":
            assert message["content"]
    assert open_calls == []


@given(_CONVERSATIONS)
def test_every_conversation_is_valid_for_responses(conversation: list[Message]) -> None:
    items = ResponsesDialect("m", "openai:m").body(ModelRequest(pair_calls_with_results(conversation)))["input"]
    open_calls: list[str] = []
    for position, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            open_calls.remove(item["call_id"])
        elif kind == "function_call":
            assert 0 < len(item["call_id"]) <= 64
            assert isinstance(json.loads(item["arguments"]), dict)
            open_calls.append(item["call_id"])
        elif kind == "reasoning":
            assert item["id"] == "r"
            assert items[position + 1].get("type") in ("reasoning", "function_call") or (
                items[position + 1]["role"] == "assistant"
            )
        else:
            assert open_calls == []
    assert open_calls == []
