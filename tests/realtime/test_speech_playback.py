"""Tracking of playback, and the text that was heard."""

from batonkit.realtime import PlaybackTracker
from batonkit.realtime.speech import PlayedPortion, heard_text


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_playback_starts_when_audio_arrives() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    clock.now += 0.4
    assert playback.is_playing
    assert playback.stop() == [PlayedPortion("a", 0, 400, 1000)]
    assert not playback.is_playing
    assert playback.stop() == []


def test_items_are_played_one_after_the_other() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    playback.received("b", 0, 1000)
    clock.now += 1.25
    assert playback.stop() == [PlayedPortion("b", 0, 250, 1000)]


def test_audio_waits_for_the_audio_before_it() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    assert playback.received("a", 0, 1000) == 0
    clock.now += 0.25
    assert [playback.received("a", 0, 500), playback.received("b", 0, 1000)] == [0.75, 1.25]
    clock.now += 10
    assert playback.received("b", 0, 500) == 0


def test_fully_played_items_are_not_truncated() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    clock.now += 1.0
    assert not playback.is_playing
    assert playback.stop() == []


def test_gaps_between_chunks_do_not_count_as_played() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    clock.now += 5.0
    playback.received("a", 0, 1000)
    clock.now += 0.125
    assert playback.stop() == [PlayedPortion("a", 0, 1125, 2000)]


def test_reports_of_the_application_override_the_clock() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    playback.received("b", 0, 1000)
    playback.played("a", 1000)
    playback.played("b", 300)
    playback.played("unknown", 300)
    clock.now += 60
    assert playback.stop() == [PlayedPortion("b", 0, 300, 1000)]


def test_heard_text_ends_at_whole_words() -> None:
    text = "Your invoice is paid"
    assert heard_text(text, PlayedPortion("a", 0, 0, 1000)) == ""
    assert heard_text(text, PlayedPortion("a", 0, 100, 1000)) == ""
    assert heard_text(text, PlayedPortion("a", 0, 200, 1000)) == "Your"
    assert heard_text(text, PlayedPortion("a", 0, 550, 1000)) == "Your"
    assert heard_text(text, PlayedPortion("a", 0, 600, 1000)) == "Your invoice"
    assert heard_text(text, PlayedPortion("a", 0, 999, 1000)) == "Your invoice is"
    assert heard_text(text, PlayedPortion("a", 0, 1000, 1000)) == text
    assert heard_text(text, PlayedPortion("a", 0, 0, 0)) == text


def test_heard_text_without_spaces_ends_at_a_character() -> None:
    assert heard_text("您的发票已付清", PlayedPortion("a", 0, 500, 1000)) == "您的发"
