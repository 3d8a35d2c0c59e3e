"""`ScriptedRealtimeModel`: responses, speech detection and transcription, with the signals of a provider."""

import asyncio

import pytest

from batonkit.errors import ModelConnectionError, ModelError, SetupError
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import ModelRequest
from batonkit.realtime.protocol import (
    AddItem,
    AppendAudio,
    AudioChunk,
    AudioCommitted,
    AudioEnded,
    CancelResponse,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ItemTruncated,
    RealtimeConnection,
    RealtimeModel,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionReady,
    Signal,
    TranscriptChunk,
    TranscriptionCompleted,
    TranscriptionFailed,
    TruncateItem,
    UserSpeechEnded,
    UserSpeechStarted,
)
from batonkit.realtime.voice_settings import RealtimeSettings, SessionConfig, TurnDetection
from batonkit.testing import (
    ScriptedConnection,
    ScriptedRealtimeModel,
    ScriptedStream,
    ScriptStep,
    call,
    say,
    silence,
    speech,
)

TEXT = SessionConfig("Desk", settings=RealtimeSettings(modality="text"))
AUDIO = SessionConfig("Desk")


async def read_until(connection: ScriptedConnection, until: type[Signal] = ResponseEnded) -> list[Signal]:
    """Return the signals up to the next one of this class."""
    signals: list[Signal] = []
    async with asyncio.timeout(60):
        async for signal in connection:
            signals.append(signal)
            if isinstance(signal, until):
                return signals
    raise AssertionError(f"the connection ended before {until.__name__}: {signals}")


async def request_response(connection: ScriptedConnection) -> ResponseEnded:
    await connection.send(CreateResponse())
    ended = (await read_until(connection))[-1]
    assert isinstance(ended, ResponseEnded)
    return ended


async def test_the_scripted_model_implements_the_protocol() -> None:
    model: RealtimeModel = ScriptedRealtimeModel([])
    connection: RealtimeConnection = await model.connect(AUDIO)
    assert isinstance(model, RealtimeModel)
    await connection.close()


async def test_text_is_sent_word_by_word() -> None:
    connection = await ScriptedRealtimeModel([say("Good day.", usage=Usage(3, 4))]).connect(TEXT)
    await connection.send(CreateResponse())
    assert await read_until(connection) == [
        SessionReady("session_1"),
        ResponseStarted("response_1"),
        TranscriptChunk("response_1", "piece_1", 0, "Good ", is_spoken=False),
        TranscriptChunk("response_1", "piece_1", 0, "day.", is_spoken=False),
        ResponseEnded(
            *("response_1", "completed", AssistantMessage("Good day."), ("piece_1",)),
            usage=Usage(3, 4),
            model="scripted-realtime",
        ),
    ]


async def test_speech_has_a_transcript_and_a_duration_per_word() -> None:
    connection = await ScriptedRealtimeModel(["Good day."], ms_per_word=100).connect(AUDIO)
    await connection.send(CreateResponse())
    signals = (await read_until(connection))[2:-1]
    assert [type(signal) for signal in signals] == [
        TranscriptChunk,
        AudioChunk,
        TranscriptChunk,
        AudioChunk,
        AudioEnded,
    ]
    assert signals[1] == AudioChunk("response_1", "piece_1", 0, speech("Good", ms_per_word=100))
    assert len(speech("Good", ms_per_word=100)) == 100 * 48
    assert connection.items[0].audio_ms == 200


async def test_calls_follow_the_text_as_separate_items() -> None:
    model = ScriptedRealtimeModel([say("One moment.", call("look_up", id=7), call("wave")), "Done."])
    connection = await model.connect(TEXT)
    ended = await request_response(connection)
    assert ended.message == AssistantMessage(
        "One moment.", (ToolCall("call_1", "look_up", '{"id":7}'), ToolCall("call_2", "wave"))
    )
    assert [(item.role, item.call_id) for item in connection.items] == [
        ("assistant", ""),
        ("call", "call_1"),
        ("call", "call_2"),
    ]
    await connection.send(AddItem(ToolMessage("call_1", "look_up", "found")))
    assert (await read_until(connection, ItemAdded))[-1] == ItemAdded("piece_4", "result", "call_1")
    assert model.complaints == []


async def test_usage_is_counted_in_words_by_default() -> None:
    connection = await ScriptedRealtimeModel([say("Good day.", call("wave"))]).connect(TEXT)
    await connection.send(AddItem(UserMessage("Hello over there")))
    assert (await request_response(connection)).usage == Usage(3, 3)


