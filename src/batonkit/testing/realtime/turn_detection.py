"""Rule-based turn detection: loud audio is speech, and enough silence after it ends the turn."""

from collections.abc import Iterator

from msgspec import Struct

from ...realtime.voice_settings import AudioFormat, TurnDetection, bytes_for, milliseconds_of
from .audio import loudness

_FRAME_MS = 20
_SILENCE_BY_EAGERNESS = {"high": 200, "medium": 500, "auto": 500, "low": 1000}


class DetectedTurn(Struct, frozen=True):
    """The start of speech, or the end of it with all audio of the turn."""

    at_ms: int
    speech: bytes | None = None


class TurnDetector:
    """The input audio buffer of a session, and the state of turn detection."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.is_speech = False
        self.received_ms = 0.0
        self._unread = bytearray()
        self._silence_ms = 0

    def clear(self) -> None:
        """Discard the audio that has not been committed."""
        self.buffer.clear()
        self._unread.clear()
        self.is_speech = False
        self._silence_ms = 0

    def take(self) -> bytes:
        """Remove and return the audio that has not been committed."""
        audio = bytes(self.buffer)
        self.clear()
        return audio

    def append(self, audio: bytes, format: AudioFormat, detection: TurnDetection | None) -> Iterator[DetectedTurn]:
        """Append audio and yield the starts and ends of speech in it."""
        if detection is None:
            self.buffer += audio
            self.received_ms += milliseconds_of(len(audio), format)
            return
        self._unread += audio
        size = bytes_for(_FRAME_MS, format)
        while len(self._unread) >= size:
            frame = bytes(self._unread[:size])
            del self._unread[:size]
            self.buffer += frame
            self.received_ms += _FRAME_MS
            yield from self._detect(frame, format, detection)

    def _detect(self, frame: bytes, format: AudioFormat, detection: TurnDetection) -> Iterator[DetectedTurn]:
        threshold = 0.5 if detection.threshold is None else detection.threshold
        if loudness(frame, format) >= threshold:
            self._silence_ms = 0
            if not self.is_speech:
                self.is_speech = True
                yield self._start(format, 300 if detection.prefix_ms is None else detection.prefix_ms)
        elif self.is_speech:
            self._silence_ms += _FRAME_MS
            if self._silence_ms >= _required_silence(detection):
                self.is_speech = False
                self._silence_ms = 0
                yield DetectedTurn(int(self.received_ms), bytes(self.buffer))
                self.buffer.clear()

    def _start(self, format: AudioFormat, padding: int) -> DetectedTurn:
        # Only the padding of the silence before the first word belongs to the turn.
        size = bytes_for(padding + _FRAME_MS, format)
        del self.buffer[: max(0, len(self.buffer) - size)]
        return DetectedTurn(max(0, int(self.received_ms) - _FRAME_MS - padding))


def _required_silence(detection: TurnDetection) -> int:
    if detection.kind == "semantic_vad":
        return _SILENCE_BY_EAGERNESS[detection.eagerness or "auto"]
    return 500 if detection.silence_ms is None else detection.silence_ms
