"""Encoding of conversations that grow: the result is the same as encoding everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.errors import ModelRequestError
from batonkit.log.view import MessageWindow
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Data,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from batonkit.models import ModelRequest
from batonkit.models.openai.chat import ChatDialect
from batonkit.models.openai.responses import ResponsesDialect

IMAGE = Image(data=b"x", media_type="image/png")
contents = st.sampled_from(["", "Hi", (Text("Look"), IMAGE), (IMAGE,), (Data({"n": 1}),)])
calls = st.lists(
    st.builds(ToolCall, st.sampled_from(["a", "b"]), st.just("t"), st.sampled_from(["{}", "?"])), max_size=2
)
messages = st.one_of(
    st.builds(UserMessage, contents),
    st.builds(SystemMessage, contents),
    st.builds(ToolMessage, st.sampled_from(["a", "b"]), st.just("t"), contents),
    st.builds(
        AssistantMessage,
        contents,
        calls.map(tuple),
        st.sampled_from([(), (Reasoning("so", "openai", {"id": "r", "encrypted_content": "e"}),)]),
    ),
)
DIALECTS = [
    ChatDialect("m", "openai:m"),
    ChatDialect("m", "other:m", "other", returns_reasoning=True),
    ResponsesDialect("m", "openai:m"),
]


def encode(dialect: ChatDialect | ResponsesDialect, conversation: list[Message] | MessageWindow) -> object:
    body = dialect.body(ModelRequest(conversation))
    return body.get("messages") or body.get("input")


@given(st.lists(messages, max_size=12), st.lists(st.integers(0, 12), max_size=8))
def test_encoding_what_is_new_equals_encoding_everything(conversation: list[Message], lengths: list[int]) -> None:
    source: list[Message] = []
    forms: dict[object, object] = {}
    for length in [*lengths, len(conversation)]:
        # A request may be shorter than the one before it: it is sent again.
        source += conversation[len(source) : length]
        stop = min(length, len(source))
        for dialect in DIALECTS:
            window = MessageWindow(source, stop, forms)
            assert encode(dialect, window) == encode(dialect, conversation[:stop])


def test_a_message_is_encoded_once() -> None:
    dialect, source = DIALECTS[0], list[Message]([UserMessage("one"), AssistantMessage("two")])
    forms: dict[object, object] = {}
    first = dialect.encode_history(MessageWindow(source, 2, forms))
    source.append(UserMessage("three"))
    second = dialect.encode_history(MessageWindow(source, 3, forms))
    assert [each is known for each, known in zip(second, first, strict=False)] == [True, True]
    assert second == dialect.encode_history([*source])


def test_an_error_leaves_nothing_half_encoded() -> None:
    dialect, forms = ResponsesDialect("m", "openai:m"), dict[object, object]()
    broken = (Text("listen"), Audio(data=b"x", media_type="audio/wav"))
    source: list[Message] = [UserMessage("one"), UserMessage("two"), UserMessage(broken)]
    for _ in range(2):
        with pytest.raises(ModelRequestError, match="audio"):
            dialect.encode_history(MessageWindow(source, 3, forms))
    assert len(dialect.encode_history(MessageWindow(source, 2, forms))) == 2
