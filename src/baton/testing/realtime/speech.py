"""Sound made by rule: loud where a word is and quiet after it, so that it can be counted, cut and listened for."""

from array import array
from functools import cache
from math import pi, sin
from sys import byteorder
from zlib import crc32

from ...realtime.settings import AudioFormat, bytes_for

MS_PER_WORD = 200
_LOUD_PART = 0.75
_LOUDNESS = 12_000
_QUIET_IN_G711 = {"g711_ulaw": 0xFF, "g711_alaw": 0xD5}
_LOUD_IN_G711 = {"g711_ulaw": (0x90, 0x10), "g711_alaw": (0xB0, 0x30)}


def speech_like(words: str, *, format: AudioFormat = "pcm16", ms_per_word: int = MS_PER_WORD) -> bytes:
    """So many words as sound: for each a tone of its own and a short silence. The same words sound the same."""
    return b"".join([_spoken_word(word, format, ms_per_word) for word in words.split()])


def silence(milliseconds: int, *, format: AudioFormat = "pcm16") -> bytes:
    """So much quiet."""
    size = bytes_for(milliseconds, format)
    return bytes(size) if format == "pcm16" else bytes([_QUIET_IN_G711[format]]) * size


@cache
def _spoken_word(word: str, format: AudioFormat, milliseconds: int) -> bytes:
    loud = int(milliseconds * _LOUD_PART)
    one_wave = _wave(110 + crc32(word.encode()) % 220, format)
    size = bytes_for(loud, format)
    tone = (one_wave * (size // len(one_wave) + 1))[:size]
    return tone + silence(milliseconds - loud, format=format)


def _wave(hertz: int, format: AudioFormat) -> bytes:
    """One period of a tone."""
    if format != "pcm16":
        high, low = _LOUD_IN_G711[format]
        half = 8_000 // hertz // 2
        return bytes([high]) * half + bytes([low]) * half
    samples = 24_000 // hertz
    wave = array("h", [int(_LOUDNESS * sin(2 * pi * number / samples)) for number in range(samples)])
    if byteorder == "big":
        wave.byteswap()
    return wave.tobytes()
