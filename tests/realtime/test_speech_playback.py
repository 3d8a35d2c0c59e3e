"""R7: how much of what was said has been heard."""

from baton.realtime import PlaybackTracker
from baton.realtime.speech import PlayedPortion, heard_text


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_by_the_clock_it_is_played_from_when_it_comes() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    clock.now += 0.4
    assert playback.is_playing
    assert playback.stop() == [PlayedPortion("a", 0, 400, 1000)]
    assert not playback.is_playing
    assert playback.stop() == []


def test_one_item_is_played_after_the_other() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    playback.received("b", 0, 1000)
    clock.now += 1.25
    assert playback.stop() == [PlayedPortion("b", 0, 250, 1000)]


def test_fully_played_items_are_not_truncated() -> None:
    clock = Clock()
    playback = PlaybackTracker(clock)
    playback.received("a", 0, 1000)
    clock.now += 1.0
    assert not playback.is_playing
    assert playback.stop() == []


def test_time_in_which_there_was_nothing_to_play_does_not_count() -> None:
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
    words = "Your invoice is paid"
    assert heard_text(words, PlayedPortion("a", 0, 0, 1000)) == ""
    assert heard_text(words, PlayedPortion("a", 0, 100, 1000)) == ""
    assert heard_text(words, PlayedPortion("a", 0, 200, 1000)) == "Your"
    assert heard_text(words, PlayedPortion("a", 0, 550, 1000)) == "Your"
    assert heard_text(words, PlayedPortion("a", 0, 600, 1000)) == "Your invoice"
    assert heard_text(words, PlayedPortion("a", 0, 999, 1000)) == "Your invoice is"
    assert heard_text(words, PlayedPortion("a", 0, 1000, 1000)) == words
    assert heard_text(words, PlayedPortion("a", 0, 0, 0)) == words


def test_where_words_are_not_set_apart_characters_are_heard() -> None:
    assert heard_text("您的发票已付清", PlayedPortion("a", 0, 500, 1000)) == "您的发"
