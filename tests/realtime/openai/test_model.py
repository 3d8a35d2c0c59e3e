"""The OpenAI realtime model against the test server over a websocket."""

import asyncio
import sys
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.loop_clock import LoopClock
from tests.realtime.openai.connections import AUDIO_CONFIG, TEXT_CONFIG, connect, make_model
from tests.servers import HttpFault, OpenAIRealtimeServer
from tests.servers.realtime import CutConnection, IgnoreCommand, RefuseCommand, RepeatEvent, SwapEvents, speech
from tests.waiting import PATIENCE

from batonkit.errors import (
    AuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
    SetupError,
)
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import ToolCallChunk
from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.realtime.protocol import (
    AddItem,
    AppendAudio,
    AudioChunk,
    AudioCommitted,
    AudioEnded,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ItemTruncated,
    ProviderErrorReceived,
    RealtimeModel,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionReady,
    TranscriptChunk,
    TranscriptionChunk,
    TranscriptionCompleted,
    TranscriptionFailed,
    TruncateItem,
    UserSpeechEnded,
    UserSpeechStarted,
)
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig, TurnDetection
from batonkit.testing import ScriptedStream, call, say
from batonkit.testing.conformance.realtime_checks import ConversationProbe

HELLO = AddItem(UserMessage("Hello"), "item_hello", id="hello")


async def request_response(probe: ConversationProbe, nth: int = 1) -> ResponseEnded:
    await probe.send(CreateResponse())
    return await probe.until(ResponseEnded, nth)


async def test_an_audio_response() -> None:
    async with OpenAIRealtimeServer(["Good day."]) as server, connect(server) as probe:
        await probe.send(HELLO)
        ended = await request_response(probe)
    ready, added, started = probe.signals[:3]
    assert ready == SessionReady(server.sessions[0].id)
    assert added == ItemAdded("item_hello", "user")
    assert started == ResponseStarted(ended.response_id)
    chunks = probe.all(AudioChunk)
    assert b"".join(chunk.audio for chunk in chunks) == speech("Good day.")
    assert [chunk.text for chunk in probe.all(TranscriptChunk)] == ["Good ", "day."]
    assert probe.all(AudioEnded) == [AudioEnded(ended.response_id, chunks[0].item_id, 0)]
    assert (ended.status, ended.message, ended.reason) == ("completed", AssistantMessage("Good day."), "")
    assert ended.item_ids == (chunks[0].item_id,)
    assert ended.model == "openai:gpt-realtime"
    assert server.complaints == []


async def test_a_text_response_with_calls_and_their_results() -> None:
    steps = [say("A moment.", call("f", a=1), call("g"), usage=Usage(30, 5, cached_tokens=7)), "Done."]
    async with OpenAIRealtimeServer(steps) as server, connect(server, TEXT_CONFIG) as probe:
        ended = await request_response(probe)
        calls = (ToolCall("call_1", "f", '{"a":1}'), ToolCall("call_2", "g", "{}"))
        assert ended.message == AssistantMessage("A moment.", calls)
        assert ended.usage == Usage(30, 5, cached_tokens=7, model_calls=1)
        assert {chunk.is_spoken for chunk in probe.all(TranscriptChunk)} == {False}
        await probe.send(
            AddItem(ToolMessage("call_1", "f", "one"), "item_one"),
            AddItem(ToolMessage("call_2", "g", "two"), "item_two"),
        )
        assert (await request_response(probe, 2)).message == AssistantMessage("Done.")
    assert probe.all(ItemAdded) == [
        ItemAdded("item_one", "result", "call_1"),
        ItemAdded("item_two", "result", "call_2"),
    ]
    assert server.complaints == []


