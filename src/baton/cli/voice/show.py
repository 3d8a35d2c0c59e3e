"""A live conversation in a terminal while it is held."""

from ...events import AgentResponded, Delta, Event, InterruptRaised, ResponseTruncated, TextDelta, UserMessageAdded
from ...realtime.events import (
    GuardrailTripped,
    SessionErrorReported,
    SessionReconnected,
    SessionReconnecting,
    SpeechStarted,
    TranscriptDelta,
)
from ...runner.result import to_interrupt
from ..ask import format_interrupt
from ..show import Screen
from ..wording import shortened


class VoiceScreen:
    """Shows what a Screen shows of every run, and what only live conversations have."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._is_midsentence = False
        self._held: list[UserMessageAdded] = []

    def show(self, event: Event | Delta) -> None:
        """Show one event or delta, or nothing if it tells a person nothing."""
        match event:
            case TranscriptDelta(speaker="agent"):
                self._is_midsentence = True
                self.screen.show(TextDelta(event.origin, event.text))
            case UserMessageAdded() if event.item_id:
                self._held.append(event)
            case AgentResponded():
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
            case ResponseTruncated():
                line(f"  ⊘ interrupted; heard: {shortened(event.heard_text) or 'nothing'}", "dim")
            case InterruptRaised():
                self.screen.show(event)
                line(f"? {event.agent}: {format_interrupt(to_interrupt(event))}", "bold yellow")
                line("  /answer and what you think of it: y, n, a (always), or why not; or any text or JSON", "dim")
            case GuardrailTripped():
                line(f"  ✗ stopped by {event.guardrail}: {shortened(event.reason)}", "red")
            case SessionErrorReported():
                line(f"  ✗ {event.code}: {shortened(event.message)}", "red")
            case SessionReconnecting():
                line(f"  … the connection is gone ({shortened(event.because)}); attempt {event.attempt}", "dim")
            case SessionReconnected():
                line("  … connected again", "dim")
            case SpeechStarted():
                self.screen.end_line()
            case _:
                self.screen.show(event)
