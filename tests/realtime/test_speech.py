"""R7: whoever is interrupted has said what was heard; the log, the history and the provider agree on it."""

import asyncio

from tests.realtime.backends import Backend, InMemory, OverTheWire, says
from tests.realtime.listener import Listener, listening_to, make_runner

from baton.events import AgentResponded, ResponseTruncated
from baton.flow.log_history import history_from_log
from baton.messages import AssistantMessage, ToolCall, text_of
from baton.realtime import (
    AudioCompleted,
    AudioDelta,
    PlaybackInterrupted,
    RealtimeAgent,
    RealtimeSettings,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
    TurnDetection,
)
from baton.realtime.protocol import AudioChunk, ResponseEnded, ResponseStarted, TranscriptChunk
from baton.testing import ScriptedStream, call, say

SPOKEN = RealtimeSettings()


def remembered(heard: Listener) -> list[str]:
    """What is left of the conversation, which is the same wherever one looks."""
    history = [text_of(message.content) for message in heard.session.result.messages]
    assert [text_of(entry.message.content) for entry in history_from_log(heard.session.log.events)] == history
    return history


async def item_of(heard: Listener, word: str) -> str:
    """The item in which this word is said, once its sound has come as well."""
    item_id = (await heard.until(TranscriptDelta, where=lambda delta: word in delta.text)).item_id
    words = "".join(delta.text for delta in heard.all(TranscriptDelta) if delta.item_id == item_id).split()
    size = 48 * 200 * len(words)
    await heard.until(
        AudioDelta,
        where=lambda _: sum(len(one.audio) for one in heard.all(AudioDelta) if one.item_id == item_id) >= size,
    )
    return item_id


