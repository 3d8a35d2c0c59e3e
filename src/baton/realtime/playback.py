"""How much of what an agent said has been played: only that was heard."""

from collections.abc import Callable
from time import monotonic
from unicodedata import east_asian_width

from msgspec import Struct


class PlayedPortion(Struct, frozen=True):
    """How much of an item was played before it was stopped."""

    item_id: str
    content_index: int
    played_ms: int
    total_ms: int


class _Sound:
    __slots__ = ("begins_at", "reported", "total")

    def __init__(self, begins_at: float) -> None:
        self.begins_at = begins_at
        self.total = 0.0
        self.reported: float | None = None


class PlaybackTracker:
    """Tells how far playing has come. It goes by the clock, unless the application says what it has really played.

    An application that plays with a delay, or may be paused, calls `played` as it goes.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sounds: dict[tuple[str, int], _Sound] = {}
        self._is_fed = False

    def received(self, item_id: str, content_index: int, milliseconds: float) -> None:
        """Take note of audio that is there to be played. One item is played after the other."""
        sound = self._sounds.get((item_id, content_index))
        if sound is None:
            self._forget_what_was_heard()
            now = self._clock()
            ends = [known.begins_at + known.total / 1000 for known in self._sounds.values()]
            sound = self._sounds[item_id, content_index] = _Sound(max([now, *ends]))
        # If it was played faster than it came, there was silence until now.
        sound.begins_at = max(sound.begins_at, self._clock() - sound.total / 1000)
        sound.total += milliseconds

    def played(self, item_id: str, milliseconds: float, *, content_index: int = 0) -> None:
        """Say that so much of an item has been played, from its beginning on. From now on the clock does not count."""
        self._is_fed = True
        sound = self._sounds.get((item_id, content_index))
        if sound is not None:
            sound.reported = milliseconds

    @property
    def is_playing(self) -> bool:
        """Whether there is anything that has not been heard to its end."""
        return any(self._heard(sound) < sound.total for sound in self._sounds.values())

    def stop(self) -> list[PlayedPortion]:
        """What was not heard to its end, and how much of each was. Nothing of it counts as playing any more."""
        portions = [
            PlayedPortion(item_id, index, int(self._heard(sound)), int(sound.total))
            for (item_id, index), sound in self._sounds.items()
            if self._heard(sound) < sound.total
        ]
        self._sounds.clear()
        return portions

    def _heard(self, sound: _Sound) -> float:
        if self._is_fed:
            return min(sound.reported or 0.0, sound.total)
        return min(max(0.0, (self._clock() - sound.begins_at) * 1000), sound.total)

    def _forget_what_was_heard(self) -> None:
        heard = [key for key, sound in self._sounds.items() if self._heard(sound) >= sound.total]
        for key in heard:
            del self._sounds[key]


def heard_of(text: str, portion: PlayedPortion) -> str:
    """The words of a transcript that were heard, if so much of its audio was: whole words, and none too many."""
    if portion.total_ms <= 0 or portion.played_ms >= portion.total_ms:
        return text
    end = len(text) * portion.played_ms // portion.total_ms
    while 0 < end < len(text) and not _ends_a_word(text, end):
        end -= 1
    return text[:end].rstrip()


def _ends_a_word(text: str, end: int) -> bool:
    """Whether a word ends here. In scripts that have no spaces, every character may be one."""
    return text[end].isspace() or text[end - 1].isspace() or east_asian_width(text[end - 1]) in "WF"
