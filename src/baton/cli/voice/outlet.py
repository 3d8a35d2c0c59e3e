"""Where what agents say goes: to a speaker, to a file, to both or to neither."""

from collections import Counter
from collections.abc import Callable

from ...events import Delta, Event
from ...realtime.events import AudioDelta, PlaybackInterrupted
from ...realtime.settings import milliseconds_of
from .devices import AudioOutput
from .sound import Recording


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
