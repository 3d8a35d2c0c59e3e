"""Encoding of commands for OpenAI, checked by a server that refuses what OpenAI refuses."""

from base64 import b64encode
from typing import Any

import pytest
from tests.realtime.openai.connections import AUDIO_CONFIG, connect
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import speech

from batonkit.errors import ModelRequestError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Message,
    Part,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from batonkit.realtime.openai.client_events import encode_session
from batonkit.realtime.protocol import (
    AddItem,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ProviderErrorReceived,
    SessionConfigured,
)
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig, TurnDetection

IMAGE_DATA = b"\x89PNG..."
AUDIO_DATA = speech("Hello")
LONG_ID = "call_" + "x" * 60


async def add_messages(*messages: Message, count: int) -> tuple[list[Message], list[ItemAdded]]:
    """Add messages; return the server's conversation and its confirmations."""
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        for number, message in enumerate(messages):
            await probe.send(AddItem(message, f"item_{number}"))
        await probe.until(ItemAdded, count)
        assert server.complaints == []
        return server.sessions[0].conversation.messages(), probe.all(ItemAdded)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hello", "Hello"),
        ("", ""),
        ((), ""),
        ((Text("Look:"), Image(data=IMAGE_DATA)), (Text("Look:"), Image(data=IMAGE_DATA))),
        ((Image(data=IMAGE_DATA, detail="low"),), (Image(data=IMAGE_DATA, detail="low"),)),
        ((Image(url=f"data:image/png;base64,{b64encode(IMAGE_DATA).decode()}"),), (Image(data=IMAGE_DATA),)),
        ((Audio(data=AUDIO_DATA, media_type="audio/pcm"),), (Audio(data=AUDIO_DATA, media_type="audio/pcm"),)),
        ((Audio(data=AUDIO_DATA, media_type="audio/pcm", transcript="Hello"),), "Hello"),
        ((Audio(url="http://a/b.wav", transcript="Hello"),), "Hello"),
        ((Data({"a": 1}),), '{"a":1}'),
        ((File(data=b"1,2", media_type="text/csv", name="a.csv"),), "a.csv:\n1,2"),
    ],
)
async def test_user_messages_are_encoded(content: Any, expected: Any) -> None:
    messages, confirmations = await add_messages(UserMessage(content), count=1)
    assert messages == [UserMessage(expected)]
    assert confirmations == [ItemAdded("item_0", "user")]


async def test_a_history_with_calls_and_results_is_encoded() -> None:
    message = AssistantMessage(
        "A moment.", (ToolCall("call_1", "f", '{"a":1}'), ToolCall(LONG_ID, "not a name", "{broken"))
    )
    history = [
        SystemMessage("Be kind."),
        UserMessage("Hello"),
        message,
        ToolMessage("call_1", "f", "one"),
        ToolMessage(LONG_ID, "not a name", (Text("two"), Data([2]))),
        AssistantMessage((Audio(data=AUDIO_DATA, transcript="Done."),)),
    ]
    messages, confirmations = await add_messages(*history, count=8)
    assert messages[:3] == [SystemMessage("Be kind."), UserMessage("Hello"), AssistantMessage("A moment.")]
    assert messages[3] == AssistantMessage(tool_calls=(ToolCall("call_1", "f", '{"a":1}'),))
    assert isinstance(messages[4], AssistantMessage)
    (second,) = messages[4].tool_calls
    assert (second.name, second.arguments) == ("not_a_name", '{"malformed":"{broken"}')
    assert messages[5:] == [
        ToolMessage("call_1", "", "one"),
        ToolMessage(second.id, "", "two\n[2]"),
        AssistantMessage("Done."),
    ]
    assert [item.role for item in confirmations] == [
        *("system", "user", "assistant", "call", "call"),
        *("result", "result", "assistant"),
    ]
    # Confirmations have the ids of the sender, also if shorter ones were sent.
    assert [item.call_id for item in confirmations if item.call_id] == ["call_1", LONG_ID, "call_1", LONG_ID]
    assert confirmations[2].item_id == "item_2"


async def test_an_item_id_that_is_too_long_is_confirmed_unchanged() -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        await probe.send(AddItem(UserMessage("Hello"), "item_" + "x" * 60))
        assert (await probe.until(ItemAdded)).item_id == "item_" + "x" * 60
    assert server.complaints == []


