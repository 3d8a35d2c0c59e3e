"""What Chat Completions are sent is valid for them, whatever the conversation is made of."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.openai.raw import RawServer, answered, whole

from baton.errors import ModelRequestError
from baton.messages import (
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
from baton.models import ModelRequest, ModelSettings, OutputSchema
from baton.models.openai.chat import ChatDialect, chat_body
from baton.models.openai.responses import ResponsesDialect, responses_body

MANNER = ChatDialect("m", "openai:m")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}}
ADD = ToolSpec("add", parameters=SCHEMA)


def _messages(*messages: Message, manner: ChatDialect = MANNER, instructions: str = "") -> list[dict[str, Any]]:
    return chat_body(ModelRequest(messages, instructions), manner)["messages"]


def test_media_of_a_result_follows_all_results_of_the_turn() -> None:
    calls = ToolCall("c1", "look"), ToolCall("c2", "add")
    results = (
        ToolMessage("c1", "look", (Text("A cat."), Image(url="https://cat"))),
        ToolMessage("c2", "add", "3"),
    )
    written = _messages(AssistantMessage("", calls), *results, UserMessage("And?"))
    assert [message["role"] for message in written] == ["assistant", "tool", "tool", "user", "user"]
    assert written[0]["content"] is None
    assert written[1] == {"role": "tool", "tool_call_id": "c1", "content": "A cat."}
    assert written[3]["content"] == [
        {"type": "text", "text": "From the result of `look`:"},
        {"type": "image_url", "image_url": {"url": "https://cat"}},
    ]


def test_a_result_of_media_alone_says_where_it_is() -> None:
    written = _messages(AssistantMessage("", (ToolCall("c1", "look"),)), ToolMessage("c1", "look", (Image(data=b"1"),)))
    assert written[1]["content"] == "The result is in the message below."
    assert written[2]["role"] == "user"


def test_media_that_an_assistant_made_is_shown_by_the_user() -> None:
    written = _messages(AssistantMessage((Text("Here."), Image(data=b"1"))), SystemMessage("Be brief."))
    assert [(message["role"], type(message["content"])) for message in written] == [
        ("assistant", str),
        ("user", list),
        ("system", str),
    ]


@pytest.mark.parametrize(
    ("part", "written"),
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
def test_parts_have_the_form_of_the_api(part: Any, written: dict[str, Any]) -> None:
    assert _messages(UserMessage((part,)))[0]["content"] == [written]


@pytest.mark.parametrize(
    "part", [Audio(url="https://x"), Audio(data=b"1", media_type="audio/ogg"), File(url="https://x")]
)
def test_parts_that_the_api_does_not_take(part: Any) -> None:
    with pytest.raises(ModelRequestError, match="`openai:m` does not accept") as caught:
        _messages(UserMessage((part,)))
    assert not caught.value.retryable


def test_ids_names_and_arguments_fit() -> None:
    long = "call_" + "x" * 60
    calls = ToolCall(long, "look at.it", '{"a": '), ToolCall("c2", "", ""), ToolCall("c3", "a" * 80, "[1]")
    written = _messages(AssistantMessage("", calls), *[ToolMessage(call.id, call.name, "ok") for call in calls])
    first, second, third = written[0]["tool_calls"]
    assert len(first["id"]) <= 40
    assert written[1]["tool_call_id"] == first["id"]
    assert first["function"] == {"name": "look_at_it", "arguments": '{"malformed":"{\\"a\\": "}'}
    assert second["function"] == {"name": "unnamed", "arguments": "{}"}
    assert third["function"] == {"name": "a" * 64, "arguments": '{"malformed":"[1]"}'}


def test_thoughts_go_back_only_with_calls_and_only_to_who_had_them() -> None:
    thoughts = Reasoning("Mine.", "deepseek"), Reasoning("Foreign.", "openai", {"id": "rs"})
    call, result = ToolCall("c1", "add"), ToolMessage("c1", "add", "3")
    talk = AssistantMessage("", (call,), thoughts), result, AssistantMessage("Three.", (), thoughts)
    deepseek = ChatDialect("m", "deepseek:m", "deepseek", returns_reasoning=True)
    assert [message.get("reasoning_content") for message in _messages(*talk, manner=deepseek)] == ["Mine.", None, None]
    assert "Mine" not in json.dumps(_messages(*talk))


def test_instructions_have_the_role_that_is_wanted() -> None:
    developer = ChatDialect("m", "openai:m", system_role="developer")
    written = _messages(SystemMessage("And kind."), manner=developer, instructions="Be brief.")
    assert written == [{"role": "developer", "content": "Be brief."}, {"role": "developer", "content": "And kind."}]


def test_what_belongs_to_tools_is_left_out_without_tools() -> None:
    settings = ModelSettings(parallel_tool_calls=True)
    request = ModelRequest([UserMessage("Hi")], settings=settings, stream=False, tool_choice="required")
    body = chat_body(request, MANNER)
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_the_choice_among_tools(choice: str, written: Any) -> None:
    request = ModelRequest([UserMessage("Hi")], tools=(ADD,), tool_choice=choice)
    assert chat_body(request, MANNER)["tool_choice"] == written


async def test_limits_have_the_name_that_the_server_knows() -> None:
    reply = whole({"choices": [{"message": {"content": "Hi."}}]})
    request = ModelRequest([UserMessage("Hi")], settings=ModelSettings(max_tokens=9), stream=False)
    async with RawServer(reply) as server:
        await answered(server.model(), request)
    assert server.asked[0].body["max_tokens"] == 9
    assert chat_body(request, MANNER)["max_completion_tokens"] == 9


def test_a_schema_in_json_mode_is_told_in_the_instructions() -> None:
    manner = ChatDialect("m", "qwen:m", structured="json_object")
    body = chat_body(ModelRequest([UserMessage("Hi")], "Be brief.", output_schema=OutputSchema("Sum", SCHEMA)), manner)
    assert body["response_format"] == {"type": "json_object"}
    told = body["messages"][0]["content"]
    assert told.startswith("Be brief.\n\n")
    assert json.dumps(SCHEMA, separators=(",", ":")) in told
    assert "JSON" in told


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
_TALK = st.lists(
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


@given(_TALK)
def test_every_conversation_is_valid_for_chat_completions(talk: list[Message]) -> None:
    # T26
    open_calls: list[str] = []
    for message in _messages(*pair_calls_with_results(talk)):
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


@given(_TALK)
def test_every_conversation_is_valid_for_responses(talk: list[Message]) -> None:
    # T26
    items = responses_body(ModelRequest(pair_calls_with_results(talk)), ResponsesDialect("m", "openai:m"))["input"]
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
