"""Displays runs in a terminal, formats values for it, and asks the user open interrupts."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, assert_never, cast

import msgspec
from rich.console import Console

from ..events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    AnyEvent,
    ControlTransferred,
    CustomDelta,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    TextDelta,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
)
from ..handoffs import TRANSFER_TOOL
from ..messages import Content, ToolCall, Usage, media_of, text_of
from ..runner import Interrupt
from ..tools import Approval
from .targets import parse_json_or_text

_MAX_LENGTH = 160
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Make control characters visible, so that a model cannot control the terminal."""
    return _CONTROL.sub(_escape, text)


def shorten(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Put a text on one line and truncate it."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= max_length else f"{flat[: max_length - 1]}…"


def format_value(value: Any) -> str:
    """Format a value: text as it is, else as JSON, else its repr."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, NotImplementedError, msgspec.MsgspecError):
        return repr(value)


def format_call(name: str, arguments: Any) -> str:
    """Format a call like code: `get_weather(city="Rome")`. Arguments may be JSON text."""
    given: Any = arguments
    if isinstance(arguments, str):
        try:
            given = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return shorten(f"{name}({arguments})")
    if not isinstance(given, dict):
        return shorten(f"{name}({format_value(given)})")
    fields = cast(dict[str, Any], given)
    return shorten(f"{name}({', '.join(f'{key}={_quote(value)}' for key, value in fields.items())})")


def format_usage(usage: Usage, seconds: float | None = None) -> str:
    """Format usage: `3 model calls · 412 tokens in, 57 out · 1.2 s`."""
    calls = usage.model_calls
    parts = [f"{calls} model call{'' if calls == 1 else 's'}"]
    if usage.total_tokens:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    elif calls:
        parts.append("tokens not reported")
    if usage.cost:
        parts.append(f"cost {usage.cost:.4g}")
    if seconds is not None:
        parts.append(f"{seconds:.1f} s")
    return " · ".join(parts)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0D:
        return ""
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _quote(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, str) else format_value(value)


_ACTIVE = "bold cyan"
_TRANSFERRED = "magenta"
_CALLED = "yellow"
_DIM = "dim"
_FAILED = "red"
_INDENT = "  "
_LINE_BREAK = re.compile(r"\n(?=.)", re.DOTALL)


class Screen:
    """Displays the events and deltas of a run.

    Shows the active agent, text, tool calls, results and transfers. Inner agents are indented.

    Args:
        console: Where to write; by default stdout.
        answers: Show the text of the run's answer. Pass False if it is printed elsewhere.
    """

    def __init__(self, console: Console | None = None, *, answers: bool = True) -> None:
        self.console = console or Console(highlight=False)
        self._shows_answers = answers
        self._active: str = ""
        self._streaming = ""
        self._streamed: set[str] = set()
        self._muted: set[str] = set()
        self._is_thinking = False
        self._is_midline = False
        self._held: AgentResponded | None = None
        self._indent = ""

    def show(self, event: Event | Delta) -> None:
        """Display one event or delta, if it concerns the user."""
        if isinstance(event, TextDelta):
            self._stream(event)
        elif isinstance(event, Delta):
            self._show_delta(event)
        else:
            self._show_event(cast("AnyEvent", event))

    def line(self, text: str, style: str | None = None) -> None:
        """Write a line below the current output."""
        self.end_line()
        self.console.out(printable(text), style=style, highlight=False)

    def _line(self, text: str, style: str) -> None:
        """Write a line at the active agent's indentation."""
        self.line(f"{self._indent}{text}", style)

    def usage(self, usage: Usage, *, seconds: float | None = None, label: str = "used") -> None:
        """Write usage."""
        self.line(f"{label}: {format_usage(usage, seconds)}", _DIM)

    def cancelled(self) -> None:
        """Write that the run was cancelled."""
        # The terminal has echoed ^C.
        self._is_midline = self._is_midline or self.console.is_terminal
        self.line("cancelled", _FAILED)

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if self._is_midline:
            self.console.out("", highlight=False)
            self._is_midline = False
        self._streaming = ""

    def _show_event(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() | RunResumed():
                self._reset()
            case AgentStarted():
                self._show_held()
                self._show_active(event.origin)
            case AgentResponded():
                self._show_held()
                self._show_response(event)
            case ToolReturned():
                self._show_result(event)
            case ControlTransferred():
                self._show_held()
                self._show_active(event.origin)
                self._line(_format_transfer(event), _TRANSFERRED)
            case RunSuspended() | RunFailed() | RunCancelled() | InterruptRaised():
                # There will be no answer, so the held text is shown.
                self._show_held()
                self.end_line()
            case (
                RunCompleted()
                | AgentFinished()
                | UserMessageAdded()
                | ResponseTruncated()
                | StepCompleted()
                | InterruptAnswered()
                | UnknownEvent()
            ):
                self.end_line()
            case _:
                assert_never(event)

    def _reset(self) -> None:
        # Activation ids restart with each run, and a stopped run may have left half a line.
        self.end_line()
        self._active = ""
        self._indent = ""
        self._held = None
        self._is_thinking = False
        self._streamed.clear()
        self._muted.clear()

    def _show_delta(self, delta: Delta) -> None:
        match delta:
            case ProgressDelta():
                self._show_active(delta.origin)
                self._line(f"  … {_progress(delta)}", _DIM)
            case CustomDelta():
                self._show_active(delta.origin)
                self._line(f"  * {delta.name}: {shorten(format_value(delta.data))}", _DIM)
            case ReasoningDelta() if not self._is_thinking:
                self._show_active(delta.origin)
                self._line("  … thinking", _DIM)
                self._is_thinking = True
            case _:
                # Tool call deltas tell a user nothing; `VoiceScreen` shows those of live sessions.
                pass

    def _stream(self, delta: TextDelta) -> None:
        if not self._shows_answers:
            return
        activation = delta.origin.id
        # Interleaved streams are unreadable: the second is shown when it is complete.
        if self._streaming not in ("", activation):
            self._muted.add(activation)
        if activation not in self._muted:
            self._show_active(delta.origin)
            self._streaming = activation
            self._streamed.add(activation)
            self._write(delta.text)

    def _show_response(self, response: AgentResponded) -> None:
        self._is_thinking = False
        activation = response.origin.id
        was_streamed = activation in self._streamed and activation not in self._muted
        self._streamed.discard(activation)
        self._muted.discard(activation)
        text, calls = text_of(response.message.content), response.message.tool_calls
        if not self._shows_answers:
            if not calls and text:
                self._held = response
                return
            self._show_aside(response)
        elif text and not was_streamed:
            self._show_active(response.origin)
            self._write(text)
        self.end_line()
        self._show_media(response.message.content)
        for call in calls:
            if not _is_plain_transfer(call):
                self._show_active(response.origin)
                self._line(f"  ▸ {format_call(call.name, call.arguments)}", _CALLED)

    def _show_aside(self, response: AgentResponded) -> None:
        """Show text that is not the run's answer, where answers are printed elsewhere."""
        text = text_of(response.message.content)
        if text:
            self._show_active(response.origin)
            self._line(f"  {shorten(text)}", _DIM)

    def _show_result(self, event: ToolReturned) -> None:
        # An agent called as a tool responds before its caller gets the result.
        self._show_held()
        text = text_of(event.content)
        if not event.is_error and _is_transfer_result(event.tool_name, text):
            return
        self._show_active(event.origin)
        mark, style = ("✗", _FAILED) if event.is_error else ("◂", _DIM)
        self._line(f"  {mark} {event.tool_name}: {shorten(text)}", style)
        self._show_media(event.content)

    def _show_media(self, content: Content) -> None:
        for part in media_of(content):
            self._line(f"  [{type(part).__name__.lower()} {getattr(part, 'media_type', '')}]", _DIM)

    def _show_active(self, origin: Origin) -> None:
        if origin.id != self._active:
            self._indent = _INDENT * _nesting(origin)
            self._line(f"● {origin.agent}", _ACTIVE)
            self._active = origin.id

    def _show_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._show_aside(held)

    def _write(self, text: str) -> None:
        text = printable(text)
        if text:
            if self._indent:
                text = text if self._is_midline else self._indent + text
                text = _LINE_BREAK.sub(f"\n{self._indent}", text)
            # Bypass rich, which expands tabs and is slow for single tokens.
            self.console.file.write(text)
            self.console.file.flush()
            self._is_midline = not text.endswith("\n")


def _nesting(origin: Origin) -> int:
    """Return the nesting depth of an activation, from its id."""
    return origin.id.count("/") // 2


def _format_transfer(event: ControlTransferred) -> str:
    payload = f" with {shorten(format_value(event.payload))}" if event.payload is not None else ""
    if event.reason == "returned":
        return f"  ← back to {event.target}{payload}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"  → {event.target}{payload}{reason}"


def _progress(delta: ProgressDelta) -> str:
    parts = [shorten(delta.text)] if delta.text else []
    if delta.done is not None:
        parts.append(f"{delta.done:g}/{delta.total:g}" if delta.total is not None else f"{delta.done:g}")
    return " ".join(parts) or "in progress"


def _is_plain_transfer(call: ToolCall) -> bool:
    """Return whether the line about the transfer says all that the call does."""
    if call.name == TRANSFER_TOOL:
        return True
    return call.name.startswith("transfer_to_") and call.arguments.strip() in ("", "{}")


def _is_transfer_result(name: str, text: str) -> bool:
    if name == TRANSFER_TOOL:
        return True
    return text.startswith('{"assistant":')


ReadLine: TypeAlias = Callable[[str], str]
"""Shows a prompt and returns the line typed. Raises EOFError at the end of input."""

_OUTCOME_FORMS = """It may have been executed. Answer {"result": …}, {"error": "…"} or {"run_again": true}"""
_YES, _NO, _ALWAYS = ("y", "yes"), ("n", "no"), ("a", "always")


def format_interrupt(interrupt: Interrupt) -> str:
    """Format an interrupt as a question."""
    approval = _approval_payload(interrupt.payload)
    if approval is not None:
        return f"allow {format_call(str(approval.get('tool', '')), approval.get('arguments', {}))}?"
    if _kind(interrupt.payload) == "unknown_outcome":
        return f"what was the result of {_format_tool_call(interrupt)}? {_OUTCOME_FORMS}"
    context = (
        f" (about {format_call(interrupt.tool_call.name, interrupt.tool_call.arguments)})"
        if interrupt.tool_call
        else ""
    )
    question = "an answer is needed" if interrupt.payload is None else printable(format_value(interrupt.payload))
    return f"{question}{context}"


def ask_interrupts(interrupts: Sequence[Interrupt], read: ReadLine, *, screen: Screen) -> dict[str, Any]:
    """Ask the user for answers; return them by interrupt id."""
    answers: dict[str, Any] = {}
    for interrupt in interrupts:
        screen.line(f"? {interrupt.agent}: {format_interrupt(interrupt)}", "bold yellow")
        is_approval = _approval_payload(interrupt.payload) is not None
        prompt = "y, n, a (always), or a reason to decline › " if is_approval else "answer › "
        while (answer := parse_reply(interrupt, read(prompt).strip())) is None:
            screen.line("  y approves; n or a reason declines" if is_approval else '  "" is an empty answer', "dim")
        answers[interrupt.id] = answer[0]
    return answers


def parse_reply(interrupt: Interrupt, line: str) -> tuple[Any] | None:
    """Parse the answer to an interrupt, in a tuple; None if it is unclear."""
    return parse_approval(line) if _approval_payload(interrupt.payload) is not None else parse_answer(line)


def parse_approval(line: str) -> tuple[Approval] | None:
    """Parse the answer to an approval; None if it is unclear. Only a bare yes approves."""
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


def parse_answer(line: str) -> tuple[Any] | None:
    """Parse any other answer as JSON or text; None if it is empty."""
    return (parse_json_or_text(line),) if line else None


def _approval_payload(payload: Any) -> dict[str, Any] | None:
    return cast(dict[str, Any], payload) if _kind(payload) == "approval" else None


def _kind(payload: Any) -> Any:
    return cast(dict[str, Any], payload).get("kind") if isinstance(payload, dict) else None


def _format_tool_call(interrupt: Interrupt) -> str:
    return (
        format_call(interrupt.tool_call.name, interrupt.tool_call.arguments)
        if interrupt.tool_call is not None
        else "the call"
    )
