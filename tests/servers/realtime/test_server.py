"""A live conversation with the realtime server, over a real websocket."""

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any

import aiohttp
import pytest
from openai.types.realtime import RealtimeServerEvent
from tests.servers import HttpFault, OpenAIRealtimeServer
from tests.servers.realtime import ServedSession, silence, speech
from tests.servers.realtime.clients import HELLO, TEXT, RawClient, check_all, official, raw
from websockets.asyncio.client import connect

from batonkit.errors import ContentFilterError, ModelConnectionError, ModelError, RateLimitError
from batonkit.messages import AssistantMessage, Audio, ToolMessage, Usage, UserMessage
from batonkit.models import ModelRequest, ModelResponse, ToolCallChunk
from batonkit.testing import ScriptedStream, call, say

SPOKEN = [
    "response.created",
    "rate_limits.updated",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
]


async def asked(client: RawClient, nth: int = 1) -> dict[str, Any]:
    """Greet, and return the nth response."""
    await client.send("conversation.item.create", item=HELLO)
    await client.send("response.create")
    done = await client.until("response.done", nth)
    return done["response"]


def appended(audio: bytes) -> dict[str, str]:
    """Build the fields of an `input_audio_buffer.append` event."""
    return {"audio": b64encode(audio).decode()}


async def test_the_official_client_hears_a_spoken_answer() -> None:
    seen: list[RealtimeServerEvent] = []
    async with OpenAIRealtimeServer(["Good day."]) as server, official(server) as client:
        await client.session.update(session={"type": "realtime", "instructions": "Be kind."})
        await client.conversation.item.create(item={**HELLO, "id": "item_hello"})  # pyright: ignore[reportArgumentType]
        await client.response.create()
        async for event in client:
            seen.append(event)
            if event.type == "response.done":
                break
    types = [event.type for event in seen]
    assert types[:4] == ["session.created", "session.updated", "conversation.item.added", "conversation.item.done"]
    assert types[4:] == SPOKEN
    audio = b"".join(b64decode(event.delta) for event in seen if event.type == "response.output_audio.delta")
    assert audio == speech("Good day.", ms_per_word=200)
    done = seen[-1]
    assert done.type == "response.done"
    assert done.response.status == "completed"
    (session,) = server.sessions
    check_all(session.sent)
    assert session.updates[0]["instructions"] == "Be kind."
    assert session.items[0].id == "item_hello"
    assert server.complaints == []
    server.assert_done()


async def test_text_calls_and_results() -> None:
    def told(request: ModelRequest) -> str:
        assert request.messages[-1] == ToolMessage("call_1", "", "25 °C")
        assert [tool.name for tool in request.tools] == ["get_weather"]
        return f"{request.instructions} It is {request.messages[-1].content}."

    tools: list[Any] = [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}]
    steps = [say("One moment.", call("get_weather", city="Rome"), call("get_time")), told]
    async with OpenAIRealtimeServer(steps) as server, raw(server) as client:
        await client.send("session.update", session={**TEXT, "tools": tools, "instructions": "Weather."})
        first = await asked(client)
        assert [(item["type"], item["status"]) for item in first["output"]] == [
            ("message", "completed"),
            ("function_call", "completed"),
            ("function_call", "completed"),
        ]
        assert first["output"][0]["content"] == [{"type": "output_text", "text": "One moment."}]
        assert first["output"][1]["arguments"] == '{"city":"Rome"}'
        for call_id in ("call_2", "call_1"):
            output = {"type": "function_call_output", "call_id": call_id, "output": "25 °C"}
            await client.send("conversation.item.create", item=output)
        await client.send("response.create")
        second = (await client.until("response.done", 2))["response"]
        assert second["output"][0]["content"][0]["text"] == "Weather. It is 25 °C."
    check_all(server.sessions[0].sent)
    assert server.complaints == []


async def test_a_script_sees_the_whole_conversation_and_each_agent_has_its_own() -> None:
    def who(session: ServedSession) -> str:
        return "Billing" if "bills" in session.settings["instructions"] else "Triage"

    requests: list[ModelRequest] = []

    def kept(request: ModelRequest) -> str:
        requests.append(request)
        return "Paid."

    steps = {"Triage": ["Hello!"], "Billing": [kept]}
    async with OpenAIRealtimeServer(steps, by=who) as server, raw(server) as client:
        await asked(client)
        await client.send("session.update", session={"type": "realtime", "instructions": "You do bills."})
        await asked(client, 2)
    assert requests[0].messages == [UserMessage("Hello"), AssistantMessage("Hello!"), UserMessage("Hello")]
    assert requests[0].agent == "Billing"


