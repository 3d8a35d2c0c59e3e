"""A scripted realtime model says what it was told, in the order a provider says it."""

import asyncio

import pytest

from baton.errors import ModelConnectionError, ModelError, SetupError
from baton.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from baton.models import ModelRequest
from baton.realtime.protocol import (
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
from baton.realtime.settings import RealtimeSettings, SessionConfig, TurnDetection
from baton.testing import (
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


async def read(connection: ScriptedConnection, until: type[Signal] = ResponseEnded) -> list[Signal]:
    """What it says up to and with the next signal of this kind."""
    signals: list[Signal] = []
    async with asyncio.timeout(60):
        async for signal in connection:
            signals.append(signal)
            if isinstance(signal, until):
                return signals
    raise AssertionError(f"it ended before {until.__name__}: {signals}")


async def answer(connection: ScriptedConnection) -> ResponseEnded:
    await connection.send(CreateResponse())
    ended = (await read(connection))[-1]
    assert isinstance(ended, ResponseEnded)
    return ended


async def test_it_is_a_realtime_model() -> None:
    """R3."""
    model: RealtimeModel = ScriptedRealtimeModel([])
    connection: RealtimeConnection = await model.connect(AUDIO)
    assert isinstance(model, RealtimeModel)
    await connection.close()


async def test_text_is_written_word_by_word() -> None:
    connection = await ScriptedRealtimeModel([say("Good day.", usage=Usage(3, 4))]).connect(TEXT)
    await connection.send(CreateResponse())
    assert await read(connection) == [
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


async def test_speech_comes_with_its_words_and_lasts_as_long_as_the_rule_says() -> None:
    connection = await ScriptedRealtimeModel(["Good day."], ms_per_word=100).connect(AUDIO)
    await connection.send(CreateResponse())
    told = (await read(connection))[2:-1]
    assert [type(signal) for signal in told] == [TranscriptChunk, AudioChunk, TranscriptChunk, AudioChunk, AudioEnded]
    assert told[1] == AudioChunk("response_1", "piece_1", 0, speech("Good", ms_per_word=100))
    assert len(speech("Good", ms_per_word=100)) == 100 * 48
    assert connection.items[0].audio_ms == 200


async def test_calls_come_at_the_end_and_are_items_of_their_own() -> None:
    model = ScriptedRealtimeModel([say("One moment.", call("look_up", id=7), call("wave")), "Done."])
    connection = await model.connect(TEXT)
    ended = await answer(connection)
    assert ended.message == AssistantMessage(
        "One moment.", (ToolCall("call_1", "look_up", '{"id":7}'), ToolCall("call_2", "wave"))
    )
    assert [(item.role, item.call_id) for item in connection.items] == [
        ("assistant", ""),
        ("call", "call_1"),
        ("call", "call_2"),
    ]
    await connection.send(AddItem(ToolMessage("call_1", "look_up", "found")))
    assert (await read(connection, ItemAdded))[-1] == ItemAdded("piece_4", "result", "call_1")
    assert model.complaints == []


async def test_usage_is_counted_in_words_unless_the_step_says_it() -> None:
    connection = await ScriptedRealtimeModel([say("Good day.", call("wave"))]).connect(TEXT)
    await connection.send(AddItem(UserMessage("Hello over there")))
    assert (await answer(connection)).usage == Usage(3, 3)


async def test_a_step_is_of_the_agent_whose_settings_are_in_force_when_the_response_begins() -> None:
    def billing(request: ModelRequest) -> str:
        return f"for {request.instructions}"

    steps: dict[str, list[ScriptStep]] = {"Desk": ["at the desk"], "Billing": [billing]}
    model = ScriptedRealtimeModel(steps)
    connection = await model.connect(TEXT)
    assert (await answer(connection)).message.content == "at the desk"
    await connection.send(ConfigureSession(SessionConfig("Billing", "bills", settings=TEXT.settings)))
    assert (await read(connection, SessionConfigured))[-1] == SessionConfigured()
    assert (await answer(connection)).message.content == "for bills"
    model.assert_done()


async def test_a_function_sees_the_conversation() -> None:
    def repeat(request: ModelRequest) -> str:
        return " | ".join(str(message.content) for message in request.messages)

    model = ScriptedRealtimeModel(["First.", repeat])
    connection = await model.connect(TEXT)
    await answer(connection)
    await connection.send(AddItem(UserMessage("And?"), item_id="mine"))
    assert (await answer(connection)).message.content == "First. | And?"
    assert [item.id for item in connection.items][1] == "mine"
    assert [request.agent for request in model.requests] == ["Desk", "Desk"]


async def test_running_out_of_steps_fails_the_response_and_says_whose() -> None:
    ended = await answer(await ScriptedRealtimeModel({"Desk": []}).connect(TEXT))
    assert ended.status == "failed"
    assert "has no step left for the agent `Desk`" in ended.error


async def test_a_model_error_fails_the_response_and_a_connection_error_cuts_the_connection() -> None:
    model = ScriptedRealtimeModel([ModelError("overloaded"), ScriptedStream("Hel", ModelConnectionError("gone"))])
    connection = await model.connect(TEXT)
    assert ((await answer(connection)).status, connection.is_open) == ("failed", True)
    await connection.send(CreateResponse())
    with pytest.raises(ModelConnectionError, match="gone"):
        await read(connection)
    assert connection.told(TranscriptChunk)[-1].text == "Hel"
    with pytest.raises(ModelConnectionError):
        await connection.send(CreateResponse())
    assert model.complaints == []


async def test_errors_of_a_step_are_raised_to_the_reader() -> None:
    def wrong(request: ModelRequest) -> str:
        raise AssertionError(f"nobody should ask {request.agent}")

    connection = await ScriptedRealtimeModel([wrong]).connect(TEXT)
    await connection.send(CreateResponse())
    with pytest.raises(AssertionError, match="nobody should ask Desk"):
        await read(connection)


async def test_a_response_that_is_cut_short_says_why() -> None:
    connection = await ScriptedRealtimeModel([ScriptedStream("Hel", stop_reason="length")]).connect(TEXT)
    ended = await answer(connection)
    assert (ended.status, ended.reason, ended.message.content) == ("incomplete", "max_output_tokens", "Hel")


async def test_a_response_can_be_held_open_and_cancelled_with_the_calls_that_are_complete() -> None:
    held = asyncio.Event()
    model = ScriptedRealtimeModel([ScriptedStream("Let me", call("wave"), held, call("never")), "Again."])
    connection = await model.connect(AUDIO)
    await connection.send(CreateResponse())
    await read(connection, AudioEnded)
    await connection.send(CancelResponse("response_1"))
    ended = (await read(connection))[-1]
    assert isinstance(ended, ResponseEnded)
    assert (ended.status, ended.reason) == ("cancelled", "client_cancelled")
    assert ended.message == AssistantMessage("Let me", (ToolCall("call_1", "wave"),))
    assert (await answer(connection)).message.content == "Again."
    assert model.complaints == []


async def test_the_user_speaks_and_is_answered() -> None:
    connection = await ScriptedRealtimeModel(["Good day."]).connect(TEXT)
    connection.user_speaks("Hello")
    assert (await read(connection, ResponseStarted))[1:] == [
        UserSpeechStarted("piece_1"),
        UserSpeechEnded("piece_1"),
        AudioCommitted("piece_1"),
        TranscriptionCompleted("piece_1", "Hello"),
        ResponseStarted("response_1"),
    ]
    await read(connection)
    assert [item.message.content for item in connection.items] == ["Hello", "Good day."]


async def test_the_user_interrupts_and_the_rest_is_truncated() -> None:
    """R7: the item keeps what was heard."""
    model = ScriptedRealtimeModel([ScriptedStream("one two three four", asyncio.Event()), "Yes?"], ms_per_word=100)
    connection = await model.connect(AUDIO)
    await connection.send(CreateResponse())
    await read(connection, AudioChunk)
    connection.user_begins()
    assert [type(signal) for signal in await read(connection)] == [UserSpeechStarted, AudioEnded, ResponseEnded]
    assert connection.told(ResponseEnded)[-1].reason == "turn_detected"
    await connection.send(TruncateItem("piece_1", 0, 250))
    assert (await read(connection, ItemTruncated))[-1] == ItemTruncated("piece_1", 250)
    assert connection.items[0].message == AssistantMessage("one two")
    connection.user_ceases("Stop")
    await read(connection)
    assert [item.message.content for item in connection.items] == ["one two", "Stop", "Yes?"]
    assert model.complaints == []


async def test_without_interrupt_response_the_response_continues_and_another_follows() -> None:
    quiet = RealtimeSettings(modality="text", turn_detection=TurnDetection(interrupt_response=False))
    held = asyncio.Event()
    model = ScriptedRealtimeModel([ScriptedStream("one", held, " two"), "three"])
    connection = await model.connect(SessionConfig("Desk", settings=quiet))
    await connection.send(CreateResponse())
    await read(connection, TranscriptChunk)
    connection.user_speaks("Hm")
    await read(connection, TranscriptionCompleted)
    assert len(connection.told(ResponseStarted)) == 1
    held.set()
    assert (await read(connection))[-1] == connection.told(ResponseEnded)[0]
    assert connection.told(ResponseEnded)[0].message.content == "one two"
    await read(connection)
    assert [ended.message.content for ended in connection.told(ResponseEnded)] == ["one two", "three"]
    assert model.complaints == []


async def test_committed_audio_is_what_hears_says() -> None:
    waiting = RealtimeSettings(modality="text", turn_detection=None)
    model = ScriptedRealtimeModel([], hears=["Hello"])
    connection = await model.connect(SessionConfig("Desk", settings=waiting))
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


async def test_audio_that_is_committed_by_hand_is_not_answered_by_itself() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(silence(200)))
    await connection.send(CommitAudio())
    await connection.send(CreateResponse())
    assert [type(signal) for signal in (await read(connection))[1:4]] == [
        AudioCommitted,
        TranscriptionCompleted,
        ResponseStarted,
    ]
    assert model.complaints == []


async def test_speech_in_the_audio_is_detected_and_answered() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello there"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(speech("Hello there", pause_ms=600)))
    signals = await read(connection)
    assert [type(signal) for signal in signals[1:6]] == [
        UserSpeechStarted,
        UserSpeechEnded,
        AudioCommitted,
        TranscriptionCompleted,
        ResponseStarted,
    ]
    assert TranscriptionCompleted(connection.items[0].id, "Hello there") in signals
    assert connection.items[0].audio_ms == 900


async def test_speech_that_is_committed_by_hand_keeps_its_item() -> None:
    model = ScriptedRealtimeModel([], hears=["Hello"])
    connection = await model.connect(TEXT)
    await connection.send(AppendAudio(speech("Hello")))
    await connection.send(CommitAudio())
    (started,) = connection.told(UserSpeechStarted)
    assert connection.told(UserSpeechEnded) == [UserSpeechEnded(started.item_id, 200)]
    assert connection.told(AudioCommitted) == [AudioCommitted(started.item_id)]


async def test_without_transcription_there_is_no_transcript() -> None:
    unwritten = RealtimeSettings(modality="text", transcription=None)
    connection = await ScriptedRealtimeModel(["Good day."]).connect(SessionConfig("Desk", settings=unwritten))
    connection.user_speaks("Hello")
    assert not [
        signal for signal in await read(connection) if isinstance(signal, TranscriptionCompleted | TranscriptionFailed)
    ]


def test_check_knows_the_voices_and_wants_every_tool_once() -> None:
    """R4: settings are validated before the floor changes."""
    model = ScriptedRealtimeModel([], voices=["ash", "sage"])
    model.check(SessionConfig("Desk", voice="ash"))
    with pytest.raises(SetupError, match="`Desk` wants the voice `opera`; `scripted-realtime` has: `ash`, `sage`"):
        model.check(SessionConfig("Desk", voice="opera"))
    with pytest.raises(SetupError, match="`Desk` has several tools called `wave`"):
        model.check(SessionConfig("Desk", tools=(ToolSpec("wave"), ToolSpec("wave"))))
