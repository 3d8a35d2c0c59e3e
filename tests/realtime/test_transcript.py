"""The order of the transcript, which can differ from the order in which its parts arrive."""

from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend, speak
from tests.realtime.recorder import record_session

from batonkit.log import AgentResponded, UserMessageAdded
from batonkit.log.fold import history_from_log
from batonkit.messages import Message, text_of
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, SessionErrorReported, TurnDetection
from batonkit.realtime.protocol import (
    AudioCommitted,
    TranscriptionCompleted,
    TranscriptionFailed,
    UserSpeechEnded,
    UserSpeechStarted,
)
from batonkit.testing import call


def texts_of(messages: "list[Message] | tuple[Message, ...]") -> list[str]:
    return [text_of(message.content) for message in messages if text_of(message.content)]


def make_desk() -> RealtimeAgent:
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    return RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])


async def test_the_transcript_of_the_user_precedes_the_response(backend: Backend) -> None:
    model = await backend.start(["Hello to you."])
    async with record_session(RealtimeRunner(RealtimeAgent("Desk"), model=model).connect()) as recorder:
        await speak(backend, recorder.session, "Good morning")
        await recorder.wait_for_response()
        await recorder.wait_for(UserMessageAdded)
        await recorder.session.wait_until_idle()
    assert texts_of(recorder.session.result.messages) == ["Good morning", "Hello to you."]
    assert [text_of(entry.message.content) for entry in history_from_log(recorder.session.log.events)] == [
        "Good morning",
        "Hello to you.",
    ]
    assert backend.complaints == []


async def test_a_transcript_that_arrives_after_a_transfer_blocks_nothing(scripted_backend: ScriptedBackend) -> None:
    # Providers transcribe speech late.
    model = await scripted_backend.start({"Desk": [call("transfer_to_billing")], "Billing": ["Hello.", "Gladly."]})
    async with record_session(RealtimeRunner(make_desk(), model=model).connect()) as recorder:
        connection = scripted_backend.connection()
        connection.emit(UserSpeechStarted("late"), UserSpeechEnded("late"), AudioCommitted("late"))
        await recorder.session.send_text("Are you there?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
        connection.emit(TranscriptionCompleted("late", "Where is my invoice?"))
        await recorder.wait_for(UserMessageAdded, 2)
        await recorder.session.send_text("Please look.")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Gladly.")
    assert scripted_backend.commands() == ["user", "respond", "configure", "result", "respond", "user", "respond"]
    messages = texts_of(recorder.session.result.messages)
    assert messages[0] == "Are you there?"
    assert messages[2:] == ["Where is my invoice?", "Hello.", "Please look.", "Gladly."]
    assert texts_of([entry.message for entry in history_from_log(recorder.session.log.events)]) == messages
    assert scripted_backend.complaints == []


async def test_late_transcripts_over_a_websocket() -> None:
    # The server transcribes after it has responded.
    backend = WebSocketBackend(late_transcripts=True)
    try:
        model = await backend.start({"Desk": [call("transfer_to_billing")], "Billing": ["Hello.", "Gladly."]})
        async with record_session(RealtimeRunner(make_desk(), model=model).connect()) as recorder:
            await speak(backend, recorder.session, "Where is my invoice?")
            await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
            await recorder.wait_for(UserMessageAdded)
            await recorder.session.send_text("Please look.")
            await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Gladly.")
            await recorder.session.wait_until_idle()
        assert backend.commands() == ["configure", "result", "respond", "user", "respond"]
        assert texts_of(recorder.session.result.messages)[-1] == "Gladly."
        assert "Where is my invoice?" in texts_of(recorder.session.result.messages)
        assert backend.complaints == []
    finally:
        await backend.close()


async def test_without_transcription_nothing_waits_for_one(backend: Backend) -> None:
    # With `transcription=None` the user's speech is not recorded.
    desk = make_desk()
    model = await backend.start({"Desk": ["Hello.", call("transfer_to_billing")], "Billing": ["Billing here.", "Yes."]})
    runner = RealtimeRunner(desk, model=model, settings=RealtimeSettings(transcription=None))
    async with record_session(runner.connect()) as recorder:
        await speak(backend, recorder.session, "Good morning")
        await recorder.wait_for_response()
        await speak(backend, recorder.session, "Billing, please")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
        await speak(backend, recorder.session, "Can you hear me?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes.")
        await recorder.session.wait_until_idle()
    assert texts_of(recorder.session.result.messages)[-1] == "Yes."
    assert texts_of([entry.message for entry in history_from_log(recorder.session.log.events)]) == texts_of(
        recorder.session.result.messages
    )
    assert backend.complaints == []


async def test_failed_transcriptions_are_recorded_as_such(backend: Backend) -> None:
    model = await backend.start(["Pardon?"])
    async with record_session(RealtimeRunner(RealtimeAgent("Desk"), model=model).connect()) as recorder:
        if isinstance(backend, WebSocketBackend):
            await backend.start_speaking(recorder.session)
            backend.transcripts.append(ValueError("unintelligible"))
            await recorder.session.send_audio(bytes(48 * 700))
        else:
            assert isinstance(backend, ScriptedBackend)
            backend.connection().user_speaks(None)
        error = await recorder.wait_for(SessionErrorReported)
        await recorder.wait_for_response()
        await recorder.session.wait_until_idle()
    assert error.code == "transcription_failed"
    assert texts_of(recorder.session.result.messages) == ["(something that could not be understood)", "Pardon?"]
    assert backend.complaints == []


async def test_empty_transcripts_are_not_recorded(scripted_backend: ScriptedBackend) -> None:
    model = await scripted_backend.start(["Yes?"])
    settings = RealtimeSettings(turn_detection=TurnDetection(create_response=False))
    async with record_session(
        RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=settings).connect()
    ) as recorder:
        scripted_backend.connection().emit(AudioCommitted("nothing"), TranscriptionCompleted("nothing", "  "))
        scripted_backend.connection().emit(
            TranscriptionFailed("unknown", "?"), TranscriptionCompleted("unknown", "never committed")
        )
        await recorder.session.send_text("Hello")
        await recorder.wait_for_response()
    assert texts_of(recorder.session.result.messages) == ["Hello", "Yes?"]
