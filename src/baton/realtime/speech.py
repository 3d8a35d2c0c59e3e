"""What is heard in a live conversation, both ways: audio and words on their way, and who interrupts whom."""

from typing import Protocol

from ..events import Delta, Origin
from ..messages import AssistantMessage
from .commands import Command, TruncateItem
from .events import AudioCompleted, AudioDelta, PlaybackInterrupted, SpeechStarted, SpeechStopped, TranscriptDelta
from .happenings import Happening, ResponseInterrupted
from .playback import PlaybackTracker, PlayedPortion, heard_of
from .settings import RealtimeSettings, milliseconds_of
from .signals import (
    AudioChunk,
    AudioEnded,
    ResponseEnded,
    Signal,
    TranscriptChunk,
    TranscriptionChunk,
    UserSpeechEnded,
    UserSpeechStarted,
)

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