async def test_speech_is_detected_transcribed_and_answered() -> None:
    settings = SessionConfig("Desk", settings=RealtimeSettings(turn_detection=TurnDetection(silence_ms=300)))
    async with OpenAIRealtimeServer(["Fine."], hears=["How are you"]) as server, connect(server, settings) as probe:
        audio = speech("How are you", pause_ms=400)
        for start in range(0, len(audio), 960):
            await probe.send(AppendAudio(audio[start : start + 960]))
        await probe.until(ResponseEnded)
    item_id = probe.all(UserSpeechStarted)[0].item_id
    assert probe.all(UserSpeechEnded) == [UserSpeechEnded(item_id, 900)]
    assert probe.all(AudioCommitted) == [AudioCommitted(item_id)]
    assert "".join(chunk.text for chunk in probe.all(TranscriptionChunk)) == "How are you"
    assert probe.all(TranscriptionCompleted) == [TranscriptionCompleted(item_id, "How are you")]
    assert probe.all(ItemAdded) == []
    assert bytes(server.sessions[0].audio) == audio
    assert server.complaints == []


async def test_audio_is_committed_and_cleared_manually() -> None:
    settings = SessionConfig("Desk", settings=RealtimeSettings(turn_detection=None))
    async with OpenAIRealtimeServer([], hears=[ValueError("noise")]) as server, connect(server, settings) as probe:
        await probe.send(AppendAudio(speech("Gone")), ClearAudio(), AppendAudio(speech("Hello")), CommitAudio())
        failed = await probe.until(TranscriptionFailed)
        assert failed == TranscriptionFailed(probe.all(AudioCommitted)[0].item_id, "noise")
    assert server.sessions[0].items[0].audio_ms == 200
    assert server.complaints == []


async def test_the_user_interrupts_and_the_item_is_truncated() -> None:
    steps = [ScriptedStream("One ", "two ", "three ", asyncio.Event())]
    async with OpenAIRealtimeServer(steps) as server, connect(server) as probe:
        await probe.send(CreateResponse())
        item_id = (await probe.until(AudioChunk, 3)).item_id
        await probe.send(AppendAudio(speech("Stop")))
        ended = await probe.until(ResponseEnded)
        assert (ended.status, ended.reason) == ("cancelled", "turn_detected")
        assert ended.message == AssistantMessage("One two three ")
        await probe.send(TruncateItem(item_id, 0, 250))
        assert await probe.until(ItemTruncated) == ItemTruncated(item_id, 250)
    assert server.sessions[0].conversation.messages() == [AssistantMessage("One")]
    assert server.complaints == []


async def test_a_cancelled_response_has_only_its_complete_calls() -> None:
    step = ScriptedStream(
        call("first"), ToolCallChunk(1, "call_9", "second"), ToolCallChunk(1, arguments='{"a'), asyncio.Event()
    )
    async with OpenAIRealtimeServer([step]) as server, connect(server) as probe:
        await probe.send(CreateResponse())
        started = await probe.until(ResponseStarted)
        await server.sessions[0].until_sent("response.function_call_arguments.delta", 2)
        await probe.send(CancelResponse(started.response_id))
        ended = await probe.until(ResponseEnded)
    assert (ended.status, ended.reason) == ("cancelled", "client_cancelled")
    assert ended.message.tool_calls == (ToolCall("call_1", "first", "{}"),)


async def test_a_failed_response_has_the_error() -> None:
    steps = [RateLimitError("slow down"), OverloadedError("too much")]
    async with OpenAIRealtimeServer(steps) as server, connect(server) as probe:
        first, second = await request_response(probe), await request_response(probe, 2)
    assert (first.status, first.reason, first.error) == ("failed", "rate_limit_exceeded", "slow down")
    assert (second.status, second.reason, second.error) == ("failed", "server_is_overloaded", "too much")


