"""Microphone and speaker with a fake sound system."""

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from batonkit.cli.audio import AudioOutput, Microphone, sounddevice
from batonkit.testing import speech


class SoundStream:
    """A fake `sounddevice` stream, whose callback is called in another thread."""

    def __init__(
        self, *, samplerate: int, channels: int, dtype: str, blocksize: int, callback: Callable[..., None]
    ) -> None:
        assert (samplerate, channels, dtype) == (24_000, 1, "int16")
        self.size = 2 * blocksize
        self.callback = callback
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def close(self) -> None:
        self.is_on = False

    async def exchange(self, block: bytearray) -> bytearray:
        """Call the callback with a block, as the sound system does every 20 ms."""
        await asyncio.to_thread(self.callback, memoryview(block), len(block) // 2, None, None)
        return block


@pytest.fixture
def system() -> Any:
    opened: list[SoundStream] = []

    def open_stream(**options: Any) -> SoundStream:
        opened.append(SoundStream(**options))
        return opened[-1]

    module = ModuleType("sounddevice")
    vars(module).update(RawInputStream=open_stream, RawOutputStream=open_stream, opened=opened)
    return module


async def test_the_speaker_plays_in_order_and_reports_its_position(system: Any) -> None:
    """A playback tracker that the application feeds."""
    reports: list[tuple[str, float]] = []
    speaker = AudioOutput(system, lambda item, played: reports.append((item, played)))
    (stream,) = system.opened
    speaker.play("a", speech("one", ms_per_word=30))
    speaker.play("b", speech("two", ms_per_word=20))
    blocks = [bytes(await stream.exchange(bytearray(stream.size))) for _ in range(3)]
    assert b"".join(blocks) == speech("one", ms_per_word=30) + speech("two", ms_per_word=20) + bytes(480)
    await asyncio.sleep(0)
    assert reports == [("a", 20), ("a", 30), ("b", 10), ("b", 20)]
    speaker.close()
    assert not stream.is_on


async def test_a_stopped_speaker_is_silent_immediately(system: Any) -> None:
    reports: list[tuple[str, float]] = []
    speaker = AudioOutput(system, lambda item, played: reports.append((item, played)))
    (stream,) = system.opened
    speaker.play("a", speech("one"))
    await stream.exchange(bytearray(stream.size))
    speaker.stop()
    assert not any(await stream.exchange(bytearray(b"x" * stream.size)))
    await asyncio.sleep(0)
    assert reports == [("a", 20)]


async def test_microphone_yields_blocks(system: Any) -> None:
    async with Microphone(system) as microphone:
        (stream,) = system.opened
        block = speech("one", ms_per_word=20)
        await stream.exchange(bytearray(block))
        async for received in microphone:
            assert received == block
            break
    assert not stream.is_on


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert "pip install 'batonkit[voice]'" in str(sounddevice())


def test_a_missing_sound_system_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "PortAudio library not found" in str(sounddevice())
