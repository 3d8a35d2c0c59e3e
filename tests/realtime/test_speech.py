"""Interrupted responses are truncated to what was heard, in the log, the history and the provider."""

import asyncio
from contextlib import AbstractAsyncContextManager
from time import time

import pytest
from tests.realtime.backends import MS_PER_WORD, Backend, ScriptedBackend, WebSocketBackend, speak
from tests.realtime.recorder import SessionRecorder, make_runner, record_session, unplayed

from batonkit.log import AgentResponded, ResponseTruncated, UserMessageAdded, decode_log, encode_log
from batonkit.log.fold import history_from_log
from batonkit.messages import AssistantMessage, ToolCall, text_of
from batonkit.realtime import (
    AudioCompleted,
    AudioDelta,
    PlaybackInterrupted,
    RealtimeAgent,
    RealtimeModel,
    RealtimeSettings,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
    TurnDetection,
    speech,
)
from batonkit.realtime.protocol import AudioChunk, ResponseEnded, ResponseStarted, TranscriptChunk
from batonkit.testing import ScriptedStream, call, say

WITH_AUDIO = RealtimeSettings()


def spoken_session(
    agent: RealtimeAgent, model: RealtimeModel, settings: RealtimeSettings = WITH_AUDIO
) -> AbstractAsyncContextManager[SessionRecorder]:
    """Open a session with audio, of which nothing counts as played before a test says so, and record it."""
    return record_session(make_runner(agent, model, settings=settings).connect(playback=unplayed()))


def history_texts(recorder: SessionRecorder) -> list[str]:
    """Return the texts of the history, and check that the log has the same."""
    history = [text_of(message.content) for message in recorder.session.result.messages]
    assert [text_of(entry.message.content) for entry in history_from_log(recorder.session.log.events)] == history
    return history


async def wait_for_item(recorder: SessionRecorder, word: str) -> str:
    """Return the id of the item with this word, once its audio has arrived."""
    item_id = (await recorder.wait_for(TranscriptDelta, where=lambda delta: word in delta.text)).item_id
    words = "".join(delta.text for delta in recorder.of_type(TranscriptDelta) if delta.item_id == item_id).split()
    size = 48 * 200 * len(words)
    await recorder.wait_for(
        AudioDelta,
        where=lambda _: (
            sum(len(delta.audio) for delta in recorder.of_type(AudioDelta) if delta.item_id == item_id) >= size
        ),
    )
    return item_id