async def test_settings_can_change_but_not_the_voice_after_audio() -> None:
    tools = (ToolSpec("f", "Does it.", {"type": "object", "properties": {}}),)
    marin, cedar = (
        SessionConfig("A", "You are A.", voice="marin"),
        SessionConfig("B", "You are B.", tools, voice="cedar"),
    )
    async with OpenAIRealtimeServer(["Hello."]) as server, connect(server, marin) as probe:
        await request_response(probe)
        await probe.send(ConfigureSession(cedar, changes_voice=False))
        await probe.until(SessionConfigured)
        assert server.complaints == []
        await probe.send(ConfigureSession(cedar, id="too_late"))
        error = await probe.until(ProviderErrorReceived)
    assert (error.code, error.command_id) == ("cannot_update_voice", "too_late")
    settings = server.sessions[0].settings
    assert (settings["instructions"], settings["tools"][0]["name"]) == ("You are B.", "f")
    assert settings["audio"]["output"]["voice"] == "marin"


async def test_errors_name_the_command_that_caused_them() -> None:
    message = AssistantMessage("Hi", (ToolCall("call_x", "f", "{}"), ToolCall("call_x", "g", "{}")))
    faults = [RefuseCommand("response.create", "server_error", "no")]
    async with OpenAIRealtimeServer([], faults=faults) as server, connect(server) as probe:
        await probe.send(AddItem(message, "item_1", id="twice"), CreateResponse(id="now"))
        await probe.until(ProviderErrorReceived, 2)
    assert [(error.code, error.command_id) for error in probe.all(ProviderErrorReceived)] == [
        ("duplicate_tool_call_id", "twice"),
        ("server_error", "now"),
    ]


async def test_repeated_events_are_ignored() -> None:
    faults = [
        RepeatEvent("response.done"),
        RepeatEvent("response.done", new_id=True, nth=2),
        RepeatEvent("response.output_audio.delta"),
        RepeatEvent("conversation.item.added"),
        RepeatEvent("session.updated", nth=2),
    ]
    steps = [call("f"), "Hello."]
    async with OpenAIRealtimeServer(steps, faults=faults) as server, connect(server) as probe:
        await probe.send(HELLO, ConfigureSession(AUDIO_CONFIG))
        await request_response(probe)
        await request_response(probe, 2)
        await probe.send(AddItem(UserMessage("More"), "item_more"))
        await probe.until(ItemAdded, 2)
    assert server.faults_left == []
    assert len(probe.all(ResponseEnded)) == 2
    assert b"".join(chunk.audio for chunk in probe.all(AudioChunk)) == speech("Hello.")
    assert [added.item_id for added in probe.all(ItemAdded)] == ["item_hello", "item_more"]
    assert probe.all(SessionConfigured) == [SessionConfigured()]


async def test_events_out_of_order_lose_nothing() -> None:
    faults = [SwapEvents("response.output_audio.delta"), SwapEvents("conversation.item.added")]
    async with OpenAIRealtimeServer(["One two."], faults=faults) as server, connect(server) as probe:
        await probe.send(HELLO)
        ended = await request_response(probe)
    assert ended.message == AssistantMessage("One two.")
    assert len(probe.all(AudioChunk)) == 2
    assert probe.all(ItemAdded) == [ItemAdded("item_hello", "user")]


async def test_malformed_events_are_errors_and_unknown_ones_are_ignored() -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        session = server.sessions[0]
        await session.raw("{broken")
        await session.raw('{"type": "response.output_audio.delta", "delta": "no base64!"}')
        await session.raw('{"type": "unknown.event", "event_id": "event_1", "value": 1}')
        await session.raw('{"type": "error", "error": {"message": "last", "type": "server_error"}}')
        await probe.until(ProviderErrorReceived, 3)
    assert [error.code for error in probe.all(ProviderErrorReceived)] == [
        "malformed_event",
        "malformed_event",
        "server_error",
    ]
    assert len(probe.signals) == 1 + 3


