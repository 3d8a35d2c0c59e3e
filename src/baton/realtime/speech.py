"""What is heard in a live conversation, both ways: audio and words on their way, and who interrupts whom."""

from collections.abc import Sequence
from typing import Protocol

from ..events import Delta, Origin
from ..messages import AssistantMessage
from .commands import Command, Truncate
from .events import AudioDelta, AudioDone, PlaybackInterrupted, SpeechStarted, SpeechStopped, TranscriptDelta
from .happenings import Happening, Interrupted
from .playback import Playback, Portion, heard_of
from .settings import Manners, milliseconds_of
from .signals import (
    AudioChunk,
    AudioEnded,
    ResponseEnded,
    Signal,
    SpeechBegan,
    SpeechEnded,
    Transcribing,
    WordsChunk,
)

_REMEMBERED = 32


class _Ear(Protocol):
    """The conversation that this is the speech of."""

    response: str

    @property
    def origin(self) -> Origin: ...
    def deliver(self, delta: Delta) -> None: ...
    def happened(self, happening: Happening) -> None: ...
    def words(self, response_id: str, text: str) -> None: ...
    async def send(self, command: Command) -> bool: ...
    async def stop_response(self) -> None: ...


class Speech:
    """What is being said, and how much of it has been heard."""

    def __init__(self, ear: _Ear, playback: Playback, manners: Manners) -> None:
        self.playback = playback
        self.is_user_speaking = False
        self.was_heard = False
        """Whether an agent has been heard on this connection: then the voice stays what it is."""
        self._ear = ear
        self._manners = manners
        self._words: dict[str, str] = {}
        """The transcript of each item so far; the last few."""
        self._items: list[str] = []
        """The items of the response that is under way."""

    def begin(self, response_id: str) -> None:
        """A response begins."""
        self._items = []

    def forget(self) -> None:
        """The connection is gone, and with it what the provider knew of it."""
        self.is_user_speaking = self.was_heard = False
        self._items = []

    def hear(self, signal: Signal) -> None:
        """Pass on what is said."""
        ear = self._ear
        match signal:
            case AudioChunk(_, item_id, index, audio):
                self.was_heard = True
                self.playback.received(item_id, index, milliseconds_of(len(audio), self._manners.output_format))
                ear.deliver(AudioDelta(ear.origin, audio, item_id, index))
            case AudioEnded(_, item_id):
                ear.deliver(AudioDone(ear.origin, item_id))
            case WordsChunk(response_id, item_id, _, text):
                self._note(item_id, text)
                ear.deliver(TranscriptDelta(ear.origin, text, item_id))
                ear.words(response_id, text)
            case Transcribing(item_id, text):
                ear.deliver(TranscriptDelta(ear.origin, text, item_id, "user"))
            case _:
                pass

    async def user_speaks(self, signal: SpeechBegan | SpeechEnded) -> None:
        """The user begins to speak, and whoever speaks is interrupted; or ceases to."""
        ear = self._ear
        self.is_user_speaking = isinstance(signal, SpeechBegan)
        if isinstance(signal, SpeechEnded):
            ear.deliver(SpeechStopped(ear.origin, signal.item_id))
            return
        ear.deliver(SpeechStarted(ear.origin, signal.item_id))
        detection = self._manners.turn_detection
        await self.interrupt(stops_response=detection is None or not detection.interrupts)

    async def interrupt(self, *, stops_response: bool = True) -> None:
        """Stop what is being said and played: what was not heard is forgotten, here and by the model."""
        portions = self.playback.stop()
        for portion in portions:
            self._cut(portion)
        if stops_response:
            await self._ear.stop_response()
        for portion in portions:
            await self._ear.send(Truncate(portion.item_id, portion.content_index, portion.played_ms))

    def broken_off(self, response_id: str) -> ResponseEnded:
        """What is left of a response whose connection was lost."""
        text = "".join(self._words.get(item_id, "") for item_id in self._items)
        items: Sequence[str] = self._items
        return ResponseEnded(response_id, "cancelled", AssistantMessage(text), tuple(items), "connection_lost")

    def _cut(self, portion: Portion) -> None:
        ear = self._ear
        heard = heard_of(self._words.get(portion.item_id, ""), portion)
        ear.deliver(PlaybackInterrupted(ear.origin, portion.item_id, portion.played_ms))
        ear.happened(Interrupted(portion.item_id, heard, portion.played_ms))

    def _note(self, item_id: str, text: str) -> None:
        if item_id not in self._words:
            self._items.append(item_id)
            while len(self._words) >= _REMEMBERED:
                del self._words[next(iter(self._words))]
        self._words[item_id] = self._words.get(item_id, "") + text