async def test_the_log_has_the_times_of_speech(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    # Audio arrives at once, and is heard one response after the other.
    steps = {"Desk": [say("One two three four five", call("transfer_to_billing"))], "Billing": ["Billing here."]}
    billing = RealtimeAgent("Billing", description="Bills.", instructions="Billing")
    model = await backend.start(steps)
    desk = RealtimeAgent("Desk", instructions="Desk", handoffs=[billing])
    async with spoken_session(desk, model) as recorder:
        now = time()
        monkeypatch.setattr(speech, "time", lambda: now)
        await speak(backend, recorder.session, "Count please")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
        await recorder.wait_for(UserMessageAdded)
        await recorder.session.wait_until_idle()
    events = recorder.session.log.events
    started = events[0].timestamp
    (asked,) = [event for event in events if isinstance(event, UserMessageAdded)]
    first, second = [event for event in events if isinstance(event, AgentResponded)]
    assert asked.speech is not None
    assert started <= asked.speech.start <= asked.speech.end <= asked.timestamp
    assert first.speech is not None
    assert second.speech is not None
    assert started <= first.speech.start <= first.timestamp
    assert first.speech.end - first.speech.start == pytest.approx(5 * MS_PER_WORD / 1000)
    # The second is heard when the first has ended, not when its audio arrives.
    assert second.speech.start == pytest.approx(first.speech.end)
    assert decode_log(encode_log(events)) == list(events)


async def test_text_has_no_time_of_speech(backend: Backend) -> None:
    model = await backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
    spoken = [event for event in recorder.session.log.events if isinstance(event, AgentResponded | UserMessageAdded)]
    assert [event.speech for event in spoken] == [None, None]


async def test_the_user_interrupts_a_response_in_progress(backend: Backend) -> None:
    # By speaking; the application reports what was played.
    model = await backend.start([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        item = await wait_for_item(recorder, "four")
        recorder.session.playback.played(item, 450)
        await backend.start_speaking(recorder.session)
        interrupted = await recorder.wait_for(PlaybackInterrupted)
        await backend.finish_speaking(recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
        await recorder.session.wait_until_idle()
    assert (interrupted.item_id, interrupted.played_ms) == (item, 450)
    (truncated,) = recorder.of_type(ResponseTruncated)
    assert (truncated.heard_text, truncated.played_ms) == ("One two", 450)
    assert recorder.of_type(AgentResponded)[0].text == "One two three four"
    assert history_texts(recorder) == ["Count", "One two", "Stop", "Yes?"]
    assert backend.items() == [("user", "Count"), ("assistant", "One two"), ("user", "Stop"), ("assistant", "Yes?")]
    assert backend.commands() == ["user", "respond", "truncate"]
    assert backend.complaints == []


async def test_the_application_interrupts(backend: Backend) -> None:
    # `interrupt()` stops the response, and nothing of it is delivered afterwards.
    model = await backend.start([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        item = await wait_for_item(recorder, "four")
        recorder.session.playback.played(item, 200)
        await recorder.session.interrupt()
        await recorder.session.interrupt()
        await recorder.wait_for(ResponseTruncated)
        await recorder.session.wait_until_idle()
        await recorder.session.send_text("Go on")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
    assert history_texts(recorder) == ["Count", "One", "Go on", "Yes?"]
    assert backend.items()[1] == ("assistant", "One")
    assert backend.commands() == ["user", "respond", "cancel", "truncate", "user", "respond"]
    index = recorder.events.index(recorder.of_type(PlaybackInterrupted)[0])
    later_events = [event for event in recorder.events[index:] if isinstance(event, AudioDelta | AudioCompleted)]
    assert all(event.item_id != item for event in later_events)
    assert backend.complaints == []


async def test_the_user_interrupts_a_response_that_is_still_playing(backend: Backend) -> None:
    # The response has ended, but most of it has not been played.
    model = await backend.start(["One two three four", "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for_response()
        recorder.session.playback.played(recorder.of_type(AudioDelta)[0].item_id, 600)
        await speak(backend, recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, 2)
        await recorder.session.wait_until_idle()
    assert history_texts(recorder) == ["Count", "One two three", "Stop", "Yes?"]
    assert backend.items()[1] == ("assistant", "One two three")
    assert [type(event) for event in recorder.events if isinstance(event, SpeechStarted | SpeechStopped)] == [
        SpeechStarted,
        SpeechStopped,
    ]
    assert backend.complaints == []


async def test_fully_played_items_are_not_truncated(backend: Backend) -> None:
    model = await backend.start(["One two", "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for_response()
        recorder.session.playback.played(recorder.of_type(AudioDelta)[0].item_id, 400)
        await speak(backend, recorder.session, "Thanks")
        await recorder.wait_for(AgentResponded, 2)
        await recorder.session.wait_until_idle()
    assert recorder.of_type(ResponseTruncated) == []
    assert "truncate" not in backend.commands()
    assert history_texts(recorder) == ["Count", "One two", "Thanks", "Yes?"]
    assert backend.complaints == []


async def test_audio_that_has_just_arrived_counts_as_unplayed(backend: Backend) -> None:
    # Without reports of the application the clock counts; here no time has passed.
    model = await backend.start(["One two three four five six", "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for_response()
        await speak(backend, recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, 2)
        await recorder.session.wait_until_idle()
    (truncated,) = recorder.of_type(ResponseTruncated)
    assert (truncated.played_ms, truncated.heard_text) == (0, "")
    assert history_texts(recorder)[1] == (truncated.heard_text or "…")
    assert backend.items()[1] == ("assistant", truncated.heard_text)
    assert backend.complaints == []


async def test_an_interruption_after_a_transfer_truncates_the_earlier_agent(backend: Backend) -> None:
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.start(
        {
            "Desk": [say("I pass you on to billing.", call("transfer_to_billing"))],
            "Billing": [ScriptedStream("Billing speaking", asyncio.Event()), "Yes?"],
        }
    )
    async with spoken_session(desk, model) as recorder:
        await recorder.session.send_text("Hi")
        second = await wait_for_item(recorder, "speaking")
        first = recorder.of_type(AudioDelta)[0].item_id
        assert first != second
        recorder.session.playback.played(first, 600)
        await backend.start_speaking(recorder.session)
        await recorder.wait_for(ResponseTruncated, 2)
        await backend.finish_speaking(recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
        await recorder.session.wait_until_idle()
    assert [truncated.heard_text for truncated in recorder.of_type(ResponseTruncated)] == ["I pass you", ""]
    assert [text for text in history_texts(recorder) if not text.startswith("{")] == [
        "Hi",
        "I pass you",
        "…",
        "Stop",
        "Yes?",
    ]
    assert backend.items()[1] == ("assistant", "I pass you")
    assert backend.commands().count("truncate") == 2
    assert backend.complaints == []


async def test_a_response_is_cancelled_if_the_provider_does_not_stop_it(backend: Backend) -> None:
    settings = RealtimeSettings(turn_detection=TurnDetection(interrupt_response=False))
    model = await backend.start([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model, settings) as recorder:
        await recorder.session.send_text("Count")
        item = await wait_for_item(recorder, "four")
        recorder.session.playback.played(item, 400)
        await backend.start_speaking(recorder.session)
        await backend.wait_for_command("truncate")
        await recorder.wait_for(ResponseTruncated)
        await backend.finish_speaking(recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
        await recorder.session.wait_until_idle()
    assert backend.commands() == ["user", "respond", "cancel", "truncate"]
    assert history_texts(recorder) == ["Count", "One two", "Stop", "Yes?"]
    assert backend.complaints == []


async def test_earlier_items_of_a_response_count_as_heard(scripted_backend: ScriptedBackend) -> None:
    # The first item was played completely, of the second one only a word.
    model = await scripted_backend.start([])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        audio = bytes(48 * 200)
        scripted_backend.connection().emit(
            ResponseStarted("r"),
            TranscriptChunk("r", "a", 0, "Good morning."),
            *[AudioChunk("r", "a", 0, audio)] * 2,
            TranscriptChunk("r", "b", 0, "Your invoice is paid."),
            *[AudioChunk("r", "b", 0, audio)] * 4,
            ResponseEnded("r", "completed", AssistantMessage("Good morning.\nYour invoice is paid."), ("a", "b")),
        )
        await recorder.wait_for_response()
        recorder.session.playback.played("a", 400)
        recorder.session.playback.played("b", 250)
        await recorder.session.interrupt()
        await recorder.wait_for(ResponseTruncated)
    assert history_texts(recorder) == ["Good morning.\nYour"]


async def test_of_two_partly_played_items_the_first_one_counts(
    websocket_backend: WebSocketBackend,
) -> None:
    # Text, a call and more text are separate items.
    step = ScriptedStream("Good good good good", ToolCall("", "nothing", "{}"), "Your invoice is paid.")
    model = await websocket_backend.start([step, "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
        items = list(dict.fromkeys(delta.item_id for delta in recorder.of_type(AudioDelta)))
        assert len(items) == 2
        recorder.session.playback.played(items[0], 400)
        await recorder.session.interrupt()
        await recorder.wait_for(ResponseTruncated)
        await recorder.session.wait_until_idle()
    assert [(truncated.heard_text, truncated.played_ms) for truncated in recorder.of_type(ResponseTruncated)] == [
        ("Good good", 400)
    ]
    texts = [text for role, text in websocket_backend.items() if role == "assistant"]
    assert texts[:2] == ["Good good", ""]
    assert websocket_backend.commands().count("truncate") == 2
    assert websocket_backend.complaints == []


async def test_a_transcript_without_audio_counts_as_unheard(scripted_backend: ScriptedBackend) -> None:
    # The transcript is often ahead of the audio.
    model = await scripted_backend.start([])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        scripted_backend.connection().emit(ResponseStarted("r"), TranscriptChunk("r", "a", 0, "Your invoice"))
        await recorder.wait_for(TranscriptDelta)
        await recorder.session.interrupt()
        scripted_backend.connection().emit(
            TranscriptChunk("r", "a", 0, " is"),
            AudioChunk("r", "a", 0, bytes(9600)),
            ResponseEnded("r", "cancelled", AssistantMessage("Your invoice is"), ("a",), "client_cancelled"),
        )
        truncated = await recorder.wait_for(ResponseTruncated)
    assert truncated.heard_text == ""
    assert recorder.of_type(AudioDelta) == []
    assert [delta.text for delta in recorder.of_type(TranscriptDelta)] == ["Your invoice"]
    assert history_texts(recorder) == ["…"]


async def test_items_of_an_earlier_connection_are_not_truncated(backend: Backend) -> None:
    model = await backend.start(["One two three four", "Yes?"])
    async with spoken_session(RealtimeAgent("Desk"), model) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for_response()
        recorder.session.playback.played(recorder.of_type(AudioDelta)[0].item_id, 400)
        await backend.cut()
        await backend.wait_for_connection(1)
        await recorder.session.send_text("Wait", respond=False)
        await speak(backend, recorder.session, "Stop")
        await recorder.wait_for(AgentResponded, 2)
        await recorder.session.wait_until_idle()
    assert history_texts(recorder)[1] == "One two"
    assert "truncate" not in backend.commands(1)
    assert backend.complaints == []
