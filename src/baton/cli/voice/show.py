"""A live conversation in a terminal while it is held."""

from ...events import Asked, CutShort, Delta, Event, Heard, Said, TextDelta
from ...realtime.events import (
    GuardrailStopped,
    Reconnected,
    Reconnecting,
    SessionTrouble,
    SpeechStarted,
    TranscriptDelta,
)
from ...runner.result import interrupt_of
from ..ask import question_of
from ..show import Screen
from ..wording import shortened


class VoiceScreen:
    """Shows what a Screen shows of every run, and what only live conversations have."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._is_midsentence = False
        self._held: list[Heard] = []

    def show(self, event: Event | Delta) -> None:
        """Show one event or delta, or nothing if it tells a person nothing."""
        match event:
            case TranscriptDelta(speaker="agent"):
                self._is_midsentence = True
                self.screen.show(TextDelta(event.origin, event.text))
            case Heard() if event.item_id:
                self._held.append(event)
            case Said():
                self._is_midsentence = False
                self.screen.show(event)
            case _:
                self._show_rest(event)
        # What the user said is often written down when the answer to it has begun: it does not break into that.
        while self._held and not self._is_midsentence:
            self.screen.line(f"you › {self._held.pop(0).text}", "bold")

    def _show_rest(self, event: Event | Delta) -> None:
        line = self.screen.line
        match event:
            case CutShort():
                line(f"  ⊘ interrupted; heard: {shortened(event.heard) or 'nothing'}", "dim")
            case Asked():
                self.screen.show(event)
                line(f"? {event.agent}: {question_of(interrupt_of(event))}", "bold yellow")
                line("  /answer and what you think of it: y, n, a (always), or why not; or any text or JSON", "dim")
            case GuardrailStopped():
                line(f"  ✗ stopped by {event.guardrail}: {shortened(event.reason)}", "red")
            case SessionTrouble():
                line(f"  ✗ {event.code}: {shortened(event.message)}", "red")
            case Reconnecting():
                line(f"  … the connection is gone ({shortened(event.because)}); attempt {event.attempt}", "dim")
            case Reconnected():
                line("  … connected again", "dim")
            case SpeechStarted():
                self.screen.end_line()
            case _:
                self.screen.show(event)
