"""A run in a terminal while it happens: `Screen().show(event)` for every event and delta of a run."""

import re

from rich.console import Console

from ..events import (
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    CustomDelta,
    Delta,
    Event,
    InterruptRaised,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    RunCancelled,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    TextDelta,
    ToolReturned,
)
from ..handoffs import TRANSFER_TOOL
from ..messages import Content, ToolCall, Usage, media_of, text_of
from .wording import printable, shortened, shown_call, shown_usage, shown_value

_FLOOR = "bold cyan"
_PASSED = "magenta"
_WORKING = "yellow"
_QUIET = "dim"
_WRONG = "red"
_INDENT = "  "
_LINE_BREAK = re.compile(r"\n(?=.)", re.DOTALL)


class Screen:
    """Shows who has the floor, what is said, called and returned, and to whom control goes.

    What happens inside an agent, in a step or in an agent called as a tool, is indented.
    With `answers=False` the text that turns out to be the run's answer is left out, for those who print it elsewhere.
    """

    def __init__(self, console: Console | None = None, *, answers: bool = True) -> None:
        self.console = console or Console(highlight=False)
        self._shows_answers = answers
        self._floor: str = ""
        self._streaming = ""
        self._streamed: set[str] = set()
        self._muted: set[str] = set()
        self._is_thinking = False
        self._is_midline = False
        self._held: AgentResponded | None = None
        self._indent = ""

    def show(self, event: Event | Delta) -> None:
        """Show one event or delta, or nothing if it tells a person nothing."""
        if isinstance(event, TextDelta):
            self._stream(event)
        elif isinstance(event, Delta):
            self._show_delta(event)
        else:
            self._show_event(event)

    def line(self, text: str, style: str | None = None) -> None:
        """Write a line of one's own, below whatever is being written."""
        self.end_line()
        self.console.out(printable(text), style=style, highlight=False)

    def _line(self, text: str, style: str) -> None:
        """Write a line about whoever has the floor."""
        self.line(f"{self._indent}{text}", style)

    def usage(self, usage: Usage, *, seconds: float | None = None, label: str = "used") -> None:
        """Write what was consumed."""
        self.line(f"{label}: {shown_usage(usage, seconds)}", _QUIET)

    def cancelled(self) -> None:
        """Write that the person has stopped the run."""
        # The terminal itself has written ^C.
        self._is_midline = self._is_midline or self.console.is_terminal
        self.line("cancelled", _WRONG)

    def end_line(self) -> None:
        """End the line that is being written, if there is one."""
        if self._is_midline:
            self.console.out("", highlight=False)
            self._is_midline = False
        self._streaming = ""

    def _show_event(self, event: Event) -> None:
        match event:
            case RunStarted() | RunResumed():
                self._start_over()
            case AgentStarted():
                self._give_up_held()
                self._show_floor(event.origin)
            case AgentResponded():
                self._give_up_held()
                self._show_said(event)
            case ToolReturned():
                self._show_result(event)
            case ControlTransferred():
                self._give_up_held()
                self._show_floor(event.origin)
                self._line(_passed(event), _PASSED)
            case RunSuspended() | RunFailed() | RunCancelled() | InterruptRaised():
                # None of these leaves an answer, so what was held back is all there is to see.
                self._give_up_held()
                self.end_line()
            case _:
                self.end_line()

    def _start_over(self) -> None:
        # Activations are counted anew in every run, and a run that was stopped may have left half a sentence.
        self.end_line()
        self._floor = ""
        self._indent = ""
        self._held = None
        self._is_thinking = False
        self._streamed.clear()
        self._muted.clear()

    def _show_delta(self, delta: Delta) -> None:
        match delta:
            case ProgressDelta():
                self._show_floor(delta.origin)
                self._line(f"  … {_progress(delta)}", _QUIET)
            case CustomDelta():
                self._show_floor(delta.origin)
                self._line(f"  * {delta.name}: {shortened(shown_value(delta.data))}", _QUIET)
            case ReasoningDelta() if not self._is_thinking:
                self._show_floor(delta.origin)
                self._line("  … thinks", _QUIET)
                self._is_thinking = True
            case _:
                pass

    def _stream(self, delta: TextDelta) -> None:
        if not self._shows_answers:
            return
        speaker = delta.origin.id
        # Two agents that speak at once would be unreadable word by word: the second is shown when it has finished.
        if self._streaming not in ("", speaker):
            self._muted.add(speaker)
        if speaker not in self._muted:
            self._show_floor(delta.origin)
            self._streaming = speaker
            self._streamed.add(speaker)
            self._write(delta.text)

    def _show_said(self, said: AgentResponded) -> None:
        self._is_thinking = False
        speaker = said.origin.id
        was_streamed = speaker in self._streamed and speaker not in self._muted
        self._streamed.discard(speaker)
        self._muted.discard(speaker)
        text, calls = text_of(said.message.content), said.message.tool_calls
        if not self._shows_answers:
            if not calls and text:
                self._held = said
                return
            self._show_aside(said)
        elif text and not was_streamed:
            self._show_floor(said.origin)
            self._write(text)
        self.end_line()
        self._show_media(said.message.content)
        for call in calls:
            if not _only_asks_for_transfer(call):
                self._show_floor(said.origin)
                self._line(f"  ▸ {shown_call(call.name, call.arguments)}", _WORKING)

    def _show_aside(self, said: AgentResponded) -> None:
        """Text that is not the answer, where answers are printed elsewhere."""
        text = text_of(said.message.content)
        if text:
            self._show_floor(said.origin)
            self._line(f"  {shortened(text)}", _QUIET)

    def _show_result(self, event: ToolReturned) -> None:
        # An agent that was called as a tool has spoken before its caller gets the result.
        self._give_up_held()
        text = text_of(event.content)
        if not event.is_error and _is_word_of_transfer(event.tool_name, text):
            return
        self._show_floor(event.origin)
        mark, style = ("✗", _WRONG) if event.is_error else ("◂", _QUIET)
        self._line(f"  {mark} {event.tool_name}: {shortened(text)}", style)
        self._show_media(event.content)

    def _show_media(self, content: Content) -> None:
        for part in media_of(content):
            self._line(f"  [{type(part).__name__.lower()} {getattr(part, 'media_type', '')}]", _QUIET)

    def _show_floor(self, origin: Origin) -> None:
        if origin.id != self._floor:
            self._indent = _INDENT * _depth(origin)
            self._line(f"● {origin.agent}", _FLOOR)
            self._floor = origin.id

    def _give_up_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._show_aside(held)

    def _write(self, text: str) -> None:
        text = printable(text)
        if text:
            if self._indent:
                text = text if self._is_midline else self._indent + text
                text = _LINE_BREAK.sub(f"\n{self._indent}", text)
            # Past rich, which would turn tabs into spaces and takes its time for every token.
            self.console.file.write(text)
            self.console.file.flush()
            self._is_midline = not text.endswith("\n")


def _depth(origin: Origin) -> int:
    """Inside how many agents this activation is: its id has the place in each of them."""
    return origin.id.count("/") // 2


def _passed(event: ControlTransferred) -> str:
    payload = f" with {shortened(shown_value(event.payload))}" if event.payload is not None else ""
    if event.reason == "returned":
        return f"  ← back to {event.target}{payload}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"  → {event.target}{payload}{reason}"


def _progress(delta: ProgressDelta) -> str:
    pieces = [shortened(delta.text)] if delta.text else []
    if delta.done is not None:
        pieces.append(f"{delta.done:g}/{delta.total:g}" if delta.total is not None else f"{delta.done:g}")
    return " ".join(pieces) or "goes on"


def _only_asks_for_transfer(call: ToolCall) -> bool:
    """Whether a call says no more than the line about the transfer that follows it."""
    if call.name == TRANSFER_TOOL:
        return True
    return call.name.startswith("transfer_to_") and call.arguments.strip() in ("", "{}")


def _is_word_of_transfer(name: str, text: str) -> bool:
    if name == TRANSFER_TOOL:
        return True
    return text.startswith('{"assistant":')
