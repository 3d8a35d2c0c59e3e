"""The microphone and the speaker of this machine, if `sounddevice` is installed and finds any.

Sound in files: what a .wav says as live conversations want it, and what they say as a .wav.

Where what agents say goes: to a speaker, to a file, to both or to neither.
"""

import asyncio
import wave
from array import array
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from sys import byteorder
from threading import Lock
from typing import Any, Self

from ..events import Delta, Event
from ..realtime.events import AudioDelta, PlaybackInterrupted
from ..realtime.settings import bytes_for, milliseconds_of
from .errors import TargetError

RATE = 24_000
_WIDTH = 2


def sound_in(path: Path) -> bytes:
    """What a .wav file sounds like, as 24 kHz, mono, 16 bit. Raises TargetError if it is no such file."""
    try:
        with path.open("rb") as raw, wave.open(raw) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise TargetError(f"there is no file `{path}` to listen to") from None
    except (wave.Error, EOFError, OSError) as error:
        why = str(error) or "it ends too early"
        raise TargetError(f"`{path}` cannot be read as a .wav file of plain PCM: {why}") from error
    samples = _resampled(_mono(_sixteen_bit(frames, width), channels), rate)
    if not samples:
        raise TargetError(f"`{path}` has no sound in it")
    return _little_endian(samples)


class Recording:
    """What was said aloud, in order; of what was interrupted, only what was heard."""

    def __init__(self) -> None:
        self._items: dict[str, bytearray] = {}

    def add(self, item_id: str, audio: bytes) -> None:
        """Take in a piece of what an agent says."""
        self._items.setdefault(item_id, bytearray()).extend(audio)

    def cut(self, item_id: str, played_ms: int) -> None:
        """Forget what was not heard."""
        heard = self._items.get(item_id)
        if heard is not None:
            del heard[bytes_for(played_ms, "pcm16") :]

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return milliseconds_of(sum(map(len, self._items.values())), "pcm16") / 1000

    def write(self, path: Path) -> None:
        """Write it to a .wav file. Raises TargetError if that cannot be written."""
        try:
            with path.open("wb") as raw, wave.open(raw, "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(_WIDTH)
                file.setframerate(RATE)
                file.writeframes(b"".join(self._items.values()))
        except OSError as error:
            raise TargetError(f"`{path}` cannot be written: {error.strerror or error}") from error


def _sixteen_bit(frames: bytes, width: int) -> "array[int]":
    """Samples of any width as 16 bit: the two bytes of each that count most."""
    wanted = bytearray(len(frames) // width * _WIDTH)
    if width == 1:
        # Alone among them, 8 bit samples are unsigned.
        wanted[1::2] = bytes([byte ^ 0x80 for byte in frames])
    else:
        wanted[0::2] = frames[width - 2 :: width]
        wanted[1::2] = frames[width - 1 :: width]
    samples = array("h", bytes(wanted))
    if byteorder == "big":
        samples.byteswap()
    return samples


def _mono(samples: "array[int]", channels: int) -> "array[int]":
    if channels == 1:
        return samples
    return array("h", [sum(frame) // channels for frame in zip(*[iter(samples)] * channels, strict=False)])


def _resampled(samples: "array[int]", rate: int) -> "array[int]":
    """The same sound at 24 kHz: each sample lies on the line between its two neighbours."""
    if rate == RATE or len(samples) < 2:
        return samples
    last, wanted = len(samples) - 1, array("h")
    for number in range(len(samples) * RATE // rate):
        place, beyond = divmod(number * rate, RATE)
        before = samples[min(place, last)]
        wanted.append(before + (samples[min(place + 1, last)] - before) * beyond // RATE)
    return wanted


def _little_endian(samples: "array[int]") -> bytes:
    if byteorder == "big":
        samples = samples[:]
        samples.byteswap()
    return samples.tobytes()


_BLOCK = RATE // 50
_EXTRA = "`pip install 'baton-adk[voice]'` lets you speak and listen"


def sounddevice() -> Any:
    """The module, or why there is none, as a text."""
    try:
        return import_module("sounddevice")
    except ImportError:
        return f"there is no microphone and no speaker here: {_EXTRA}"
    except OSError as error:
        return f"there is no microphone and no speaker here: sounddevice says {error}"


class Microphone:
    """What is said to this machine, in pieces of 20 ms."""

    def __init__(self, module: Any) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._stream = module.RawInputStream(
            samplerate=RATE, channels=1, dtype="int16", blocksize=_BLOCK, callback=self._take
        )
        self._stream.start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._pieces.get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()

    def _take(self, data: Any, frames: int, time: Any, status: Any) -> None:
        # This is called in a thread of the sound system.
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, bytes(data))


class AudioOutput:
    """Plays what agents say, one piece after the other; `played` is told how many milliseconds of each item were."""

    def __init__(self, module: Any, played: Callable[[str, float], None]) -> None:
        self._report = played
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._played: dict[str, int] = {}
        self._stream = module.RawOutputStream(
            samplerate=RATE, channels=1, dtype="int16", blocksize=_BLOCK, callback=self._fill
        )
        self._stream.start()

    def play(self, item_id: str, audio: bytes) -> None:
        """Play this after what is there already."""
        with self._lock:
            self._waiting.append((item_id, audio))

    def stop(self) -> None:
        """Be quiet at once."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Be quiet for good."""
        self._stream.close()

    def _fill(self, wanted: Any, frames: int, time: Any, status: Any) -> None:
        # This is called in a thread of the sound system, which wants exactly so many bytes.
        size = len(wanted)
        with self._lock:
            sound, reports = self._next(size)
        wanted[:] = sound + bytes(size - len(sound))
        for item_id, played in reports.items():
            self._loop.call_soon_threadsafe(self._report, item_id, milliseconds_of(played, "pcm16"))

    def _next(self, size: int) -> tuple[bytes, dict[str, int]]:
        sound, reports = bytearray(), dict[str, int]()
        while self._waiting and len(sound) < size:
            item_id, audio = self._waiting.popleft()
            taken = audio[: size - len(sound)]
            if len(taken) < len(audio):
                self._waiting.appendleft((item_id, audio[len(taken) :]))
            sound += taken
            self._played[item_id] = reports[item_id] = self._played.get(item_id, 0) + len(taken)
        return bytes(sound), reports


class AudioSink:
    """Takes the sound out of what happens in a conversation.

    `played` is told at once how many milliseconds of each item were, where nobody listens and no time passes.
    """

    def __init__(
        self,
        speaker: AudioOutput | None,
        recording: Recording | None,
        played: Callable[[str, float], None] | None = None,
    ) -> None:
        self._speaker = speaker
        self._recording = recording
        self._report = played
        self._sizes = Counter[str]()

    def take(self, event: Event | Delta) -> None:
        """Play and record it if it is sound; be quiet at once if somebody interrupts."""
        match event:
            case AudioDelta():
                if self._speaker is not None:
                    self._speaker.play(event.item_id, event.audio)
                if self._recording is not None:
                    self._recording.add(event.item_id, event.audio)
                if self._report is not None:
                    self._sizes[event.item_id] += len(event.audio)
                    self._report(event.item_id, milliseconds_of(self._sizes[event.item_id], "pcm16"))
            case PlaybackInterrupted():
                if self._speaker is not None:
                    self._speaker.stop()
                if self._recording is not None:
                    self._recording.cut(event.item_id, event.played_ms)
            case _:
                pass

    def close(self) -> None:
        """Be quiet for good."""
        if self._speaker is not None:
            self._speaker.close()
