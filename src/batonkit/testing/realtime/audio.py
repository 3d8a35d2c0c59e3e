"""Synthetic speech: words as tones, silence, and loudness."""

import math
from array import array
from bisect import bisect_left
from functools import cache

from ...realtime.voice_settings import AudioFormat, bytes_for

MS_PER_WORD = 200
_LOUD = 8192
"""The effective amplitude that counts as full loudness."""
_AMPLITUDE = 12_000
_EVERY = 8
_LOWEST_TONE = 180
_TONES = 12
_STEP = 20


def spoken_word(word: str, milliseconds: int, format: AudioFormat = "pcm16") -> bytes:
    """Synthesize a word as a tone whose pitch depends on the word."""
    return _tone(_LOWEST_TONE + sum(word.encode()) % _TONES * _STEP, milliseconds, format)


def silence(milliseconds: int, format: AudioFormat = "pcm16") -> bytes:
    """Create silence.

    Args:
        milliseconds: The duration.
        format: The audio format.
    """
    quiet = {"pcm16": b"\0", "g711_ulaw": b"\xff", "g711_alaw": b"\xd5"}[format]
    return quiet * bytes_for(milliseconds, format)


def speech(text: str, *, ms_per_word: int = MS_PER_WORD, format: AudioFormat = "pcm16", pause_ms: int = 0) -> bytes:
    """Synthesize speech that turn detection recognizes: a tone for each word.

    Args:
        text: The words.
        ms_per_word: The duration of a word.
        format: The audio format.
        pause_ms: Silence after the last word, which ends the turn.
    """
    words = b"".join(spoken_word(word, ms_per_word, format) for word in text.split())
    return words + silence(pause_ms, format)


def loudness(piece: bytes, format: AudioFormat) -> float:
    """Measure the loudness of audio, from 0 to 1."""
    if format == "pcm16":
        samples = array("h", piece[: len(piece) // 2 * 2])[::_EVERY]
        squares = sum([sample * sample for sample in samples])
        count = len(samples)
    else:
        squares_of = _squares(format)
        squares = sum([squares_of[byte] for byte in piece])
        count = len(piece)
    return min(1.0, math.sqrt(squares / count) / _LOUD) if count else 0.0


@cache
def _tone(hertz: int, milliseconds: int, format: AudioFormat) -> bytes:
    rate = 24_000 if format == "pcm16" else 8_000
    turn = 2 * math.pi * hertz / rate
    samples = [round(_AMPLITUDE * math.sin(turn * at)) for at in range(rate * milliseconds // 1000)]
    if format == "pcm16":
        return array("h", samples).tobytes()
    levels, codes = zip(*sorted((level, code) for code, level in enumerate(_levels(format))), strict=True)
    return bytes([codes[min(bisect_left(levels, sample), len(codes) - 1)] for sample in samples])


@cache
def _squares(format: AudioFormat) -> list[int]:
    return [level * level for level in _levels(format)]


def _levels(format: AudioFormat) -> list[int]:
    """Decode each byte of G.711."""
    return [_decode_ulaw(code) if format == "g711_ulaw" else _decode_alaw(code) for code in range(256)]


def _decode_ulaw(code: int) -> int:
    code = ~code & 0xFF
    level = (((code & 0x0F) << 3) + 0x84 << ((code & 0x70) >> 4)) - 0x84
    return -level if code & 0x80 else level


def _decode_alaw(code: int) -> int:
    code ^= 0x55
    level = (code & 0x0F) << 4
    segment = (code & 0x70) >> 4
    level = level + 8 if segment == 0 else level + 0x108 << segment - 1
    return level if code & 0x80 else -level
