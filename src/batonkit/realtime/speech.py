"""Speech of both sides: delivery of audio and transcripts, playback progress, and interruptions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Protocol, TypeAlias, assert_never
from unicodedata import east_asian_width

from msgspec import Struct

from ..log import Delta, Origin, SpeechInterval
from ..messages import AssistantMessage
from . import protocol
from .connection import ReconnectingConnection
from .deltas import AudioCompleted, AudioDelta, PlaybackInterrupted, SpeechStarted, SpeechStopped, TranscriptDelta
from .mailbox import MailboxEvent, ResponseInterrupted
from .pending import ResponseScheduler
from .voice_settings import RealtimeSettings, milliseconds_of

_MAX_REMEMBERED = 32
SpeechSignal: TypeAlias = (
    protocol.AudioChunk | protocol.AudioEnded | protocol.TranscriptChunk | protocol.TranscriptionChunk
)


class PlayedPortion(Struct, frozen=True):
    """Playback progress of an item when it was stopped."""

    item_id: str
    content_index: int
    played_ms: int
    total_ms: int


@dataclass(eq=False, slots=True)
class _PlayingItem:
    starts_at: float
    total_ms: float = 0.0
    reported_ms: float | None = None


class PlaybackTracker:
    """Tracks how much of the agent's audio has been played.

    It assumes playback in real time. An application that plays with a delay, or can pause, reports its progress with
    `played`.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Create a tracker.

        Args:
            clock: Returns the current time in seconds.
        """
        self._clock = clock
        self._items: dict[tuple[str, int], _PlayingItem] = {}
        self._has_reports = False

    def received(self, item_id: str, content_index: int, milliseconds: float) -> float:
        """Add audio that is to be played, after the audio of earlier items.

        Args:
            item_id: The item that the audio belongs to.
            content_index: Index of its content part.
            milliseconds: Duration of the audio.

        Returns:
            The seconds until it is played, if playback is in real time.
        """
        item = self._items.get((item_id, content_index))
        if item is None:
            self._items = self._unfinished()
            ends = [known.starts_at + known.total_ms / 1000 for known in self._items.values()]
            item = self._items[item_id, content_index] = _PlayingItem(max([self._clock(), *ends]))
        # If playback has run out of audio, there was silence until now.
        now = self._clock()
        item.starts_at = max(item.starts_at, now - item.total_ms / 1000)
        wait = item.starts_at + item.total_ms / 1000 - now
        item.total_ms += milliseconds
        return wait

    def played(self, item_id: str, milliseconds: float, *, content_index: int = 0) -> None:
        """Report playback progress. From the first report on, the clock is not used any more.

        Args:
            item_id: The item being played.
            milliseconds: Milliseconds of it that have been played, counted from its start.
            content_index: Index of its content part.
        """
        self._has_reports = True
        item = self._items.get((item_id, content_index))
        if item is not None:
            item.reported_ms = milliseconds

    @property
    def is_playing(self) -> bool:
        """True if some audio has not been played to its end."""
        return bool(self._unfinished())

    def stop(self) -> list[PlayedPortion]:
        """Stop playback and return the progress of each item that was not played to its end."""
        portions = [
            PlayedPortion(item_id, index, int(self._played_ms(item)), int(item.total_ms))
            for (item_id, index), item in self._unfinished().items()
        ]
        self._items.clear()
        return portions

    def _played_ms(self, item: _PlayingItem) -> float:
        if self._has_reports:
            return min(item.reported_ms or 0.0, item.total_ms)
        return min(max(0.0, (self._clock() - item.starts_at) * 1000), item.total_ms)

    def _unfinished(self) -> dict[tuple[str, int], _PlayingItem]:
        return {key: item for key, item in self._items.items() if self._played_ms(item) < item.total_ms}


def heard_text(text: str, portion: PlayedPortion) -> str:
    """Return the whole words of a transcript that fall into the portion that was played."""
    if portion.total_ms <= 0 or portion.played_ms >= portion.total_ms:
        return text
    end = len(text) * portion.played_ms // portion.total_ms
    while 0 < end < len(text) and not _is_word_end(text, end):
        end -= 1
    return text[:end].rstrip()


def _is_word_end(text: str, end: int) -> bool:
    # In scripts without spaces, every character may end a word.
    return text[end].isspace() or text[end - 1].isspace() or east_asian_width(text[end - 1]) in "WF"


@dataclass(eq=False, slots=True)
class _SpokenItem:
    """An item of the agent's speech; `preceding` is the text of the same response before it."""

    preceding: str
    text: str = ""
    heard_from: float = 0.0
    heard_to: float = 0.0
    """The time in which it is heard; 0 before its first audio."""
    is_known: bool = True
    """True if the provider has it on this connection."""


class _SpeechHost(Protocol):
    connection: ReconnectingConnection
    responses: ResponseScheduler

    @property
    def origin(self) -> Origin: ...
    def deliver(self, delta: Delta) -> None: ...
    def post(self, event: MailboxEvent) -> None: ...
    def on_transcript(self, response_id: str, text: str) -> None: ...


