"""Sound that is made by rule: as long as it should be, loud where words are, the same each time."""

import pytest

from batonkit.realtime.voice_settings import AudioFormat, milliseconds_of
from batonkit.testing import silence, speech
from batonkit.testing.realtime.audio import loudness

FORMATS: list[AudioFormat] = ["pcm16", "g711_ulaw", "g711_alaw"]


@pytest.mark.parametrize("format", FORMATS)
def test_it_lasts_so_long_for_each_word(format: AudioFormat) -> None:
    audio = speech("one two  three", format=format, ms_per_word=120, pause_ms=30)
    assert milliseconds_of(len(audio), format) == 390
    assert audio.startswith(speech("one", format=format, ms_per_word=120))
    assert audio.endswith(silence(30, format=format))
    assert speech("", format=format) == b""


@pytest.mark.parametrize("format", FORMATS)
def test_words_are_loud_silence_is_not_and_words_sound_different(format: AudioFormat) -> None:
    assert loudness(speech("one", format=format), format) > 0.9
    assert loudness(silence(200, format=format), format) < 0.01
    assert speech("a", format=format) == speech("a", format=format) != speech("b", format=format)