async def test_steps_are_taken_from_the_agent_that_is_configured_when_the_response_starts() -> None:
    def billing(request: ModelRequest) -> str:
        return f"for {request.instructions}"

    steps: dict[str, list[ScriptStep]] = {"Desk": ["at the desk"], "Billing": [billing]}
    model = ScriptedRealtimeModel(steps)
    connection = await model.connect(TEXT)
    assert (await request_response(connection)).message.content == "at the desk"
    await connection.send(ConfigureSession(SessionConfig("Billing", "bills", settings=TEXT.settings)))
    assert (await read_until(connection, SessionConfigured))[-1] == SessionConfigured()
    assert (await request_response(connection)).message.content == "for bills"
    model.assert_done()


async def test_a_function_receives_the_conversation() -> None:
    def repeat(request: ModelRequest) -> str:
        return " | ".join(str(message.content) for message in request.messages)

    model = ScriptedRealtimeModel(["First.", repeat])
    connection = await model.connect(TEXT)
    await request_response(connection)
    await connection.send(AddItem(UserMessage("And?"), item_id="mine"))
    assert (await request_response(connection)).message.content == "First. | And?"
    assert [item.id for item in connection.items][1] == "mine"
    assert [request.agent for request in model.requests] == ["Desk", "Desk"]


async def test_running_out_of_steps_fails_the_response_and_names_the_agent() -> None:
    ended = await request_response(await ScriptedRealtimeModel({"Desk": []}).connect(TEXT))
    assert ended.status == "failed"
    assert "has no step left for the agent `Desk`" in ended.error


async def test_a_model_error_fails_the_response_and_a_connection_error_cuts_the_connection() -> None:
    model = ScriptedRealtimeModel([ModelError("overloaded"), ScriptedStream("Hel", ModelConnectionError("gone"))])
    connection = await model.connect(TEXT)
    assert ((await request_response(connection)).status, connection.is_open) == ("failed", True)
    await connection.send(CreateResponse())
    with pytest.raises(ModelConnectionError, match="gone"):
        await read_until(connection)
    assert connection.told(TranscriptChunk)[-1].text == "Hel"
    with pytest.raises(ModelConnectionError):
        await connection.send(CreateResponse())
    assert model.complaints == []


async def test_other_errors_of_a_step_are_raised_to_the_reader() -> None:
    def fail(request: ModelRequest) -> str:
        raise AssertionError(f"unexpected request by {request.agent}")

    connection = await ScriptedRealtimeModel([fail]).connect(TEXT)
    await connection.send(CreateResponse())
    with pytest.raises(AssertionError, match="unexpected request by Desk"):
        await read_until(connection)


async def test_an_incomplete_response_has_the_reason() -> None:
    connection = await ScriptedRealtimeModel([ScriptedStream("Hel", stop_reason="length")]).connect(TEXT)
    ended = await request_response(connection)
    assert (ended.status, ended.reason, ended.message.content) == ("incomplete", "max_output_tokens", "Hel")


async def test_a_cancelled_response_keeps_its_complete_calls() -> None:
    may_continue = asyncio.Event()
    model = ScriptedRealtimeModel([ScriptedStream("Let me", call("wave"), may_continue, call("never")), "Again."])
    connection = await model.connect(AUDIO)
    await connection.send(CreateResponse())
    await read_until(connection, AudioEnded)
    await connection.send(CancelResponse("response_1"))
    ended = (await read_until(connection))[-1]
    assert isinstance(ended, ResponseEnded)
    assert (ended.status, ended.reason) == ("cancelled", "client_cancelled")
    assert ended.message == AssistantMessage("Let me", (ToolCall("call_1", "wave"),))
    assert (await request_response(connection)).message.content == "Again."
    assert model.complaints == []


async def test_the_user_speaks_and_is_answered() -> None:
    connection = await ScriptedRealtimeModel(["Good day."]).connect(TEXT)
    connection.user_speaks("Hello")
    assert (await read_until(connection, ResponseStarted))[1:] == [
        UserSpeechStarted("piece_1"),
        UserSpeechEnded("piece_1"),
        AudioCommitted("piece_1"),
        TranscriptionCompleted("piece_1", "Hello"),
        ResponseStarted("response_1"),
    ]
    await read_until(connection)
    assert [item.message.content for item in connection.items] == ["Hello", "Good day."]


