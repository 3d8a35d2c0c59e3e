"""Turn detection by rule: loud is speech, and enough quiet behind it ends a turn."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from baton.realtime.settings import AudioFormat, bytes_for, milliseconds_of
from baton.testing.audio import loudness

_FRAME_MS = 20
_QUIET_OF_EAGERNESS = {"high": 200, "medium": 500, "auto": 500, "low": 1000}


class SpeechBegan(Struct, frozen=True):
    """Speech begins."""

    at_ms: int


class SpeechEnded(Struct, frozen=True):
    """Speech has ended; `audio` is all that belongs to it."""

    at_ms: int
    audio: bytes


Turn: TypeAlias = SpeechBegan | SpeechEnded


class TurnDetector:
    """What a client has appended since the last commit, and whether somebody speaks."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.is_speech = False
        self._heard_ms = 0.0
        self._unread = bytearray()
        self._quiet_ms = 0

    def clear(self) -> None:
        """Forget what has not been committed."""
        self.buffer.clear()
        self._unread.clear()
        self.is_speech = False
        self._quiet_ms = 0

    def take(self) -> bytes:
        """All that has not been committed; nothing is left of it here."""
        audio = bytes(self.buffer)
        self.clear()
        return audio

    def hear(self, audio: bytes, format: AudioFormat, detection: dict[str, Any] | None) -> Iterator[Turn]:
        """More sound. Without `detection` it is only kept."""
        if detection is None:
            self.buffer += audio
            self._heard_ms += milliseconds_of(len(audio), format)
            return
        self._unread += audio
        size = bytes_for(_FRAME_MS, format)
        while len(self._unread) >= size:
            frame = bytes(self._unread[:size])
            del self._unread[:size]
            self.buffer += frame
            self._heard_ms += _FRAME_MS
            yield from self._frame(frame, format, detection)

    def _frame(self, frame: bytes, format: AudioFormat, detection: dict[str, Any]) -> Iterator[Turn]:
        is_loud = loudness(frame, format) >= detection.get("threshold", 0.5)
        if is_loud:
            self._quiet_ms = 0
            if not self.is_speech:
                self.is_speech = True
                yield self._begun(format, int(detection.get("prefix_padding_ms", 300)))
        elif self.is_speech:
            self._quiet_ms += _FRAME_MS
            if self._quiet_ms >= _quiet_wanted(detection):
                self.is_speech = False
                self._quiet_ms = 0
                yield SpeechEnded(int(self._heard_ms), bytes(self.buffer))
                self.buffer.clear()

    def _begun(self, format: AudioFormat, padding: int) -> SpeechBegan:
        # Only a little of the quiet before the first word belongs to what is said.
        wanted = bytes_for(padding + _FRAME_MS, format)
        del self.buffer[: max(0, len(self.buffer) - wanted)]
        return SpeechBegan(max(0, int(self._heard_ms) - _FRAME_MS - padding))


def _quiet_wanted(detection: dict[str, Any]) -> int:
    kind: Literal["server_vad", "semantic_vad"] = detection["type"]
    if kind == "semantic_vad":
        return _QUIET_OF_EAGERNESS[detection.get("eagerness", "auto")]
    return detection.get("silence_duration_ms", 500)
