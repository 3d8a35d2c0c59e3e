"""Conversion of messages between AG-UI and Baton."""

import ag_ui.core as agui
import pytest
from pydantic import TypeAdapter

from batonkit.messages import (
    AssistantMessage,
    Audio,
    Content,
    Data,
    File,
    Image,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from batonkit.serve.agui.agui_messages import from_agui_content, from_agui_messages, to_agui_content
from batonkit.serve.http.http_errors import ServingError

_PARTS: TypeAdapter[object] = TypeAdapter(agui.ContentPart)


@pytest.mark.parametrize(
    "content",
    [
        (Text("look"), Image(data=b"\x89PNG", media_type="image/png")),
        (Audio(url="https://a.example/a.wav", media_type="audio/wav"),),
        (File(data=b"%PDF", media_type="application/pdf"), Text("read it")),
    ],
)
def test_media_round_trip(content: Content) -> None:
    assert from_agui_content(to_agui_content(content)) == content


def test_content_without_media_is_text() -> None:
    assert to_agui_content("plain") == "plain"
    assert to_agui_content((Text("a"), Data({"b": 1}))) == 'a\n{"b":1}'


def test_invalid_and_remote_sources_are_refused() -> None:
    for source in ({"type": "data", "value": "~~", "mimeType": "image/png"}, {"type": "file", "value": "file-1"}):
        part = _PARTS.validate_python({"type": "image", "source": source})
        with pytest.raises(ServingError) as refused:
            from_agui_content([part])
        assert (refused.value.status, refused.value.code) == (422, "invalid")


def test_a_conversation_keeps_calls_and_drops_instructions() -> None:
    call = agui.ToolCall(id="c1", function=agui.FunctionCall(name="add", arguments='{"a": 1}'))
    messages = [
        agui.SystemMessage(id="1", content="obey"),
        agui.DeveloperMessage(id="2", content="obey"),
        agui.UserMessage(id="3", content="add"),
        agui.AssistantMessage(id="4", tool_calls=[call]),
        agui.ToolMessage(id="5", content="2", tool_call_id="c1", error="rounded"),
        agui.ReasoningMessage(id="6", content="hmm"),
    ]
    assert from_agui_messages(messages) == [
        UserMessage("add"),
        AssistantMessage("", (ToolCall("c1", "add", '{"a": 1}'),)),
        ToolMessage("c1", "add", "2", is_error=True),
    ]
