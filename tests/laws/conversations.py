"""Strategies for random messages: every kind of part, any text, and calls and results that may not match."""

from typing import Any

from hypothesis import strategies as st

from batonkit.messages import (
    AssistantMessage,
    Audio,
    Content,
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
    Usage,
    UserMessage,
)

texts = st.text(max_size=12)
_urls = st.none() | st.just("https://example.org/x")
_bytes = st.none() | st.binary(max_size=8)
_integers = st.integers(-(2**63), 2**64 - 1)
_numbers = _integers | st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts),
    st.builds(Image, url=_urls, data=_bytes, media_type=texts, detail=st.none() | texts),
    st.builds(Audio, url=_urls, data=_bytes, media_type=texts, transcript=st.none() | texts),
    st.builds(File, url=_urls, data=_bytes, media_type=texts, name=st.none() | texts),
    st.builds(Data, json_values),
)
contents: st.SearchStrategy[Content] = texts | st.lists(parts, max_size=3).map(tuple)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=texts)
_reasoning = st.builds(Reasoning, text=texts, provider=texts, signature=json_values)
assistant_messages = st.builds(
    AssistantMessage,
    content=contents,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    reasoning=st.lists(_reasoning, max_size=2).map(tuple),
)
tool_messages = st.builds(ToolMessage, tool_call_id=texts, name=texts, content=contents, is_error=st.booleans())
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, contents), st.builds(SystemMessage, contents), assistant_messages, tool_messages
)
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 2**40),
    output_tokens=st.integers(0, 2**40),
    cost=st.floats(0, 1e6),
    model_calls=st.integers(0, 9),
)

_sample_ids = st.sampled_from(["c1", "c2", "c1x", ""])
_sample_contents: st.SearchStrategy[Content] = st.sampled_from(
    ["", "hello", (), (Text(""),), (Text("see"), Image(url="https://example.org/x")), (Data({"a": 1}),)]
)
_sample_calls = st.builds(ToolCall, id=_sample_ids, name=st.just("look"), arguments=st.just("{}"))
unpaired_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, _sample_contents),
    st.builds(
        AssistantMessage,
        content=_sample_contents,
        tool_calls=st.lists(_sample_calls, max_size=2).map(tuple),
    ),
    st.builds(ToolMessage, tool_call_id=_sample_ids, name=st.just("look"), content=_sample_contents),
)
"""Messages with results without calls, calls without results, and empty contents."""


unpaired_conversations: st.SearchStrategy[list[Any]] = st.lists(unpaired_messages, max_size=6)
