"""Audio for `baton voice`: .wav files, recording, microphone and speaker."""

import asyncio
import wave
from array import array
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Self

from ..log import Delta, Event
from ..realtime.deltas import AudioDelta, PlaybackInterrupted
from ..realtime.voice_settings import bytes_for, milliseconds_of
from .cli_errors import TargetError

RATE = 24_000
_WIDTH = 2


def read_wav(path: Path) -> bytes:
    """Read a .wav file as 24 kHz mono 16-bit PCM. Raises TargetError if it is not one."""
    try:
        with path.open("rb") as raw, wave.open(raw) as file:
            channels = file.getnchannels()
            width = file.getsampwidth()
            rate = file.getframerate()
            frames = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise TargetError(f"--wav-in: there is no file `{path}`") from None
    except (wave.Error, EOFError, OSError) as error:
        reason = str(error) or "it ends too early"
        raise TargetError(f"`{path}` cannot be read as a .wav file of plain PCM: {reason}") from error
    samples = _resample(_to_mono(_to_16_bit(frames, width), channels), rate)
    if not samples:
        raise TargetError(f"`{path}` contains no audio")
    return samples.tobytes()


class Recording:
    """The audio of a session in order; interrupted items end where playback stopped."""

    def __init__(self) -> None:
        self._items: dict[str, bytearray] = {}

    def add(self, item_id: str, audio: bytes) -> None:
        """Append audio to an item."""
        self._items.setdefault(item_id, bytearray()).extend(audio)

    def cut(self, item_id: str, played_ms: int) -> None:
        """Truncate an item to the part that was played."""
        audio = self._items.get(item_id)
        if audio is not None:
            del audio[bytes_for(played_ms, "pcm16") :]

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return milliseconds_of(sum(map(len, self._items.values())), "pcm16") / 1000

    def write(self, path: Path) -> None:
        """Write a .wav file. Raises TargetError if that fails."""
        try:
            with path.open("wb") as raw, wave.open(raw, "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(_WIDTH)
                file.setframerate(RATE)
                file.writeframes(b"".join(self._items.values()))
        except OSError as error:
            raise TargetError(f"`{path}` cannot be written: {error.strerror or error}") from error


def _to_16_bit(frames: bytes, width: int) -> "array[int]":
    """Convert samples of any width to 16 bit by their two most significant bytes."""
    output = bytearray(len(frames) // width * _WIDTH)
    if width == 1:
        # 8-bit samples are unsigned.
        output[1::2] = bytes([byte ^ 0x80 for byte in frames])
    else:
        output[0::2] = frames[width - 2 :: width]
        output[1::2] = frames[width - 1 :: width]
    return array("h", bytes(output))


def _to_mono(samples: "array[int]", channels: int) -> "array[int]":
    if channels == 1:
        return samples
    return array("h", [sum(frame) // channels for frame in zip(*[iter(samples)] * channels, strict=False)])


def _resample(samples: "array[int]", rate: int) -> "array[int]":
    """Resample to 24 kHz by linear interpolation."""
    if rate == RATE or len(samples) < 2:
        return samples
    last = len(samples) - 1
    output = array("h")
    for number in range(len(samples) * RATE // rate):
        index, remainder = divmod(number * rate, RATE)
        before = samples[min(index, last)]
        output.append(before + (samples[min(index + 1, last)] - before) * remainder // RATE)
    return output


_STREAM: dict[str, Any] = {"samplerate": RATE, "channels": 1, "dtype": "int16", "blocksize": RATE // 50}
_EXTRA = "pip install 'batonkit[voice]' to use them"


def sounddevice() -> Any:
    """Import sounddevice; return a message if it is not available."""
    try:
        return import_module("sounddevice")
    except ImportError:
        return f"no microphone or speaker available: {_EXTRA}"
    except OSError as error:
        return f"no microphone or speaker available: {error}"


class Microphone:
    """The microphone, as blocks of 20 ms."""

    def __init__(self, module: Any) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._stream = module.RawInputStream(callback=self._on_block, **_STREAM)
        self._stream.start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._pieces.get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    def _on_block(self, data: Any, frames: int, time: Any, status: Any) -> None:
        # Called in a thread of the audio system.
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, bytes(data))


class AudioOutput:
    """The speaker."""

    def __init__(self, module: Any, played: Callable[[str, float], None]) -> None:
        self._report = played
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._played: dict[str, int] = {}
        self._stream = module.RawOutputStream(callback=self._fill, **_STREAM)
        self._stream.start()

    def play(self, item_id: str, audio: bytes) -> None:
        """Queue audio for playback."""
        with self._lock:
            self._waiting.append((item_id, audio))

    def stop(self) -> None:
        """Stop playback and clear the queue."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _fill(self, output: Any, frames: int, time: Any, status: Any) -> None:
        # Called in a thread of the audio system, which needs exactly this many bytes.
        size = len(output)
        with self._lock:
            sound, reports = self._next(size)
        output[:] = sound + bytes(size - len(sound))
        for item_id, played in reports.items():
            self._loop.call_soon_threadsafe(self._report, item_id, milliseconds_of(played, "pcm16"))

    def _next(self, size: int) -> tuple[bytes, dict[str, int]]:
        sound = bytearray()
        reports = dict[str, int]()
        while self._waiting and len(sound) < size:
            item_id, audio = self._waiting.popleft()
            chunk = audio[: size - len(sound)]
            if len(chunk) < len(audio):
                self._waiting.appendleft((item_id, audio[len(chunk) :]))
            sound += chunk
            self._played[item_id] = reports[item_id] = self._played.get(item_id, 0) + len(chunk)
        return bytes(sound), reports


@dataclass(eq=False)
class AudioSink:
    """Routes a session's audio to the speaker and the recording."""

    speaker: AudioOutput | None
    recording: Recording | None
    played: Callable[[str, float], None] | None
    _sizes: Counter[str] = field(default_factory=Counter[str])

    def handle(self, event: Event | Delta) -> None:
        """Play and record audio; stop playback on an interruption."""
        match event:
            case AudioDelta():
                if self.speaker is not None:
                    self.speaker.play(event.item_id, event.audio)
                if self.recording is not None:
                    self.recording.add(event.item_id, event.audio)
                if self.played is not None:
                    self._sizes[event.item_id] += len(event.audio)
                    self.played(event.item_id, milliseconds_of(self._sizes[event.item_id], "pcm16"))
            case PlaybackInterrupted():
                if self.speaker is not None:
                    self.speaker.stop()
                if self.recording is not None:
                    self.recording.cut(event.item_id, event.played_ms)
            case _:
                pass
