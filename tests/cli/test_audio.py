"""Reading .wav files of any PCM format, and writing recordings."""

import wave
from array import array
from math import pi, sin
from pathlib import Path

import pytest

from batonkit.cli.audio import Recording, read_wav
from batonkit.cli.cli_errors import TargetError
from batonkit.testing import speech

HERTZ, SECONDS = 440, 0.25


def wav(path: Path, frames: bytes, *, channels: int = 1, width: int = 2, rate: int = 24_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return path


def tone(rate: int, *, channels: int, width: int) -> bytes:
    """Return the frames of a tone in this format; the second channel is silent."""
    frames = bytearray()
    for number in range(int(rate * SECONDS)):
        amplitude = 0.5 * sin(2 * pi * HERTZ * number / rate)
        for channel in range(channels):
            sample = int(amplitude * (1 << (8 * width - 1))) if channel == 0 else 0
            frames += bytes([sample + 0x80]) if width == 1 else sample.to_bytes(width, "little", signed=True)
    return bytes(frames)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100, 48_000])
def test_a_tone_is_preserved_by_conversion(tmp_path: Path, rate: int, channels: int, width: int) -> None:
    path = wav(
        tmp_path / "in.wav", tone(rate, channels=channels, width=width), channels=channels, width=width, rate=rate
    )
    samples = array("h", read_wav(path))
    assert len(samples) == pytest.approx(24_000 * SECONDS, abs=2)
    loudness = 0.5 / channels * 32_768
    expected = [loudness * sin(2 * pi * HERTZ * number / 24_000) for number in range(len(samples))]
    # Linear interpolation at 8 kHz has an error of 1.5% of the amplitude; 8 bit adds 0.8%.
    assert max(abs(got - want) for got, want in zip(samples[:-6], expected, strict=False)) < 0.04 * 32_768


def test_audio_in_the_target_format_is_unchanged(tmp_path: Path) -> None:
    assert read_wav(wav(tmp_path / "in.wav", speech("Hello there"))) == speech("Hello there")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"--wav-in: there is no file `.*in\.wav`"),
        (b"", r"`.*in\.wav` cannot be read as a \.wav file of plain PCM: it ends too early"),
        (
            b"ID3 something else entirely",
            "cannot be read as a .wav file of plain PCM: file does not start with RIFF id",
        ),
    ],
)
def test_invalid_wav_files_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "in.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TargetError, match=message):
        read_wav(path)


def test_a_file_without_sound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="contains no audio"):
        read_wav(wav(tmp_path / "in.wav", b""))


def test_recording_holds_the_played_audio_in_order(tmp_path: Path) -> None:
    """Audio that was not played is not recorded."""
    recording = Recording()
    recording.add("a", speech("one two"))
    recording.add("b", speech("three"))
    recording.add("a", speech("four"))
    recording.cut("a", 400)
    recording.cut("unknown", 0)
    assert recording.seconds == 0.6
    recording.write(tmp_path / "out.wav")
    assert read_wav(tmp_path / "out.wav") == speech("one two three")


def test_an_unwritable_path_raises_a_target_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"out\.wav` cannot be written: No such file or directory"):
        Recording().write(tmp_path / "nowhere" / "out.wav")