async def test_the_user_interrupts_a_response_that_is_being_given(backend: Backend) -> None:
    """R7: by speaking, with what was played told by the application."""
    model = await backend.plays([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        item = await item_of(heard, "four")
        heard.session.playback.played(item, 450)
        await backend.begins_to_speak(heard.session)
        stopped = await heard.until(PlaybackInterrupted)
        await backend.has_said(heard.session, "Stop")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
        await heard.session.wait_until_idle()
    assert (stopped.item_id, stopped.played_ms) == (item, 450)
    (cut,) = heard.all(ResponseTruncated)
    assert (cut.heard_text, cut.played_ms) == ("One two", 450)
    assert heard.all(AgentResponded)[0].text == "One two three four"
    assert remembered(heard) == ["Count", "One two", "Stop", "Yes?"]
    assert backend.told() == [("user", "Count"), ("assistant", "One two"), ("user", "Stop"), ("assistant", "Yes?")]
    assert backend.commands() == ["user", "respond", "truncate"]
    assert backend.complaints == []


async def test_the_application_interrupts(backend: Backend) -> None:
    """R7: `interrupt()` stops the response, and nothing of it is delivered afterwards."""
    model = await backend.plays([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        item = await item_of(heard, "four")
        heard.session.playback.played(item, 200)
        await heard.session.interrupt()
        await heard.session.interrupt()
        await heard.until(ResponseTruncated)
        await heard.session.wait_until_idle()
        await heard.session.send_text("Go on")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
    assert remembered(heard) == ["Count", "One", "Go on", "Yes?"]
    assert backend.told()[1] == ("assistant", "One")
    assert backend.commands() == ["user", "respond", "cancel", "truncate", "user", "respond"]
    place = heard.events.index(heard.all(PlaybackInterrupted)[0])
    late = [event for event in heard.events[place:] if isinstance(event, AudioDelta | AudioCompleted)]
    assert all(event.item_id != item for event in late)
    assert backend.complaints == []


async def test_the_user_interrupts_what_is_still_being_played(backend: Backend) -> None:
    """R7: the response has ended long ago, but most of it has not been heard."""
    model = await backend.plays(["One two three four", "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.said()
        heard.session.playback.played(heard.all(AudioDelta)[0].item_id, 600)
        await says(backend, heard.session, "Stop")
        await heard.until(AgentResponded, 2)
        await heard.session.wait_until_idle()
    assert remembered(heard) == ["Count", "One two three", "Stop", "Yes?"]
    assert backend.told()[1] == ("assistant", "One two three")
    assert [type(event) for event in heard.events if isinstance(event, SpeechStarted | SpeechStopped)] == [
        SpeechStarted,
        SpeechStopped,
    ]
    assert backend.complaints == []


async def test_fully_played_items_are_not_truncated(backend: Backend) -> None:
    """R7."""
    model = await backend.plays(["One two", "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.said()
        heard.session.playback.played(heard.all(AudioDelta)[0].item_id, 400)
        await says(backend, heard.session, "Thanks")
        await heard.until(AgentResponded, 2)
        await heard.session.wait_until_idle()
    assert heard.all(ResponseTruncated) == []
    assert "truncate" not in backend.commands()
    assert remembered(heard) == ["Count", "One two", "Thanks", "Yes?"]
    assert backend.complaints == []


async def test_audio_that_has_just_arrived_counts_as_unplayed(backend: Backend) -> None:
    """R7: without anybody who tells what was played, the clock does; here no time has passed to speak of."""
    model = await backend.plays(["One two three four five six", "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.said()
        await says(backend, heard.session, "Stop")
        await heard.until(AgentResponded, 2)
        await heard.session.wait_until_idle()
    (cut,) = heard.all(ResponseTruncated)
    assert 0 <= cut.played_ms < 1200
    assert "six" not in cut.heard_text
    assert remembered(heard)[1] == (cut.heard_text or "…")
    assert backend.told()[1] == ("assistant", cut.heard_text)
    assert backend.complaints == []


async def test_an_interruption_after_a_transfer_truncates_the_earlier_agent(backend: Backend) -> None:
    """R7."""
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.plays(
        {
            "Desk": [say("I pass you on to billing.", call("transfer_to_billing"))],
            "Billing": [ScriptedStream("Billing speaking", asyncio.Event()), "Yes?"],
        }
    )
    async with listening_to(make_runner(desk, model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Hi")
        second = await item_of(heard, "speaking")
        first = heard.all(AudioDelta)[0].item_id
        assert first != second
        heard.session.playback.played(first, 600)
        await backend.begins_to_speak(heard.session)
        await heard.until(ResponseTruncated, 2)
        await backend.has_said(heard.session, "Stop")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
        await heard.session.wait_until_idle()
    assert [cut.heard_text for cut in heard.all(ResponseTruncated)] == ["I pass you", ""]
    assert [text for text in remembered(heard) if not text.startswith("{")] == [
        "Hi",
        "I pass you",
        "…",
        "Stop",
        "Yes?",
    ]
    assert backend.told()[1] == ("assistant", "I pass you")
    assert backend.commands().count("truncate") == 2
    assert backend.complaints == []


async def test_if_the_provider_does_not_stop_by_itself_it_is_told_to(backend: Backend) -> None:
    """R7."""
    settings = RealtimeSettings(turn_detection=TurnDetection(interrupt_response=False))
    model = await backend.plays([ScriptedStream("One two three four", asyncio.Event()), "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=settings).connect()) as heard:
        await heard.session.send_text("Count")
        item = await item_of(heard, "four")
        heard.session.playback.played(item, 400)
        await backend.begins_to_speak(heard.session)
        await backend.until("truncate")
        await heard.until(ResponseTruncated)
        await backend.has_said(heard.session, "Stop")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
        await heard.session.wait_until_idle()
    assert backend.commands() == ["user", "respond", "cancel", "truncate"]
    assert remembered(heard) == ["Count", "One two", "Stop", "Yes?"]
    assert backend.complaints == []


async def test_earlier_items_of_a_response_count_as_heard(scripted: InMemory) -> None:
    """R7: the first item was played to its end, of the second only a word."""
    model = await scripted.plays([])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        sound = bytes(48 * 200)
        scripted.at().emit(
            ResponseStarted("r"),
            TranscriptChunk("r", "a", 0, "Good morning."),
            *[AudioChunk("r", "a", 0, sound)] * 2,
            TranscriptChunk("r", "b", 0, "Your invoice is paid."),
            *[AudioChunk("r", "b", 0, sound)] * 4,
            ResponseEnded("r", "completed", AssistantMessage("Good morning.\nYour invoice is paid."), ("a", "b")),
        )
        await heard.said()
        heard.session.playback.played("a", 400)
        heard.session.playback.played("b", 250)
        await heard.session.interrupt()
        await heard.until(ResponseTruncated)
    assert remembered(heard) == ["Good morning.\nYour"]


async def test_of_two_items_neither_of_which_was_heard_to_its_end_the_first_counts(wire: OverTheWire) -> None:
    """R7: words, a call and words again are items of their own."""
    words = ScriptedStream("Good good good good", ToolCall("", "nothing", "{}"), "Your invoice is paid.")
    model = await wire.plays([words, "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.said()
        items = list(dict.fromkeys(delta.item_id for delta in heard.all(AudioDelta)))
        assert len(items) == 2
        heard.session.playback.played(items[0], 400)
        await heard.session.interrupt()
        await heard.until(ResponseTruncated)
        await heard.session.wait_until_idle()
    assert [(cut.heard_text, cut.played_ms) for cut in heard.all(ResponseTruncated)] == [("Good good", 400)]
    told = [text for role, text in wire.told() if role == "assistant"]
    assert told[:2] == ["Good good", ""]
    assert wire.commands().count("truncate") == 2
    assert wire.complaints == []


async def test_words_that_came_before_any_sound_were_not_heard(scripted: InMemory) -> None:
    """R7: a transcript is often ahead of the audio."""
    model = await scripted.plays([])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        scripted.at().emit(ResponseStarted("r"), TranscriptChunk("r", "a", 0, "Your invoice"))
        await heard.until(TranscriptDelta)
        await heard.session.interrupt()
        scripted.at().emit(
            TranscriptChunk("r", "a", 0, " is"),
            AudioChunk("r", "a", 0, bytes(9600)),
            ResponseEnded("r", "cancelled", AssistantMessage("Your invoice is"), ("a",), "client_cancelled"),
        )
        cut = await heard.until(ResponseTruncated)
    assert cut.heard_text == ""
    assert heard.all(AudioDelta) == []
    assert [delta.text for delta in heard.all(TranscriptDelta)] == ["Your invoice"]
    assert remembered(heard) == ["…"]


async def test_after_a_cut_the_new_connection_is_not_told_of_items_it_does_not_have(backend: Backend) -> None:
    """R7, R9."""
    model = await backend.plays(["One two three four", "Yes?"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=SPOKEN).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.said()
        heard.session.playback.played(heard.all(AudioDelta)[0].item_id, 400)
        await backend.cut()
        await backend.connected(1)
        await heard.session.send_text("Wait", respond=False)
        await says(backend, heard.session, "Stop")
        await heard.until(AgentResponded, 2)
        await heard.session.wait_until_idle()
    assert remembered(heard)[1] == "One two"
    assert "truncate" not in backend.commands(1)
    assert backend.complaints == []
