"""The model of OpenAI against a server of ours, over a real websocket: R3, R7, R8, R9."""

import asyncio
import sys
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.realtime.openai.support import SPOKEN, WRITTEN, model_of, talk
from tests.servers import HttpFault, OpenAIRealtimeServer
from tests.servers.realtime import CutConnection, IgnoreCommand, RefuseCommand, RepeatEvent, SwapEvents, speech

from baton.errors import (
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
from baton.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from baton.models import ToolCallChunk
from baton.realtime.openai import OpenAIRealtimeModel
from baton.realtime.protocol import (
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
from baton.realtime.settings import RealtimeSettings, SessionConfig, TurnDetection
from baton.testing import ScriptedStream, call, say
from baton.testing.conformance.realtime import ConversationProbe

HELLO = AddItem(UserMessage("Hello"), "item_hello", id="hello")


async def answered(talking: ConversationProbe, nth: int = 1) -> ResponseEnded:
    await talking.send(CreateResponse())
    return await talking.until(ResponseEnded, nth)


async def test_a_spoken_answer() -> None:
    async with OpenAIRealtimeServer(["Good day."]) as server, talk(server) as talking:
        await talking.send(HELLO)
        ended = await answered(talking)
    ready, added, started = talking.signals[:3]
    assert ready == SessionReady(server.sessions[0].id)
    assert added == ItemAdded("item_hello", "user")
    assert started == ResponseStarted(ended.response_id)
    chunks = talking.all(AudioChunk)
    assert b"".join(chunk.audio for chunk in chunks) == speech("Good day.")
    assert [chunk.text for chunk in talking.all(TranscriptChunk)] == ["Good ", "day."]
    assert talking.all(AudioEnded) == [AudioEnded(ended.response_id, chunks[0].item_id, 0)]
    assert (ended.status, ended.message, ended.reason) == ("completed", AssistantMessage("Good day."), "")
    assert ended.item_ids == (chunks[0].item_id,)
    assert ended.model == "openai:gpt-realtime"
    assert server.complaints == []


async def test_a_written_answer_with_calls_and_their_results() -> None:
    steps = [say("A moment.", call("f", a=1), call("g"), usage=Usage(30, 5, cached_tokens=7)), "Done."]
    async with OpenAIRealtimeServer(steps) as server, talk(server, WRITTEN) as talking:
        ended = await answered(talking)
        calls = (ToolCall("call_1", "f", '{"a":1}'), ToolCall("call_2", "g", "{}"))
        assert ended.message == AssistantMessage("A moment.", calls)
        assert ended.usage == Usage(30, 5, cached_tokens=7, model_calls=1)
        assert {chunk.is_spoken for chunk in talking.all(TranscriptChunk)} == {False}
        await talking.send(
            AddItem(ToolMessage("call_1", "f", "one"), "item_one"),
            AddItem(ToolMessage("call_2", "g", "two"), "item_two"),
        )
        assert (await answered(talking, 2)).message == AssistantMessage("Done.")
    assert talking.all(ItemAdded) == [
        ItemAdded("item_one", "result", "call_1"),
        ItemAdded("item_two", "result", "call_2"),
    ]
    assert server.complaints == []


async def test_speech_is_heard_transcribed_and_answered() -> None:
    settings = SessionConfig("Desk", settings=RealtimeSettings(turn_detection=TurnDetection(silence_ms=300)))
    async with OpenAIRealtimeServer(["Fine."], hears=["How are you"]) as server, talk(server, settings) as talking:
        sound = speech("How are you", pause_ms=400)
        for start in range(0, len(sound), 960):
            await talking.send(AppendAudio(sound[start : start + 960]))
        await talking.until(ResponseEnded)
    item_id = talking.all(UserSpeechStarted)[0].item_id
    assert talking.all(UserSpeechEnded) == [UserSpeechEnded(item_id, 900)]
    assert talking.all(AudioCommitted) == [AudioCommitted(item_id)]
    assert "".join(piece.text for piece in talking.all(TranscriptionChunk)) == "How are you"
    assert talking.all(TranscriptionCompleted) == [TranscriptionCompleted(item_id, "How are you")]
    assert talking.all(ItemAdded) == []
    assert bytes(server.sessions[0].audio) == sound
    assert server.complaints == []


async def test_audio_is_committed_and_cleared_by_hand() -> None:
    settings = SessionConfig("Desk", settings=RealtimeSettings(turn_detection=None))
    async with OpenAIRealtimeServer([], hears=[ValueError("noise")]) as server, talk(server, settings) as talking:
        await talking.send(AppendAudio(speech("Gone")), ClearAudio(), AppendAudio(speech("Hello")), CommitAudio())
        failed = await talking.until(TranscriptionFailed)
        assert failed == TranscriptionFailed(talking.all(AudioCommitted)[0].item_id, "noise")
    assert server.sessions[0].items[0].audio_ms == 200
    assert server.complaints == []


async def test_the_user_interrupts_and_the_item_is_truncated() -> None:  # R7
    steps = [ScriptedStream("One ", "two ", "three ", asyncio.Event())]
    async with OpenAIRealtimeServer(steps) as server, talk(server) as talking:
        await talking.send(CreateResponse())
        item_id = (await talking.until(AudioChunk, 3)).item_id
        await talking.send(AppendAudio(speech("Stop")))
        ended = await talking.until(ResponseEnded)
        assert (ended.status, ended.reason) == ("cancelled", "turn_detected")
        assert ended.message == AssistantMessage("One two three ")
        await talking.send(TruncateItem(item_id, 0, 250))
        assert await talking.until(ItemTruncated) == ItemTruncated(item_id, 250)
    assert server.sessions[0].conversation.messages() == [AssistantMessage("One")]
    assert server.complaints == []


async def test_a_cancelled_response_has_only_its_complete_calls() -> None:
    step = ScriptedStream(
        call("first"), ToolCallChunk(1, "call_9", "second"), ToolCallChunk(1, arguments='{"a'), asyncio.Event()
    )
    async with OpenAIRealtimeServer([step]) as server, talk(server) as talking:
        await talking.send(CreateResponse())
        started = await talking.until(ResponseStarted)
        await server.sessions[0].until_sent("response.function_call_arguments.delta", 2)
        await talking.send(CancelResponse(started.response_id))
        ended = await talking.until(ResponseEnded)
    assert (ended.status, ended.reason) == ("cancelled", "client_cancelled")
    assert ended.message.tool_calls == (ToolCall("call_1", "first", "{}"),)


async def test_a_response_that_fails_says_why() -> None:
    steps = [RateLimitError("slow down"), OverloadedError("too much")]
    async with OpenAIRealtimeServer(steps) as server, talk(server) as talking:
        first, second = await answered(talking), await answered(talking, 2)
    assert (first.status, first.reason, first.error) == ("failed", "rate_limit_exceeded", "slow down")
    assert (second.status, second.reason, second.error) == ("failed", "server_is_overloaded", "too much")


async def test_settings_change_and_the_voice_only_if_it_may() -> None:  # R4
    tools = (ToolSpec("f", "Does it.", {"type": "object", "properties": {}}),)
    marin, cedar = (
        SessionConfig("A", "You are A.", voice="marin"),
        SessionConfig("B", "You are B.", tools, voice="cedar"),
    )
    async with OpenAIRealtimeServer(["Hello."]) as server, talk(server, marin) as talking:
        await answered(talking)
        await talking.send(ConfigureSession(cedar, changes_voice=False))
        await talking.until(SessionConfigured)
        assert server.complaints == []
        await talking.send(ConfigureSession(cedar, id="too_late"))
        trouble = await talking.until(ProviderErrorReceived)
    assert (trouble.code, trouble.command_id) == ("cannot_update_voice", "too_late")
    settings = server.sessions[0].settings
    assert (settings["instructions"], settings["tools"][0]["name"]) == ("You are B.", "f")
    assert settings["audio"]["output"]["voice"] == "marin"


async def test_troubles_name_the_command_they_are_about() -> None:
    message = AssistantMessage("Hi", (ToolCall("call_x", "f", "{}"), ToolCall("call_x", "g", "{}")))
    faults = [RefuseCommand("response.create", "server_error", "no")]
    async with OpenAIRealtimeServer([], faults=faults) as server, talk(server) as talking:
        await talking.send(AddItem(message, "item_1", id="twice"), CreateResponse(id="now"))
        await talking.until(ProviderErrorReceived, 2)
    assert [(trouble.code, trouble.command_id) for trouble in talking.all(ProviderErrorReceived)] == [
        ("duplicate_tool_call_id", "twice"),
        ("server_error", "now"),
    ]


async def test_repeated_events_are_ignored() -> None:  # R8
    faults = [
        RepeatEvent("response.done"),
        RepeatEvent("response.done", new_id=True, nth=2),
        RepeatEvent("response.output_audio.delta"),
        RepeatEvent("conversation.item.added"),
        RepeatEvent("session.updated", nth=2),
    ]
    steps = [call("f"), "Hello."]
    async with OpenAIRealtimeServer(steps, faults=faults) as server, talk(server) as talking:
        await talking.send(HELLO, ConfigureSession(SPOKEN))
        await answered(talking)
        await answered(talking, 2)
        await talking.send(AddItem(UserMessage("More"), "item_more"))
        await talking.until(ItemAdded, 2)
    assert server.faults_left == []
    assert len(talking.all(ResponseEnded)) == 2
    assert b"".join(chunk.audio for chunk in talking.all(AudioChunk)) == speech("Hello.")
    assert [added.item_id for added in talking.all(ItemAdded)] == ["item_hello", "item_more"]
    assert talking.all(SessionConfigured) == [SessionConfigured()]


async def test_events_out_of_order_lose_nothing() -> None:
    faults = [SwapEvents("response.output_audio.delta"), SwapEvents("conversation.item.added")]
    async with OpenAIRealtimeServer(["One two."], faults=faults) as server, talk(server) as talking:
        await talking.send(HELLO)
        ended = await answered(talking)
    assert ended.message == AssistantMessage("One two.")
    assert len(talking.all(AudioChunk)) == 2
    assert talking.all(ItemAdded) == [ItemAdded("item_hello", "user")]


async def test_malformed_events_are_errors_and_unknown_ones_are_ignored() -> None:
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        session = server.sessions[0]
        await session.raw("{broken")
        await session.raw('{"type": "response.output_audio.delta", "delta": "no base64!"}')
        await session.raw('{"type": "kitchen.opened", "event_id": "event_1", "oven": 1}')
        await session.raw('{"type": "error", "error": {"message": "last", "type": "server_error"}}')
        await talking.until(ProviderErrorReceived, 3)
    assert [trouble.code for trouble in talking.all(ProviderErrorReceived)] == [
        "malformed_event",
        "malformed_event",
        "server_error",
    ]
    assert len(talking.signals) == 1 + 3


@pytest.mark.parametrize("code", [None, 1001, 1011, 4000])
async def test_a_cut_is_a_connection_error(code: int | None) -> None:  # R9
    fault = CutConnection("response.output_audio.delta", code=code, reason="going")
    async with OpenAIRealtimeServer(["One two three."], faults=[fault]) as server, talk(server) as talking:
        await talking.send(CreateResponse())
        with pytest.raises(ModelConnectionError, match="gpt-realtime") as raised:
            await talking.to_the_end()
        assert raised.value.retryable
        assert len(talking.all(AudioChunk)) == 1
        with pytest.raises(ModelConnectionError):
            await talking.send(CreateResponse())


async def test_a_close_in_good_order_ends_the_signals() -> None:  # R9
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        await server.sessions[0].close()
        await talking.to_the_end()
    assert talking.signals == [SessionReady(server.sessions[0].id)]


async def test_closing_ends_the_signals_and_nothing_is_sent_afterwards() -> None:  # R11
    async with OpenAIRealtimeServer([]) as server, talk(server) as talking:
        reading = asyncio.create_task(talking.to_the_end())
        await server.sessions[0].until_sent("session.updated")
        await talking.connection.close()
        await talking.connection.close()
        await reading
        with pytest.raises(ModelConnectionError, match="is closed"):
            await talking.send(CreateResponse())
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
async def test_a_handshake_that_is_refused_is_an_error_of_its_kind(fault: ModelError, kind: type[ModelError]) -> None:
    async with OpenAIRealtimeServer([]) as server:
        server.refuse(fault)
        with pytest.raises(kind) as raised:
            await model_of(server).connect(SPOKEN)
        assert type(raised.value) is kind
        assert raised.value.model == "openai:gpt-realtime"
        assert raised.value.retry_after == fault.retry_after


async def test_wrong_keys_models_and_addresses() -> None:
    async with OpenAIRealtimeServer({"gpt-realtime": []}) as server:
        with pytest.raises(AuthenticationError):
            await model_of(server, api_key="wrong").connect(SPOKEN)
        with pytest.raises(ModelNotFoundError):
            await model_of(server, model="gpt-other").connect(SPOKEN)
        gone = model_of(server, timeout=20.0)
    with pytest.raises(ModelConnectionError, match="cannot be reached"):
        await gone.connect(SPOKEN)


async def test_settings_that_are_refused_do_not_open_a_conversation() -> None:
    settings = SessionConfig("Desk", voice="nobody")
    async with OpenAIRealtimeServer([]) as server:
        with pytest.raises(ModelRequestError, match="nobody"):
            await model_of(server).connect(settings)
        assert await server.sessions[0].until_closed() == 1000
        server.plan(RefuseCommand("session.update", "rate_limit_exceeded", "slow down"))
        with pytest.raises(RateLimitError):
            await model_of(server).connect(SPOKEN)
        server.plan(RefuseCommand("session.update", "server_error", "broken"))
        with pytest.raises(OverloadedError):
            await model_of(server).connect(SPOKEN)


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
async def test_a_conversation_that_ends_before_it_begins(fault: Any, kind: type[ModelError]) -> None:
    async with OpenAIRealtimeServer([], faults=[fault]) as server:
        model = model_of(server, timeout=0.3 if kind is ModelTimeoutError else 10.0)
        with pytest.raises(kind):
            await model.connect(SPOKEN)


async def test_addresses_of_websockets_headers_and_a_client_of_your_own() -> None:
    async with OpenAIRealtimeServer([]) as server:
        async with talk(server, base_url=server.base_url.replace("http", "ws"), headers={"x-desk": "1"}):
            pass
        client = AsyncOpenAI(api_key=server.api_key, base_url=server.base_url)
        async with client, talk(server, client=client, api_key=None, base_url=None):
            pass
    first, second = server.handshakes
    assert first.headers["x-desk"] == "1"
    assert first.query["model"] == second.query["model"] == "gpt-realtime"


async def test_without_a_key_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        await OpenAIRealtimeModel(base_url="http://127.0.0.1:9/v1").connect(SPOKEN)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(SetupError, match=r"baton-adk\[realtime\]"):
        OpenAIRealtimeModel()


def test_it_is_a_realtime_model() -> None:
    assert isinstance(OpenAIRealtimeModel(), RealtimeModel)
    assert OpenAIRealtimeModel("gpt-realtime-mini").name == "openai:gpt-realtime-mini"


async def test_a_long_history_can_be_told_before_anything_is_read() -> None:  # R3, R9
    count, long = 1000, "word " * 2000
    async with OpenAIRealtimeServer([], record=False) as server, talk(server) as talking:
        async with asyncio.timeout(120):
            for number in range(count):
                await talking.send(AddItem(UserMessage(long), f"item_{number}"))
        await talking.until(ItemAdded, count)
    assert [added.item_id for added in talking.all(ItemAdded)] == [f"item_{number}" for number in range(count)]


async def test_fifty_conversations_over_one_model() -> None:
    sound = speech("Hello there", pause_ms=600)
    async with OpenAIRealtimeServer(["Hello!"], cycle=True) as server:
        model = model_of(server)

        async def one() -> ResponseEnded:
            connection = await model.connect(SPOKEN)
            talking = ConversationProbe(connection)
            for start in range(0, len(sound), 960):
                await talking.send(AppendAudio(sound[start : start + 960]))
            ended = await talking.until(ResponseEnded)
            await connection.close()
            return ended

        ended = await asyncio.gather(*[one() for _ in range(50)])
        assert [each.message for each in ended] == [AssistantMessage("Hello!")] * 50
        assert all(bytes(session.audio) == sound for session in server.sessions)
        await model.aclose()
    assert server.complaints == []
