"""The microphone and the speaker of this machine, if `sounddevice` is installed and finds any."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from threading import Lock
from typing import Any, Self

from ...realtime.settings import milliseconds_of
from .sound import RATE

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
