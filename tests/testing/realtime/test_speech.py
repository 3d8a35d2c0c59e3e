"""Sound that is made by rule: as long as it should be, loud where words are, the same each time."""

from array import array

import pytest

from baton.realtime.settings import AudioFormat, milliseconds_of
from baton.testing import speech_like
from baton.testing.realtime.speech import silence


@pytest.mark.parametrize("format", ["pcm16", "g711_ulaw", "g711_alaw"])
def test_it_lasts_so_long_for_each_word(format: AudioFormat) -> None:
    audio = speech_like("one two  three", format=format, ms_per_word=120)
    assert milliseconds_of(len(audio), format) == 360
    assert audio.startswith(speech_like("one", format=format, ms_per_word=120))
    assert audio.endswith(silence(30, format=format))
    assert speech_like("", format=format) == b""


def test_a_word_is_loud_and_then_quiet_and_sounds_like_no_other() -> None:
    samples = array("h", speech_like("one", ms_per_word=200))
    loud, quiet = samples[: 24 * 150], samples[24 * 150 :]
    assert max(loud) > 10_000
    assert min(loud) < -10_000
    assert not any(quiet)
    assert speech_like("one") == speech_like("one") != speech_like("two")