async def test_speech_is_detected_committed_transcribed_and_answered() -> None:
    async with OpenAIRealtimeServer(["Fine."], hears=["How are you"]) as server, raw(server) as client:
        transcription = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}
        await client.send("session.update", session={"type": "realtime", **transcription})
        sound = silence(400) + speech("How are you", pause_ms=600)
        for start in range(0, len(sound), 4800):
            await client.send("input_audio_buffer.append", **appended(sound[start : start + 4800]))
        await client.until("response.done")
    types = client.types()
    order = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
    ]
    assert [types.index(type) for type in order] == sorted(types.index(type) for type in order)
    began = await client.until("input_audio_buffer.speech_started")
    ended = await client.until("input_audio_buffer.speech_stopped")
    assert (began["audio_start_ms"], ended["audio_end_ms"]) == (100, 400 + 600 + 500)
    heard = await client.until("conversation.item.input_audio_transcription.completed")
    assert heard["transcript"] == "How are you"
    assert heard["item_id"] == began["item_id"]
    (session,) = server.sessions
    check_all(session.sent)
    assert bytes(session.audio) == sound
    assert session.audio_frames == -(-len(sound) // 4800)
    assert session.conversation.messages() == [UserMessage("How are you"), AssistantMessage("Fine.")]


@pytest.mark.parametrize("format", ["g711_ulaw", "g711_alaw"])
async def test_telephone_audio_is_heard_and_spoken(format: Any) -> None:
    wire = {"type": {"g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}[format]}
    async with OpenAIRealtimeServer(["Yes."], hears=["Hello"]) as server, raw(server) as client:
        audio = {"input": {"format": wire}, "output": {"format": wire}}
        await client.send("session.update", session={"type": "realtime", "audio": audio})
        await client.send("input_audio_buffer.append", **appended(speech("Hello", format=format, pause_ms=600)))
        await client.until("response.done")
        delta = await client.until("response.output_audio.delta")
        assert b64decode(delta["delta"]) == speech("Yes.", format=format)
        assert len(b64decode(delta["delta"])) == 200 * 8


async def test_speech_interrupts_a_response_and_it_is_truncated() -> None:
    gate = asyncio.Event()
    steps = [ScriptedStream("One two ", "three ", gate, "four"), "Yes?"]
    async with OpenAIRealtimeServer(steps, hears=["Stop"]) as server, raw(server) as client:
        await client.send("response.create")
        await client.until("response.output_audio.delta", 3)
        item_id = client.events[-1]["item_id"]
        await client.send("input_audio_buffer.append", **appended(speech("Stop")))
        done = await client.until("response.done")
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        assert done["response"]["output"][0]["status"] == "incomplete"
        where = {"item_id": item_id, "content_index": 0}
        await client.send("conversation.item.truncate", **where, audio_end_ms=700, event_id="too_long")
        error = (await client.until("error"))["error"]
        assert (error["event_id"], error["message"]) == (
            "too_long",
            "Audio content of 600ms is already shorter than 700ms.",
        )
        await client.send("conversation.item.truncate", **where, audio_end_ms=450)
        await client.until("conversation.item.truncated")
        await client.send("input_audio_buffer.append", **appended(silence(600)))
        await client.until("response.done", 2)
    (session,) = server.sessions
    check_all(session.sent)
    assert session.conversation.messages()[0] == AssistantMessage("One two")
    assert session.encoder.encode_item(session.items[0])["content"] == [{"type": "output_audio"}]
    assert [complaint.event_id for complaint in server.complaints] == ["too_long"]


async def test_a_client_cancels_by_hand_and_an_unfinished_call_is_incomplete() -> None:
    step = ScriptedStream(
        call("first"), ToolCallChunk(1, "call_9", "second"), ToolCallChunk(1, arguments='{"a'), asyncio.Event()
    )
    async with OpenAIRealtimeServer([step]) as server, raw(server) as client:
        await client.send("response.create")
        await client.until("response.function_call_arguments.delta", 2)
        await client.send("response.cancel")
        done = (await client.until("response.done"))["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "client_cancelled")
        assert [(item["name"], item["status"]) for item in done["output"]] == [
            ("first", "completed"),
            ("second", "incomplete"),
        ]
    check_all(server.sessions[0].sent)


async def test_a_response_that_is_cancelled_at_once_has_a_beginning_and_an_end() -> None:
    async with OpenAIRealtimeServer([ScriptedStream(asyncio.Event(), "Never.")]) as server, raw(server) as client:
        await client.send("response.create")
        await client.send("response.cancel")
        done = (await client.until("response.done"))["response"]
        assert (done["status"], done["output"]) == ("cancelled", [])
    assert client.types() == ["session.created", "response.created", "rate_limits.updated", "response.done"]
    assert server.complaints == []


async def test_a_slow_reader_gets_whole_items_when_it_cancels() -> None:
    words = " ".join(["word"] * 400)
    async with OpenAIRealtimeServer([words], ms_per_word=500) as server, raw(server) as client:
        await client.send("response.create")
        # The server is stuck in the middle of an event now: more than the buffers between the two can take was said.
        await server.sessions[0].until_sent("response.output_audio.delta", 20)
        await client.send("response.cancel")
        done = (await client.until("response.done"))["response"]
    assert done["status"] == "cancelled"
    types = client.types()
    for kind in ("response.output_item", "conversation.item", "response.content_part"):
        assert types.count(f"{kind}.added") == types.count(f"{kind}.done") == 1
    assert server.complaints == []


async def test_an_answer_waits_its_turn_if_speech_does_not_interrupt() -> None:
    gate = asyncio.Event()
    async with OpenAIRealtimeServer([ScriptedStream("One ", gate, "two"), "Three."]) as server, raw(server) as client:
        detection = {"type": "server_vad", "interrupt_response": False}
        await client.send(
            "session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        )
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        await client.send("input_audio_buffer.append", **appended(speech("Hello there", pause_ms=600)))
        await client.until("input_audio_buffer.committed")
        gate.set()
        await client.until("response.done", 2)
    assert [event["response"]["status"] for event in client.events if event["type"] == "response.done"] == [
        "completed",
        "completed",
    ]


async def test_without_turn_detection_the_client_commits() -> None:
    async with OpenAIRealtimeServer(["Fine."], hears=[ValueError("noise")]) as server, raw(server) as client:
        listening = {"turn_detection": None, "transcription": {"model": "whisper-1"}}
        await client.send("session.update", session={"type": "realtime", "audio": {"input": listening}})
        await client.send("input_audio_buffer.append", **appended(speech("Gone")))
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        await client.send("input_audio_buffer.append", **appended(speech("Hello", pause_ms=900)))
        await client.send("input_audio_buffer.commit")
        failed = await client.until("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["message"] == "noise"
        await client.send("conversation.item.retrieve", item_id=failed["item_id"])
        kept = await client.until("conversation.item.retrieved")
        assert b64decode(kept["item"]["content"][0]["audio"]) == speech("Hello", pause_ms=900)
        assert "response.created" not in client.types()
        await client.send("conversation.item.delete", item_id=failed["item_id"])
        await client.until("conversation.item.deleted")
    check_all(server.sessions[0].sent)
    assert server.sessions[0].items == []


async def test_a_commit_during_speech_ends_it_and_keeps_its_item() -> None:
    async with OpenAIRealtimeServer([], hears=["Hello"]) as server, raw(server) as client:
        await client.send("input_audio_buffer.append", **appended(speech("Hello")))
        await client.send("input_audio_buffer.commit")
        committed = await client.until("input_audio_buffer.committed")
        started = await client.until("input_audio_buffer.speech_started")
        stopped = await client.until("input_audio_buffer.speech_stopped")
        assert committed["item_id"] == started["item_id"] == stopped["item_id"]
        assert stopped["audio_end_ms"] == 200
    assert "response.created" not in client.types()
    check_all(server.sessions[0].sent)
    assert server.complaints == []


async def test_a_late_transcript_comes_after_the_answer() -> None:
    server = OpenAIRealtimeServer(["Fine."], hears=["Hello"], late_transcripts=True)
    async with server, raw(server) as client:
        listening = {"transcription": {"model": "whisper-1"}}
        await client.send("session.update", session={"type": "realtime", "audio": {"input": listening}})
        await client.send("input_audio_buffer.append", **appended(speech("Hello", pause_ms=600)))
        await client.until("conversation.item.input_audio_transcription.completed")
    assert "response.done" in client.types()


@pytest.mark.parametrize(
    ("step", "status", "details"),
    [
        (RateLimitError("slow down"), "failed", {"code": "rate_limit_exceeded", "message": "slow down"}),
        (ModelError("broken"), "failed", {"code": "server_error", "message": "broken"}),
        (ValueError("broken"), "failed", {"code": "server_error", "message": "ValueError: broken"}),
        (ContentFilterError("no"), "incomplete", "content_filter"),
        (ModelResponse(AssistantMessage("A long"), stop_reason="length"), "incomplete", "max_output_tokens"),
    ],
)
async def test_a_response_that_fails_says_why(step: Any, status: str, details: Any) -> None:
    async with OpenAIRealtimeServer([step]) as server, raw(server) as client:
        response = await asked(client)
        assert response["status"] == status
        if isinstance(details, str):
            assert response["status_details"]["reason"] == details
        else:
            assert details.items() <= response["status_details"]["error"].items()
    check_all(server.sessions[0].sent)


async def test_a_scripted_cut_tears_the_connection() -> None:
    async with (
        OpenAIRealtimeServer([ScriptedStream("One ", ModelConnectionError("cut"))]) as server,
        raw(server) as client,
    ):
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        while (message := await client.websocket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert message.type is aiohttp.WSMsgType.CLOSED
        assert await server.sessions[0].until_closed() == 1006
        assert (server.sessions[0].is_cut, server.sessions[0].has_left) == (True, False)


async def test_usage_is_told_or_counted() -> None:
    steps = [say("One.", usage=Usage(100, 20, cached_tokens=10)), "Two three."]
    async with OpenAIRealtimeServer(steps) as server, raw(server) as client:
        told = (await asked(client))["usage"]
        assert (told["input_tokens"], told["output_tokens"], told["total_tokens"]) == (100, 20, 120)
        assert told["input_token_details"]["cached_tokens"] == 10
        counted = (await asked(client, 2))["usage"]
        assert counted["output_token_details"]["audio_tokens"] == 400 // 50
        assert counted["input_tokens"] > 0


async def test_audio_of_a_script_is_played_as_it_is() -> None:
    sound = speech("abc", ms_per_word=330)
    step = ScriptedStream(Audio(data=sound, media_type="audio/pcm", transcript="Abc."))
    async with OpenAIRealtimeServer([step]) as server, raw(server) as client:
        response = await asked(client)
        assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": "Abc."}]
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_audio.delta"]
    assert b"".join(map(b64decode, deltas)) == sound


async def test_a_paced_answer_takes_its_time() -> None:
    async with OpenAIRealtimeServer(["a b c d"], pace=20, ms_per_word=200) as server, raw(server) as client:
        await asked(client)
    session = server.sessions[0]
    requested = await session.until_received("response.create")
    done = await session.until_sent("response.done")
    assert done.at - requested.at >= 0.8 / 20 * 0.9


async def test_handshakes_are_refused_with_a_status() -> None:
    url_of = "{}/realtime?model={}".format
    async with OpenAIRealtimeServer({"gpt-realtime": []}) as server, aiohttp.ClientSession() as session:
        server.refuse(HttpFault(503), RateLimitError("later", retry_after=2))
        good = {"authorization": f"Bearer {server.api_key}"}
        cases: list[tuple[str, dict[str, str], int]] = [
            (url_of(server.base_url, "gpt-realtime"), good, 503),
            (url_of(server.base_url, "gpt-realtime"), good, 429),
            (url_of(server.base_url, "other"), good, 404),
            (url_of(server.base_url, ""), good, 400),
            (url_of(server.base_url, "gpt-realtime"), {}, 401),
            (url_of(server.base_url, "gpt-realtime"), {"authorization": "Bearer wrong"}, 401),
            (url_of(server.base_url, "gpt-realtime"), {**good, "openai-beta": "realtime=v1"}, 400),
            (f"{server.base_url}/other", good, 404),
        ]
        for url, headers, status in cases:
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await session.ws_connect(url, headers=headers)
            assert raised.value.status == status
    assert server.sessions == []
    refused = [received.rejection.status for received in server.handshakes if received.rejection is not None]
    assert refused == [status for _, _, status in cases]


async def test_fifty_conversations_at_once() -> None:
    sound = speech("Hello there", pause_ms=600)

    async def one(server: OpenAIRealtimeServer) -> None:
        async with raw(server) as client:
            for start in range(0, len(sound), 960):
                await client.send("input_audio_buffer.append", **appended(sound[start : start + 960]))
            await client.until("response.done")

    async with OpenAIRealtimeServer(["Hello!"], cycle=True) as server:
        await asyncio.gather(*[one(server) for _ in range(50)])
        codes = [await session.until_closed() for session in server.sessions]
    assert codes == [1000] * 50
    assert all(bytes(session.audio) == sound for session in server.sessions)
    assert server.complaints == []


async def test_a_client_that_disconnects_is_noticed_and_its_events_are_read() -> None:
    async with OpenAIRealtimeServer([]) as server:
        url = f"{server.base_url}/realtime?model=gpt-realtime".replace("http://", "ws://")
        headers = {"authorization": f"Bearer {server.api_key}"}
        async with connect(url, additional_headers=headers) as client:
            for _ in range(100):
                await client.send(json.dumps({"type": "input_audio_buffer.append", **appended(silence(20))}))
            client.transport.close()
            session = await server.session()
            await session.until_closed()
        assert session.has_left
        assert session.audio_frames == 100