async def test_the_user_interrupts_and_the_item_is_truncated() -> None:
    # The item keeps the played part.
    model = ScriptedRealtimeModel([ScriptedStream("one two three four", asyncio.Event()), "Yes?"], ms_per_word=100)
    connection = await model.connect(AUDIO)
    await connection.send(CreateResponse())
    await read_until(connection, AudioChunk)
    connection.user_begins()
    assert [type(signal) for signal in await read_until(connection)] == [UserSpeechStarted, AudioEnded, ResponseEnded]
    assert connection.told(ResponseEnded)[-1].reason == "turn_detected"
    await connection.send(TruncateItem("piece_1", 0, 250))
    assert (await read_until(connection, ItemTruncated))[-1] == ItemTruncated("piece_1", 250)
    assert connection.items[0].message == AssistantMessage("one two")
    connection.user_ceases("Stop")
    await read_until(connection)
    assert [item.message.content for item in connection.items] == ["one two", "Stop", "Yes?"]
    assert model.complaints == []


async def test_without_interrupt_response_the_response_continues_and_another_follows() -> None:
    settings = RealtimeSettings(modality="text", turn_detection=TurnDetection(interrupt_response=False))
    may_continue = asyncio.Event()
    model = ScriptedRealtimeModel([ScriptedStream("one", may_continue, " two"), "three"])
    connection = await model.connect(SessionConfig("Desk", settings=settings))
    await connection.send(CreateResponse())
    await read_until(connection, TranscriptChunk)
    connection.user_speaks("Hm")
    await read_until(connection, TranscriptionCompleted)
    assert len(connection.told(ResponseStarted)) == 1
    may_continue.set()
    assert (await read_until(connection))[-1] == connection.told(ResponseEnded)[0]
    assert connection.told(ResponseEnded)[0].message.content == "one two"
    await read_until(connection)
    assert [ended.message.content for ended in connection.told(ResponseEnded)] == ["one two", "three"]
    assert model.complaints == []


async def test_transcripts_of_committed_audio_are_taken_from_hears() -> None:
    settings = RealtimeSettings(modality="text", turn_detection=None)
    model = ScriptedRealtimeModel([], hears=["Hello"])
    connection = await model.connect(SessionConfig("Desk", settings=settings))
    for _ in range(2):
        await connection.send(AppendAudio(speech("Hello")))
        await connection.send(CommitAudio())
    assert connection.signals[1:] == [
        AudioCommitted("piece_1"),
        TranscriptionCompleted("piece_1", "Hello"),
        AudioCommitted("piece_2"),
        TranscriptionFailed("piece_2", "`hears` has no text left"),
    ]
    assert connection.heard == speech("Hello Hello")
    assert connection.items[0].audio_ms == 200
    with pytest.raises(SetupError, match="the session detects no speech"):
        connection.user_begins()


async def test_manually_committed_audio_gets_no_automatic_response() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(silence(200)))
    await connection.send(CommitAudio())
    await connection.send(CreateResponse())
    assert [type(signal) for signal in (await read_until(connection))[1:4]] == [
        AudioCommitted,
        TranscriptionCompleted,
        ResponseStarted,
    ]
    assert model.complaints == []


async def test_speech_in_the_audio_is_detected_and_answered() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello there"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(speech("Hello there", pause_ms=600)))
    signals = await read_until(connection)
    assert [type(signal) for signal in signals[1:6]] == [
        UserSpeechStarted,
        UserSpeechEnded,
        AudioCommitted,
        TranscriptionCompleted,
        ResponseStarted,
    ]
    assert TranscriptionCompleted(connection.items[0].id, "Hello there") in signals
    assert connection.items[0].audio_ms == 900


async def test_manually_committed_speech_keeps_its_item() -> None:
    model = ScriptedRealtimeModel([], hears=["Hello"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(speech("Hello")))
    await connection.send(CommitAudio())
    (started,) = connection.told(UserSpeechStarted)
    assert connection.told(UserSpeechEnded) == [UserSpeechEnded(started.item_id, 200)]
    assert connection.told(AudioCommitted) == [AudioCommitted(started.item_id)]


async def test_without_transcription_there_is_no_transcript() -> None:
    settings = RealtimeSettings(modality="text", transcription=None)
    connection = await ScriptedRealtimeModel(["Good day."]).connect(SessionConfig("Desk", settings=settings))
    connection.user_speaks("Hello")
    assert not [
        signal
        for signal in await read_until(connection)
        if isinstance(signal, TranscriptionCompleted | TranscriptionFailed)
    ]


def test_check_refuses_unknown_voices_and_repeated_tools() -> None:
    # Settings are validated before a transfer.
    model = ScriptedRealtimeModel([], voices=["ash", "sage"])
    model.check(SessionConfig("Desk", voice="ash"))
    with pytest.raises(SetupError, match="`Desk` wants the voice `other`; `scripted-realtime` has: `ash`, `sage`"):
        model.check(SessionConfig("Desk", voice="other"))
    with pytest.raises(SetupError, match="`Desk` has several tools called `wave`"):
        model.check(SessionConfig("Desk", tools=(ToolSpec("wave"), ToolSpec("wave"))))
