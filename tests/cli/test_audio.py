"""Any plain .wav file becomes what live conversations want, and what they say becomes one."""

import wave
from array import array
from math import pi, sin
from pathlib import Path

import pytest

from baton.cli.audio import Recording, read_wav
from baton.cli.errors import TargetError
from baton.testing import speech

HERTZ, SECONDS = 440, 0.25


def wav(path: Path, frames: bytes, *, channels: int = 1, width: int = 2, rate: int = 24_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return path


def tone(rate: int, *, channels: int, width: int) -> bytes:
    """A tone in the form of a .wav file of this kind; in the second channel it is silent."""
    frames = bytearray()
    for number in range(int(rate * SECONDS)):
        height = 0.5 * sin(2 * pi * HERTZ * number / rate)
        for channel in range(channels):
            sample = int(height * (1 << (8 * width - 1))) if channel == 0 else 0
            frames += bytes([sample + 0x80]) if width == 1 else sample.to_bytes(width, "little", signed=True)
    return bytes(frames)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100, 48_000])
def test_a_tone_stays_the_tone_it_is(tmp_path: Path, rate: int, channels: int, width: int) -> None:
    path = wav(
        tmp_path / "in.wav", tone(rate, channels=channels, width=width), channels=channels, width=width, rate=rate
    )
    heard = array("h", read_wav(path))
    assert len(heard) == pytest.approx(24_000 * SECONDS, abs=2)
    loudness = 0.5 / channels * 32_768
    wanted = [loudness * sin(2 * pi * HERTZ * number / 24_000) for number in range(len(heard))]
    # A line between two samples at 8 kHz is off by 1.5% of the height of the tone; 8 bit by another 0.8%.
    assert max(abs(got - want) for got, want in zip(heard[:-6], wanted, strict=False)) < 0.04 * 32_768


def test_audio_in_the_target_format_is_unchanged(tmp_path: Path) -> None:
    assert read_wav(wav(tmp_path / "in.wav", speech("Hello there"))) == speech("Hello there")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, r"--wav-in: there is no file `.*in\.wav`"),
        (b"", r"`.*in\.wav` cannot be read as a \.wav file of plain PCM: it ends too early"),
        (
            b"ID3 something else entirely",
            "cannot be read as a .wav file of plain PCM: file does not start with RIFF id",
        ),
    ],
)
def test_invalid_wav_files_are_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "in.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TargetError, match=told):
        read_wav(path)


def test_a_file_without_sound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="contains no audio"):
        read_wav(wav(tmp_path / "in.wav", b""))


def test_recording_holds_the_played_audio_in_order(tmp_path: Path) -> None:
    """R7: what was not heard is not in it."""
    recording = Recording()
    recording.add("a", speech("one two"))
    recording.add("b", speech("three"))
    recording.add("a", speech("four"))
    recording.cut("a", 400)
    recording.cut("nobody", 0)
    assert recording.seconds == 0.6
    recording.write(tmp_path / "out.wav")
    assert read_wav(tmp_path / "out.wav") == speech("one two three")


def test_where_nothing_can_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"out\.wav` cannot be written: No such file or directory"):
        Recording().write(tmp_path / "nowhere" / "out.wav")