@pytest.mark.parametrize("code", [None, 1001, 1011, 4000])
async def test_a_lost_connection_is_a_connection_error(code: int | None) -> None:
    fault = CutConnection("response.output_audio.delta", code=code, reason="going")
    async with OpenAIRealtimeServer(["One two three."], faults=[fault]) as server, connect(server) as probe:
        await probe.send(CreateResponse())
        with pytest.raises(ModelConnectionError, match="gpt-realtime") as raised:
            await probe.to_the_end()
        assert raised.value.retryable
        assert len(probe.all(AudioChunk)) == 1
        with pytest.raises(ModelConnectionError):
            await probe.send(CreateResponse())


async def test_a_normal_closure_ends_the_signals() -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        await server.sessions[0].close()
        await probe.to_the_end()
    assert probe.signals == [SessionReady(server.sessions[0].id)]


async def test_closing_ends_the_signals_and_nothing_is_sent_afterwards() -> None:
    async with OpenAIRealtimeServer([]) as server, connect(server) as probe:
        read_task = asyncio.create_task(probe.to_the_end())
        await server.sessions[0].until_sent("session.updated")
        await probe.connection.close()
        await probe.connection.close()
        await read_task
        with pytest.raises(ModelConnectionError, match="is closed"):
            await probe.send(CreateResponse())
        assert await server.sessions[0].until_closed() == 1000
    assert [recorded.type for recorded in server.sessions[0].received] == ["session.update"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (AuthenticationError("no"), AuthenticationError),
        (HttpFault(403), AuthenticationError),
        (ModelNotFoundError("The model `x` does not exist"), ModelNotFoundError),
        (RateLimitError("later", retry_after=3), RateLimitError),
        (OverloadedError("later"), OverloadedError),
        (HttpFault(400), ModelRequestError),
    ],
)
async def test_a_refused_handshake_raises_the_matching_error(fault: ModelError, kind: type[ModelError]) -> None:
    async with OpenAIRealtimeServer([]) as server:
        server.refuse(fault)
        with pytest.raises(kind) as raised:
            await make_model(server).connect(AUDIO_CONFIG)
        assert type(raised.value) is kind
        assert raised.value.model == "openai:gpt-realtime"
        assert raised.value.retry_after == fault.retry_after


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirected_handshake_is_not_followed(status: int) -> None:
    async with OpenAIRealtimeServer([]) as elsewhere, OpenAIRealtimeServer([]) as server:
        server.refuse(HttpFault(status, headers={"location": f"{elsewhere.origin}/v1/realtime?model=gpt-realtime"}))
        with pytest.raises(ModelConnectionError) as raised:
            await make_model(server, headers={"api-key": "s3cret"}).connect(AUDIO_CONFIG)
        assert (elsewhere.handshakes, len(server.handshakes)) == ([], 1)
    shown = (
        f"`openai:gpt-realtime` redirects to {elsewhere.origin}/v1/realtime (status {status}), and redirects are not"
    )
    assert str(raised.value).startswith(shown)
    assert not raised.value.retryable


async def test_wrong_keys_models_and_urls_are_reported() -> None:
    async with OpenAIRealtimeServer({"gpt-realtime": []}) as server:
        with pytest.raises(AuthenticationError):
            await make_model(server, api_key="wrong").connect(AUDIO_CONFIG)
        with pytest.raises(ModelNotFoundError):
            await make_model(server, model="gpt-other").connect(AUDIO_CONFIG)
        unreachable = make_model(server)
    with pytest.raises(ModelConnectionError, match="cannot be reached"):
        await unreachable.connect(AUDIO_CONFIG)


