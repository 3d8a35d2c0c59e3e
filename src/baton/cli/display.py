"""A run in a terminal while it happens: `Screen().show(event)` for every event and delta of a run.

Values, calls and usage in the few words a line in a terminal has room for.

Open questions of a run, put to the person at the terminal.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec
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
from ..runner import Interrupt
from ..tools import Approval
from .targets import json_or_text

_LONGEST = 160
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control characters made visible, so that a model cannot move the cursor or recolour the screen."""
    return _CONTROL.sub(_visible, text)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, cut off where it gets too long."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def shown_value(value: Any) -> str:
    """Text as it is, anything else as JSON, and what is not JSON as Python shows it."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, NotImplementedError, msgspec.MsgspecError):
        return repr(value)


def shown_call(name: str, arguments: Any) -> str:
    """A call as code would write it: `get_weather(city="Rome")`. Arguments may be JSON text or what it says."""
    given: Any = arguments
    if isinstance(arguments, str):
        try:
            given = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return shortened(f"{name}({arguments})")
    if not isinstance(given, dict):
        return shortened(f"{name}({shown_value(given)})")
    named = cast(dict[str, Any], given)
    return shortened(f"{name}({', '.join(f'{key}={_quoted(value)}' for key, value in named.items())})")


def shown_usage(usage: Usage, seconds: float | None = None) -> str:
    """What was consumed: `3 model calls · 412 tokens in, 57 out · 1.2 s`."""
    calls = usage.model_calls
    pieces = [f"{calls} model call{'' if calls == 1 else 's'}"]
    if usage.total_tokens:
        pieces.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    elif calls:
        pieces.append("tokens not reported")
    if usage.cost:
        pieces.append(f"cost {usage.cost:.4g}")
    if seconds is not None:
        pieces.append(f"{seconds:.1f} s")
    return " · ".join(pieces)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0D:
        return ""
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _quoted(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, str) else shown_value(value)


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


ReadLine: TypeAlias = Callable[[str], str]
"""Shows a prompt and gives the line a person types. Raises EOFError when there is no more."""

_WAYS_TO_TELL = """It may have been done: {"result": …}, {"error": "…"} or {"run_again": true}"""
_YES, _NO, _ALWAYS = ("y", "yes"), ("n", "no"), ("a", "always")


def format_interrupt(interrupt: Interrupt) -> str:
    """The question in one line or, if its author wrote more, in several."""
    approval = _approval_in(interrupt.payload)
    if approval is not None:
        return f"allow {shown_call(str(approval.get('tool', '')), approval.get('arguments', {}))}?"
    if _kind_of(interrupt.payload) == "unknown_outcome":
        return f"what became of {_shown_call_in(interrupt)}? {_WAYS_TO_TELL}"
    about = (
        f" (about {shown_call(interrupt.tool_call.name, interrupt.tool_call.arguments)})" if interrupt.tool_call else ""
    )
    asked = "waits for an answer" if interrupt.payload is None else printable(shown_value(interrupt.payload))
    return f"{asked}{about}"


def answers_to(interrupts: Sequence[Interrupt], read: ReadLine, *, screen: Screen) -> dict[str, Any]:
    """A person's answers, by the id of the question."""
    answers: dict[str, Any] = {}
    for interrupt in interrupts:
        screen.line(f"? {interrupt.agent}: {format_interrupt(interrupt)}", "bold yellow")
        is_approval = _approval_in(interrupt.payload) is not None
        prompt = "y, n, a (always), or why not › " if is_approval else "answer › "
        while (answer := understood(interrupt, read(prompt).strip())) is None:
            screen.line("  y allows it, n or a reason does not" if is_approval else '  "" is an empty answer', "dim")
        answers[interrupt.id] = answer[0]
    return answers


def understood(interrupt: Interrupt, line: str) -> tuple[Any] | None:
    """What a line means as the answer to this question; None if that is not clear."""
    return approval_from(line) if _approval_in(interrupt.payload) is not None else answer_from(line)


def approval_from(line: str) -> tuple[Approval] | None:
    """What a person's word on a call means; None if that is not clear. Only a bare yes allows anything."""
    first, _, rest = line.partition(" ")
    word = first.rstrip(",.:;!").lower()
    rest = rest.strip()
    if not line or (rest and word in (*_YES, *_ALWAYS)):
        return None
    if word in _YES:
        return (Approval(True),)
    if word in _ALWAYS:
        return (Approval(True, always=True),)
    return (Approval(False, rest if word in _NO else line),)


def answer_from(line: str) -> tuple[Any] | None:
    """A person's answer to any other question: JSON where it is JSON, text otherwise; None if nothing was said."""
    return (json_or_text(line),) if line else None


def _approval_in(payload: Any) -> dict[str, Any] | None:
    return cast(dict[str, Any], payload) if _kind_of(payload) == "approval" else None


def _kind_of(payload: Any) -> Any:
    return cast(dict[str, Any], payload).get("kind") if isinstance(payload, dict) else None


def _shown_call_in(interrupt: Interrupt) -> str:
    return (
        shown_call(interrupt.tool_call.name, interrupt.tool_call.arguments)
        if interrupt.tool_call is not None
        else "the call"
    )
