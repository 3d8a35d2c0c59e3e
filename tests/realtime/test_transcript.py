"""R3, R7: what is known of a conversation, in which order, though it becomes known in another."""

from tests.realtime.backends import Backend, InMemory, OverTheWire, says
from tests.realtime.listener import listening_to

from baton.events import AgentResponded, UserMessageAdded
from baton.flow.log_history import history_from_log
from baton.messages import Message, text_of
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, SessionErrorReported, TurnDetection
from baton.realtime.protocol import (
    AudioCommitted,
    TranscriptionCompleted,
    TranscriptionFailed,
    UserSpeechEnded,
    UserSpeechStarted,
)
from baton.testing import call


def shown(messages: "list[Message] | tuple[Message, ...]") -> list[str]:
    return [text_of(message.content) for message in messages if text_of(message.content)]


def desk_and_billing() -> RealtimeAgent:
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    return RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])


async def test_the_users_transcript_comes_before_the_answer(backend: Backend) -> None:
    """R2, R3."""
    model = await backend.plays(["Hello to you."])
    async with listening_to(RealtimeRunner(RealtimeAgent("Desk"), model=model).connect()) as heard:
        await says(backend, heard.session, "Good morning")
        await heard.said()
        await heard.until(UserMessageAdded)
        await heard.session.wait_until_idle()
    assert shown(heard.session.result.messages) == ["Good morning", "Hello to you."]
    assert [text_of(entry.message.content) for entry in history_from_log(heard.session.log.events)] == [
        "Good morning",
        "Hello to you.",
    ]
    assert backend.complaints == []


async def test_a_transcript_after_a_transfer_blocks_nothing(scripted: InMemory) -> None:
    """R4: providers write down what the user said when they find time."""
    model = await scripted.plays({"Desk": [call("transfer_to_billing")], "Billing": ["Hello.", "Gladly."]})
    async with listening_to(RealtimeRunner(desk_and_billing(), model=model).connect()) as heard:
        connection = scripted.at()
        connection.emit(UserSpeechStarted("late"), UserSpeechEnded("late"), AudioCommitted("late"))
        await heard.session.send_text("Are you there?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
        connection.emit(TranscriptionCompleted("late", "Where is my invoice?"))
        await heard.until(UserMessageAdded, 2)
        await heard.session.send_text("Please look.")
        await heard.until(AgentResponded, where=lambda said: said.text == "Gladly.")
    assert scripted.commands() == ["user", "respond", "configure", "result", "respond", "user", "respond"]
    messages = shown(heard.session.result.messages)
    assert messages[0] == "Are you there?"
    assert messages[2:] == ["Where is my invoice?", "Hello.", "Please look.", "Gladly."]
    assert shown([entry.message for entry in history_from_log(heard.session.log.events)]) == messages
    assert scripted.complaints == []


async def test_late_transcripts_over_the_wire() -> None:
    """R4: the same from a server that transcribes after it has answered."""
    slow = OverTheWire(late_transcripts=True)
    try:
        model = await slow.plays({"Desk": [call("transfer_to_billing")], "Billing": ["Hello.", "Gladly."]})
        async with listening_to(RealtimeRunner(desk_and_billing(), model=model).connect()) as heard:
            await says(slow, heard.session, "Where is my invoice?")
            await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
            await heard.until(UserMessageAdded)
            await heard.session.send_text("Please look.")
            await heard.until(AgentResponded, where=lambda said: said.text == "Gladly.")
            await heard.session.wait_until_idle()
        assert slow.commands() == ["configure", "result", "respond", "user", "respond"]
        assert shown(heard.session.result.messages)[-1] == "Gladly."
        assert "Where is my invoice?" in shown(heard.session.result.messages)
        assert slow.complaints == []
    finally:
        await slow.close()


async def test_without_transcription_nothing_waits_for_one(backend: Backend) -> None:
    """R2: `transcription=None` keeps no record of what the user says."""
    desk = desk_and_billing()
    model = await backend.plays({"Desk": ["Hello.", call("transfer_to_billing")], "Billing": ["Billing here.", "Yes."]})
    runner = RealtimeRunner(desk, model=model, settings=RealtimeSettings(transcription=None))
    async with listening_to(runner.connect()) as heard:
        await says(backend, heard.session, "Good morning")
        await heard.said()
        await says(backend, heard.session, "Billing, please")
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
        await says(backend, heard.session, "Can you hear me?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes.")
        await heard.session.wait_until_idle()
    assert shown(heard.session.result.messages)[-1] == "Yes."
    assert shown([entry.message for entry in history_from_log(heard.session.log.events)]) == shown(
        heard.session.result.messages
    )
    assert backend.complaints == []


async def test_failed_transcriptions_are_recorded_as_such(backend: Backend) -> None:
    """R2."""
    model = await backend.plays(["Pardon?"])
    async with listening_to(RealtimeRunner(RealtimeAgent("Desk"), model=model).connect()) as heard:
        if isinstance(backend, OverTheWire):
            await backend.begins_to_speak(heard.session)
            backend.words.append(ValueError("nobody could make it out"))
            await heard.session.send_audio(bytes(48 * 700))
        else:
            assert isinstance(backend, InMemory)
            backend.at().user_speaks(None)
        trouble = await heard.until(SessionErrorReported)
        await heard.said()
        await heard.session.wait_until_idle()
    assert trouble.code == "transcription_failed"
    assert shown(heard.session.result.messages) == ["(something that could not be understood)", "Pardon?"]
    assert backend.complaints == []


async def test_silence_that_was_taken_for_speech_leaves_no_trace(scripted: InMemory) -> None:
    model = await scripted.plays(["Yes?"])
    quiet = RealtimeSettings(turn_detection=TurnDetection(create_response=False))
    async with listening_to(RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=quiet).connect()) as heard:
        scripted.at().emit(AudioCommitted("nothing"), TranscriptionCompleted("nothing", "  "))
        scripted.at().emit(TranscriptionFailed("unknown", "?"), TranscriptionCompleted("unknown", "never committed"))
        await heard.session.send_text("Hello")
        await heard.said()
    assert shown(heard.session.result.messages) == ["Hello", "Yes?"]