async def test_images_in_a_tool_result_follow_it_in_a_user_message() -> None:
    call = AssistantMessage(tool_calls=(ToolCall("call_1", "draw", "{}"),))
    messages, _ = await add_messages(
        call, ToolMessage("call_1", "draw", (Text("See."), Image(data=IMAGE_DATA))), count=3
    )
    assert messages[1] == ToolMessage("call_1", "", "See.")
    assert messages[2] == UserMessage((Text("From the result of `draw`:"), Image(data=IMAGE_DATA)))


@pytest.mark.parametrize("part", [Image(url="http://a/b.png"), Audio(data=b"ID3"), File(data=b"%PDF")])
async def test_unsupported_content_is_rejected_before_anything_is_sent(part: Part) -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        with pytest.raises(ModelRequestError, match="gpt-realtime"):
            await probe.send(AddItem(UserMessage((Text("Look"), part))))
        await probe.send(AddItem(UserMessage("Hello"), "item_1"))
        await probe.until(ItemAdded)
        assert len(server.sessions[0].items) == 1


TOOLS = (ToolSpec("f", "Does it."),)


@pytest.mark.parametrize(
    "settings",
    [
        AUDIO_CONFIG,
        SessionConfig("A", tools=TOOLS, tool_choice="f", voice="marin"),
        SessionConfig("A", tools=TOOLS, tool_choice="required"),
        SessionConfig("A", settings=RealtimeSettings(modality="text", turn_detection=None, transcription=None)),
        SessionConfig("A", settings=RealtimeSettings(input_format="g711_ulaw", output_format="g711_alaw", speed=1.25)),
        SessionConfig("A", settings=RealtimeSettings(turn_detection=TurnDetection("semantic_vad", eagerness="high"))),
        SessionConfig(
            "A", settings=RealtimeSettings(turn_detection=TurnDetection(threshold=0.7, prefix_ms=100, silence_ms=300))
        ),
        SessionConfig(
            "A", settings=RealtimeSettings(language="de", noise_reduction="far_field", max_output_tokens=500)
        ),
        SessionConfig("A", voice="voice_1234"),
    ],
)
async def test_every_setting_is_accepted(settings: SessionConfig) -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server, settings) as probe:
        await probe.send(ConfigureSession(settings))
        await probe.until(SessionConfigured)
        assert server.complaints == []
        expected = encode_session(settings, with_voice=True)
        current = server.sessions[0].settings
        for name in ("instructions", "tools", "tool_choice", "output_modalities", "max_output_tokens"):
            assert current[name] == expected[name]
        for side in ("input", "output"):
            for name, value in expected["audio"][side].items():
                actual = current["audio"][side][name]
                assert value.items() <= actual.items() if isinstance(value, dict) and actual else actual == value


def test_extra_body_is_merged_into_the_settings() -> None:
    extra = {"truncation": "disabled", "audio": {"input": {"transcription": {"prompt": "Names: Ada."}}}}
    session = encode_session(SessionConfig("A", settings=RealtimeSettings(extra_body=extra)), with_voice=True)
    assert session["truncation"] == "disabled"
    assert session["audio"]["input"]["transcription"] == {"model": "gpt-4o-mini-transcribe", "prompt": "Names: Ada."}
    assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}


async def test_the_voice_of_the_settings_is_the_default_of_agents() -> None:
    settings = RealtimeSettings(voice="sage")
    assert encode_session(SessionConfig("A", settings=settings), with_voice=True)["audio"]["output"]["voice"] == "sage"
    config = SessionConfig("A", voice="ash", settings=settings)
    assert encode_session(config, with_voice=True)["audio"]["output"]["voice"] == "ash"
    assert "voice" not in encode_session(config, with_voice=False)["audio"]["output"]


async def test_a_second_request_during_a_response_is_an_error() -> None:
    async with OpenAIRealtimeServer(["One two three."], pace=1) as server, connect(server) as probe:
        await probe.send(CreateResponse(id="first"), CreateResponse(id="second"))
        error = await probe.until(ProviderErrorReceived)
    assert (error.code, error.command_id) == ("conversation_already_has_active_response", "second")
