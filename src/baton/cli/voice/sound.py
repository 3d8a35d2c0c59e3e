"""Sound in files: what a .wav says as live conversations want it, and what they say as a .wav."""

import wave
from array import array
from pathlib import Path
from sys import byteorder

from ...realtime.settings import bytes_for, milliseconds_of
from ..failures import TargetError

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
