"""Commands as OpenAI takes them; the server, which refuses what OpenAI would, is the judge."""

from base64 import b64encode
from typing import Any

import pytest
from tests.realtime.openai.support import SPOKEN, talk
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import speech

from baton.errors import ModelRequestError
from baton.messages import (
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
from baton.realtime.openai.encoding import encode_session
from baton.realtime.protocol import (
    AddItem,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ProviderErrorReceived,
    SessionConfigured,
)
from baton.realtime.settings import RealtimeSettings, SessionConfig, TurnDetection

PIXEL = b"\x89PNG..."
SOUND = speech("Hello")
LONG = "call_" + "x" * 60


async def added(*messages: Message, count: int) -> tuple[list[Message], list[ItemAdded]]:
    """What the server knows after these messages were added, and what it said about them."""
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        for number, message in enumerate(messages):
            await talking.send(AddItem(message, f"item_{number}"))
        await talking.until(ItemAdded, count)
        assert server.complaints == []
        return server.sessions[0].conversation.messages(), talking.all(ItemAdded)


@pytest.mark.parametrize(
    ("content", "known"),
    [
        ("Hello", "Hello"),
        ("", ""),
        ((), ""),
        ((Text("Look:"), Image(data=PIXEL)), (Text("Look:"), Image(data=PIXEL))),
        ((Image(data=PIXEL, detail="low"),), (Image(data=PIXEL, detail="low"),)),
        ((Image(url=f"data:image/png;base64,{b64encode(PIXEL).decode()}"),), (Image(data=PIXEL),)),
        ((Audio(data=SOUND, media_type="audio/pcm"),), (Audio(data=SOUND, media_type="audio/pcm"),)),
        ((Audio(data=SOUND, media_type="audio/pcm", transcript="Hello"),), "Hello"),
        ((Audio(url="http://a/b.wav", transcript="Hello"),), "Hello"),
        ((Data({"a": 1}),), '{"a":1}'),
        ((File(data=b"1,2", media_type="text/csv", name="a.csv"),), "a.csv:\n1,2"),
    ],
)
async def test_user_messages_are_encoded(content: Any, known: Any) -> None:
    messages, told = await added(UserMessage(content), count=1)
    assert messages == [UserMessage(known)]
    assert told == [ItemAdded("item_0", "user")]


async def test_a_history_with_calls_and_results() -> None:  # R3
    said = AssistantMessage("A moment.", (ToolCall("call_1", "f", '{"a":1}'), ToolCall(LONG, "not a name", "{broken")))
    history = [
        SystemMessage("Be kind."),
        UserMessage("Hello"),
        said,
        ToolMessage("call_1", "f", "one"),
        ToolMessage(LONG, "not a name", (Text("two"), Data([2]))),
        AssistantMessage((Audio(data=SOUND, transcript="Done."),)),
    ]
    messages, told = await added(*history, count=8)
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
    assert [item.role for item in told] == [
        *("system", "user", "assistant", "call", "call"),
        *("result", "result", "assistant"),
    ]
    # Whatever the ids are on the wire, whoever sent them hears of them under his own.
    assert [item.call_id for item in told if item.call_id] == ["call_1", LONG, "call_1", LONG]
    assert told[2].item_id == "item_2"


async def test_an_id_that_is_too_long_is_known_by_its_own_name() -> None:
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        await talking.send(AddItem(UserMessage("Hello"), "item_" + "x" * 60))
        assert (await talking.until(ItemAdded)).item_id == "item_" + "x" * 60
    assert server.complaints == []


async def test_images_of_a_tool_follow_its_result() -> None:
    call = AssistantMessage(tool_calls=(ToolCall("call_1", "draw", "{}"),))
    messages, _ = await added(call, ToolMessage("call_1", "draw", (Text("See."), Image(data=PIXEL))), count=3)
    assert messages[1] == ToolMessage("call_1", "", "See.")
    assert messages[2] == UserMessage((Text("From the result of `draw`:"), Image(data=PIXEL)))


@pytest.mark.parametrize("part", [Image(url="http://a/b.png"), Audio(data=b"ID3"), File(data=b"%PDF")])
async def test_unsupported_content_is_rejected_before_anything_is_sent(part: Part) -> None:
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        with pytest.raises(ModelRequestError, match="gpt-realtime"):
            await talking.send(AddItem(UserMessage((Text("Look"), part))))
        await talking.send(AddItem(UserMessage("Hello"), "item_1"))
        await talking.until(ItemAdded)
        assert len(server.sessions[0].items) == 1


TOOLS = (ToolSpec("f", "Does it."),)


@pytest.mark.parametrize(
    "settings",
    [
        SPOKEN,
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
async def test_every_setting_is_taken(settings: SessionConfig) -> None:
    async with OpenAIRealtimeServer([]) as server, talk(server, settings) as talking:
        await talking.send(ConfigureSession(settings))
        await talking.until(SessionConfigured)
        assert server.complaints == []
        wanted = encode_session(settings, with_voice=True)
        in_force = server.sessions[0].settings
        for name in ("instructions", "tools", "tool_choice", "output_modalities", "max_output_tokens"):
            assert in_force[name] == wanted[name]
        for side in ("input", "output"):
            for name, value in wanted["audio"][side].items():
                given = in_force["audio"][side][name]
                assert value.items() <= given.items() if isinstance(value, dict) and given else given == value


def test_more_settings_are_merged_in() -> None:
    extra = {"truncation": "disabled", "audio": {"input": {"transcription": {"prompt": "Names: Ada."}}}}
    session = encode_session(SessionConfig("A", settings=RealtimeSettings(extra_body=extra)), with_voice=True)
    assert session["truncation"] == "disabled"
    assert session["audio"]["input"]["transcription"] == {"model": "gpt-4o-mini-transcribe", "prompt": "Names: Ada."}
    assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}


async def test_the_voice_of_the_conversation_is_for_agents_that_name_none() -> None:
    settings = RealtimeSettings(voice="sage")
    assert encode_session(SessionConfig("A", settings=settings), with_voice=True)["audio"]["output"]["voice"] == "sage"
    own = SessionConfig("A", voice="ash", settings=settings)
    assert encode_session(own, with_voice=True)["audio"]["output"]["voice"] == "ash"
    assert "voice" not in encode_session(own, with_voice=False)["audio"]["output"]


async def test_a_second_request_while_one_is_answered_is_trouble() -> None:
    async with OpenAIRealtimeServer(["One two three."], pace=1) as server, talk(server) as talking:
        await talking.send(CreateResponse(id="first"), CreateResponse(id="second"))
        trouble = await talking.until(ProviderErrorReceived)
    assert (trouble.code, trouble.command_id) == ("conversation_already_has_active_response", "second")