class SpeechTracker:
    """Delivers speech of both sides, and truncates what is interrupted."""

    def __init__(self, host: _SpeechHost, playback: PlaybackTracker, settings: RealtimeSettings) -> None:
        self.playback = playback
        self.is_user_speaking = False
        self.has_audio = False
        """True if this connection has produced audio; providers do not change the voice after that."""
        self._host = host
        self._settings = settings
        self._recent: dict[str, _SpokenItem] = {}
        """The most recent items, by id."""
        self._active: dict[str, _SpokenItem] = {}
        """The items of the active response, by id."""
        self.muted: set[str] = set()
        """Responses that are no longer delivered."""
        self._user_speech: dict[str, tuple[float, float | None]] = {}
        """The start and the end of the user's speech, by item id."""

    def start_response(self) -> None:
        """Start to collect the items of a new response."""
        self._active = {}

    def reset(self) -> None:
        """Forget the state of a connection that was lost."""
        self.is_user_speaking = self.has_audio = False
        self._active = {}
        for item in self._recent.values():
            item.is_known = False
        self.muted.clear()

    def on_signal(self, signal: SpeechSignal) -> None:
        """Deliver audio and transcripts."""
        host = self._host
        match signal:
            case protocol.AudioChunk(response_id, item_id, index, audio):
                self.has_audio = True
                if response_id not in self.muted:
                    item = self._find_or_add(item_id)
                    length = milliseconds_of(len(audio), self._settings.output_format)
                    start = time() + self.playback.received(item_id, index, length)
                    item.heard_from = item.heard_from or start
                    item.heard_to = start + length / 1000
                    host.deliver(AudioDelta(host.origin, audio, item_id, index))
            case protocol.AudioEnded(response_id, item_id):
                if response_id not in self.muted:
                    host.deliver(AudioCompleted(host.origin, item_id))
            case protocol.TranscriptChunk(response_id, item_id, _, text):
                self._find_or_add(item_id).text += text
                if response_id not in self.muted:
                    host.deliver(TranscriptDelta(host.origin, text, item_id))
                    host.on_transcript(response_id, text)
            case protocol.TranscriptionChunk(item_id, text):
                host.deliver(TranscriptDelta(host.origin, text, item_id, "user"))
            case _:
                assert_never(signal)

    async def on_user_speech(self, signal: protocol.UserSpeechStarted | protocol.UserSpeechEnded) -> None:
        """Handle the start or the end of the user's speech; the start interrupts the agent."""
        host = self._host
        item_id = signal.item_id
        now = time()
        self.is_user_speaking = isinstance(signal, protocol.UserSpeechStarted)
        if isinstance(signal, protocol.UserSpeechEnded):
            if item_id in self._user_speech:
                self._user_speech[item_id] = (self._user_speech[item_id][0], now)
            host.deliver(SpeechStopped(host.origin, item_id))
            return
        self._user_speech[item_id] = (now, None)
        _forget_oldest(self._user_speech)
        host.deliver(SpeechStarted(host.origin, item_id))
        detection = self._settings.turn_detection
        await self.interrupt(cancel_response=detection is None or not detection.interrupt_response)

    def user_interval(self, item_id: str) -> SpeechInterval | None:
        """Return when the user spoke an item, if the provider detected its start and end."""
        start, end = self._user_speech.pop(item_id, (0.0, None))
        return None if end is None else SpeechInterval(start, end)

    def agent_interval(self, item_ids: Iterable[str]) -> SpeechInterval | None:
        """Return the time in which the items of a response are heard, if they have audio."""
        items = [self._recent[item_id] for item_id in item_ids if item_id in self._recent]
        heard = [item for item in items if item.heard_from]
        return SpeechInterval(heard[0].heard_from, heard[-1].heard_to) if heard else None

    async def interrupt(self, *, cancel_response: bool = True) -> None:
        """Stop speech and playback, and truncate what was not played here and at the provider."""
        portions = self.playback.stop()
        if active := self._host.responses.active_response:
            self.muted.add(active)
            portions += self._silent_items()
        for portion in portions:
            self._truncate(portion)
        if cancel_response:
            await self._host.responses.cancel()
        for portion in portions:
            item = self._recent.get(portion.item_id)
            # Items of an earlier connection have other ids on this one.
            if item is not None and item.is_known:
                await self._host.connection.send(
                    protocol.TruncateItem(portion.item_id, portion.content_index, portion.played_ms)
                )

    def interrupted_response(self, response_id: str) -> protocol.ResponseEnded:
        """Return the part of a response that arrived before the connection was lost."""
        message = AssistantMessage(self._active_text())
        return protocol.ResponseEnded(response_id, "cancelled", message, tuple(self._active), "connection_lost")

    def _active_text(self) -> str:
        return "\n".join([item.text for item in self._active.values() if item.text])

    def _silent_items(self) -> list[PlayedPortion]:
        """List the items of the active response that have a transcript and no audio yet."""
        if self._settings.modality != "audio":
            return []
        return [PlayedPortion(item_id, 0, 0, 1) for item_id, item in self._active.items() if not item.heard_from]

    def _truncate(self, portion: PlayedPortion) -> None:
        host = self._host
        item_id = portion.item_id
        item = self._recent.get(item_id) or _SpokenItem("")
        heard = [item.preceding, heard_text(item.text, portion)]
        host.deliver(PlaybackInterrupted(host.origin, item_id, portion.played_ms))
        host.post(ResponseInterrupted(item_id, "\n".join(filter(None, heard)), portion.played_ms))

    def _find_or_add(self, item_id: str) -> _SpokenItem:
        item = self._active.get(item_id)
        if item is None:
            item = self._recent[item_id] = self._active[item_id] = _SpokenItem(self._active_text())
            _forget_oldest(self._recent)
        return item


def _forget_oldest(entries: dict[str, Any]) -> None:
    while len(entries) > _MAX_REMEMBERED:
        del entries[next(iter(entries))]