async def test_refused_settings_fail_the_connection() -> None:
    settings = SessionConfig("Desk", voice="unknown")
    async with OpenAIRealtimeServer([]) as server:
        with pytest.raises(ModelRequestError, match="unknown"):
            await make_model(server).connect(settings)
        assert await server.sessions[0].until_closed() == 1000
        server.plan(RefuseCommand("session.update", "rate_limit_exceeded", "slow down"))
        with pytest.raises(RateLimitError):
            await make_model(server).connect(AUDIO_CONFIG)
        server.plan(RefuseCommand("session.update", "server_error", "broken"))
        with pytest.raises(OverloadedError):
            await make_model(server).connect(AUDIO_CONFIG)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (CutConnection("session.created", before=True), ModelConnectionError),
        (CutConnection("session.created"), ModelConnectionError),
        (CutConnection("session.created", code=1000), ModelConnectionError),
        (
            CutConnection("session.created", code=3000, reason="invalid_request_error.invalid_api_key"),
            AuthenticationError,
        ),
        (
            CutConnection("session.created", code=4000, reason="invalid_request_error.model_not_found"),
            ModelNotFoundError,
        ),
        (IgnoreCommand("session.update"), ModelTimeoutError),
    ],
)
async def test_a_connection_lost_during_the_setup_raises_an_error(fault: Any, kind: type[ModelError]) -> None:
    async with OpenAIRealtimeServer([], faults=[fault]) as server:
        model = make_model(server, timeout=0.1 if kind is ModelTimeoutError else PATIENCE)
        with pytest.raises(kind):
            await model.connect(AUDIO_CONFIG)


async def test_websocket_urls_headers_and_a_custom_client() -> None:
    async with OpenAIRealtimeServer([]) as server:
        async with connect(server, base_url=server.base_url.replace("http", "ws"), headers={"x-desk": "1"}):
            pass
        client = AsyncOpenAI(api_key=server.api_key, base_url=server.base_url)
        async with client, connect(server, client=client, api_key=None, base_url=None):
            pass
    first, second = server.handshakes
    assert first.headers["x-desk"] == "1"
    assert first.query["model"] == second.query["model"] == "gpt-realtime"


async def test_loading_the_sdk_does_not_count_as_time_to_open_a_session() -> None:
    clock = LoopClock()

    class SlowlyLoadedClient(AsyncOpenAI):
        @property
        def realtime(self) -> Any:
            clock.advance(600)
            return super().realtime

    async with (
        OpenAIRealtimeServer([]) as server,
        SlowlyLoadedClient(api_key=server.api_key, base_url=server.base_url) as client,
        connect(server, client=client, api_key=None, base_url=None),
    ):
        pass
    assert len(server.sessions) == 1


async def test_a_missing_key_is_reported_with_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        await OpenAIRealtimeModel(base_url="http://127.0.0.1:9/v1").connect(AUDIO_CONFIG)


def test_a_missing_sdk_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(SetupError, match=r"batonkit\[realtime\]"):
        OpenAIRealtimeModel()


def test_the_model_implements_the_protocol() -> None:
    assert isinstance(OpenAIRealtimeModel(), RealtimeModel)
    assert OpenAIRealtimeModel("gpt-realtime-mini").name == "openai:gpt-realtime-mini"


async def test_a_long_history_can_be_sent_before_signals_are_read() -> None:
    count, text = 1000, "word " * 2000
    async with OpenAIRealtimeServer([], record=False) as server, connect(server) as probe:
        for number in range(count):
            await probe.send(AddItem(UserMessage(text), f"item_{number}"))
        await probe.until(ItemAdded, count)
    assert [added.item_id for added in probe.all(ItemAdded)] == [f"item_{number}" for number in range(count)]


async def test_fifty_concurrent_sessions_of_one_model() -> None:
    audio = speech("Hello there", pause_ms=600)
    async with OpenAIRealtimeServer(["Hello!"], cycle=True) as server:
        model = make_model(server)

        async def run_session() -> ResponseEnded:
            connection = await model.connect(AUDIO_CONFIG)
            probe = ConversationProbe(connection)
            for start in range(0, len(audio), 960):
                await probe.send(AppendAudio(audio[start : start + 960]))
            ended = await probe.until(ResponseEnded)
            await connection.close()
            return ended

        ended = await asyncio.gather(*[run_session() for _ in range(50)])
        assert [each.message for each in ended] == [AssistantMessage("Hello!")] * 50
        assert all(bytes(session.audio) == audio for session in server.sessions)
        await model.aclose()
    assert server.complaints == []
