"""What is heard in a live conversation, both ways: audio and words on their way, and who interrupts whom.

How much of what an agent said has been played: only that was heard.
"""

from collections.abc import Callable
from time import monotonic
from typing import Protocol
from unicodedata import east_asian_width

from msgspec import Struct

from ..events import Delta, Origin
from ..messages import AssistantMessage
from .events import AudioCompleted, AudioDelta, PlaybackInterrupted, SpeechStarted, SpeechStopped, TranscriptDelta
from .mailbox import Happening, ResponseInterrupted
from .protocol import (
    AudioChunk,
    AudioEnded,
    Command,
    ResponseEnded,
    Signal,
    TranscriptChunk,
    TranscriptionChunk,
    TruncateItem,
    UserSpeechEnded,
    UserSpeechStarted,
)
from .settings import RealtimeSettings, milliseconds_of


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


_REMEMBERED = 32


class _SpeechHost(Protocol):
    """The conversation that this is the speech of."""

    @property
    def response(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    def deliver(self, delta: Delta) -> None: ...
    def happened(self, happening: Happening) -> None: ...
    def words(self, response_id: str, text: str) -> None: ...
    async def send(self, command: Command) -> bool: ...
    async def stop_response(self) -> None: ...


class SpeechTracker:
    """What is being said, and how much of it has been heard."""

    def __init__(self, ear: _SpeechHost, playback: PlaybackTracker, manners: RealtimeSettings) -> None:
        self.playback = playback
        self.is_user_speaking = False
        self.was_heard = False
        """Whether an agent has been heard on this connection: then the voice stays what it is."""
        self._ear = ear
        self._manners = manners
        self._words: dict[str, str] = {}
        """The transcript of each item so far; the last few."""
        self._before: dict[str, str] = {}
        """What was said in the same response before each of these items."""
        self._items: dict[str, bool] = {}
        """The items of the response that is under way, and whether anything of each was to be heard."""
        self._here: set[str] = set()
        """The items that the provider of this connection has."""
        self._hushed: set[str] = set()
        """Responses of which nothing more is passed on."""

    def begin(self, response_id: str) -> None:
        """A response begins."""
        self._items = {}

    def end(self, response_id: str) -> None:
        """A response has ended."""
        self._hushed.discard(response_id)

    def hush(self, response_id: str) -> None:
        """Pass on nothing more of this response."""
        self._hushed.add(response_id)

    def forget(self) -> None:
        """The connection is gone, and with it what the provider knew of it."""
        self.is_user_speaking = self.was_heard = False
        self._items = {}
        self._here.clear()
        self._hushed.clear()

    def hear(self, signal: Signal) -> None:
        """Pass on what is said."""
        ear = self._ear
        match signal:
            case AudioChunk(response_id, item_id, index, audio):
                self.was_heard = True
                if response_id not in self._hushed:
                    self._meet(item_id)
                    self._items[item_id] = True
                    self.playback.received(item_id, index, milliseconds_of(len(audio), self._manners.output_format))
                    ear.deliver(AudioDelta(ear.origin, audio, item_id, index))
            case AudioEnded(response_id, item_id):
                if response_id not in self._hushed:
                    ear.deliver(AudioCompleted(ear.origin, item_id))
            case TranscriptChunk(response_id, item_id, _, text):
                self._meet(item_id)
                self._words[item_id] += text
                if response_id not in self._hushed:
                    ear.deliver(TranscriptDelta(ear.origin, text, item_id))
                    ear.words(response_id, text)
            case TranscriptionChunk(item_id, text):
                ear.deliver(TranscriptDelta(ear.origin, text, item_id, "user"))
            case _:
                pass

    async def user_speaks(self, signal: UserSpeechStarted | UserSpeechEnded) -> None:
        """The user begins to speak, and whoever speaks is interrupted; or ceases to."""
        ear = self._ear
        self.is_user_speaking = isinstance(signal, UserSpeechStarted)
        if isinstance(signal, UserSpeechEnded):
            ear.deliver(SpeechStopped(ear.origin, signal.item_id))
            return
        ear.deliver(SpeechStarted(ear.origin, signal.item_id))
        detection = self._manners.turn_detection
        await self.interrupt(stops_response=detection is None or not detection.interrupt_response)

    async def interrupt(self, *, stops_response: bool = True) -> None:
        """Stop what is being said and played: what was not heard is forgotten, here and by the model."""
        portions = self.playback.stop()
        if self._ear.response:
            self.hush(self._ear.response)
            portions += self._unheard()
        for portion in portions:
            self._cut(portion)
        if stops_response:
            await self._ear.stop_response()
        for portion in portions:
            # What was said on a connection that is gone, the provider of this one does not know by this name.
            if portion.item_id in self._here:
                await self._ear.send(TruncateItem(portion.item_id, portion.content_index, portion.played_ms))

    def broken_off(self, response_id: str) -> ResponseEnded:
        """What is left of a response that will not be told to its end."""
        text = "\n".join([words for item_id in self._items if (words := self._words.get(item_id))])
        return ResponseEnded(response_id, "cancelled", AssistantMessage(text), tuple(self._items), "connection_lost")

    def _unheard(self) -> list[PlayedPortion]:
        """The items of the response under way of which there are words, and no sound yet."""
        if self._manners.modality != "audio":
            return []
        return [PlayedPortion(item_id, 0, 0, 1) for item_id, is_heard in self._items.items() if not is_heard]

    def _cut(self, portion: PlayedPortion) -> None:
        ear, item_id = self._ear, portion.item_id
        heard = [self._before.get(item_id, ""), heard_of(self._words.get(item_id, ""), portion)]
        ear.deliver(PlaybackInterrupted(ear.origin, item_id, portion.played_ms))
        ear.happened(ResponseInterrupted(item_id, "\n".join(filter(None, heard)), portion.played_ms))

    def _meet(self, item_id: str) -> None:
        if item_id in self._items:
            return
        before = [self._words.get(earlier, "") for earlier in self._items]
        self._words[item_id], self._before[item_id] = "", "\n".join(filter(None, before))
        self._items[item_id] = False
        self._here.add(item_id)
        while len(self._words) > _REMEMBERED:
            oldest = next(iter(self._words))
            self._here.discard(oldest)
            del self._words[oldest], self._before[oldest]
