"""Displays runs in a terminal, formats values for it, and asks the user open interrupts."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, assert_never, cast

import msgspec
from rich.console import Console

from .. import log as events
from .._wording import printable
from ..errors import AnswerError
from ..handoffs import TRANSFER_TOOL
from ..log import AnyEvent, Delta, Event, InterruptRaised, Origin, keys
from ..log.event import RUN_ORIGIN
from ..log.events import payload_fields
from ..messages import Content, ToolCall, Usage, media_of, text_of
from ..runs import Dismiss, Interrupt
from ..runs.answers import answer_events, dismissed_call
from ..tools import Approval
from .cli_options import parse_json_or_text
from .progress import Spinner

_MAX_LENGTH = 160
_MAX_ACTIVITY = 40


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
    given = parse_json_or_text(arguments) if isinstance(arguments, str) else arguments
    if isinstance(given, dict):
        fields = cast(dict[str, Any], given)
        given = ", ".join(f"{key}={_quote(value)}" for key, value in fields.items())
    return shorten(f"{name}({format_value(given)})")


def format_usage(usage: Usage, seconds: float | None = None) -> str:
    """Format usage: `3 model calls · 412 tokens in, 57 out · 1.2 s`; without tokens if the model reports none."""
    calls = usage.model_calls
    parts = [f"{calls} model call{'' if calls == 1 else 's'}"]
    if usage.total_tokens:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if cost := format_cost(usage):
        parts.append(cost)
    if seconds is not None:
        parts.append(f"{seconds:.1f} s")
    return " · ".join(parts)


def format_cost(usage: Usage) -> str:
    """Format a cost: `$0.0123 + 2 calls of unknown cost`, or "" if no call had one."""
    unknown = ""
    if usage.unpriced_calls:
        unknown = f"{usage.unpriced_calls} call{'' if usage.unpriced_calls == 1 else 's'} of unknown cost"
    return " + ".join(filter(None, [f"${usage.cost:.4g}" if usage.cost else "", unknown]))


def _quote(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, str) else format_value(value)


_LINE_BREAK = re.compile(r"\n(?=.)", re.DOTALL)


class Screen:
    """Displays the events and deltas of a run.

    Shows the active agent, text, tool calls, results and transfers. Inner agents are indented.
    """

    def __init__(self, console: Console | None = None, *, answers: bool = True) -> None:
        self.console = console or Console(highlight=False)
        self._shows_answers = answers
        self._is_midline = False
        self.spinner = Spinner(self.console)
        self._reset()

    def show(self, event: Event | Delta) -> None:
        """Display one event or delta, if it concerns the user."""
        if isinstance(event, Delta):
            self._show_delta(event)
        else:
            self._show_event(cast("AnyEvent", event))
            if label := _activity(cast("AnyEvent", event)):
                self.spinner.set(shorten(label, _MAX_ACTIVITY))

    def line(self, text: str, style: str | None = None) -> None:
        """Write a line below the current output."""
        self.end_line()
        self.console.out(printable(text), style=style, highlight=False)

    def read(self, prompt: str) -> str:
        """Read a line, stripped, from the terminal or from stdin. Raises EOFError at the end."""
        self.end_line()
        if not sys.stdin.isatty():
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.strip()
        try:
            return input(prompt).strip()
        except (EOFError, KeyboardInterrupt):
            self.line("")
            raise

    def _line(self, origin: Origin, text: str, style: str) -> None:
        """Write an indented line below the name of the agent."""
        self._show_active(origin)
        self.line(f"{self._indent}  {text}", style)

    def usage(self, usage: Usage, *, seconds: float | None = None, label: str = "used") -> None:
        """Write usage."""
        self.line(f"{label}: {format_usage(usage, seconds)}", "dim")

    def line_entered(self, typed: str) -> None:
        """Continue on a new line, because the user has typed one."""
        self._is_midline = False
        self.spinner.leave(printable(typed))

    def cancelled(self) -> None:
        """Write that the run was cancelled."""
        # The terminal has echoed ^C.
        self._is_midline = self._is_midline or self.console.is_terminal
        self.line("cancelled", "red")

    def end_line(self) -> None:
        """End the current line, if there is one."""
        self.spinner.clear()
        if self._is_midline:
            self.console.out("", highlight=False)
            self._is_midline = False
        self._streaming = ""

    def _show_event(self, event: AnyEvent) -> None:  # noqa: C901
        match event:
            case events.RunStarted() | events.RunResumed():
                self._reset()
            case events.AgentStarted():
                self._show_held()
                self._show_active(event.origin)
            case events.AgentResponded():
                self._show_held()
                self._show_response(event)
            case events.ToolReturned():
                self._show_result(event)
            case events.ControlTransferred():
                self._show_held()
                self._line(event.origin, _format_transfer(event), "magenta")
            case events.HistoryCompacted():
                self._line(event.origin, "… the conversation so far was summarized", "dim")
            case events.TaskOpened():
                self._line(event.origin, f"  task of {event.task.agent} until it is finished", "magenta")
            case events.TaskEnded():
                self._show_held()
                self._line(event.origin, _format_ended_task(event), "magenta")
            case events.RunSuspended() | events.RunFailed() | events.RunCancelled() | events.InterruptRaised():
                # There will be no answer, so the held text is shown.
                self._show_held()
                self.end_line()
            case events.UserMessageAdded():
                self._show_held()
                self.end_line()
                if event.message_id:
                    # It was sent elsewhere, or with a resumption; speech is shown by the voice command.
                    self._line(event.origin, f"user: {event.text}", "cyan")
            case (
                events.RunCompleted()
                | events.AgentFinished()
                | events.ResponseTruncated()
                | events.StepCompleted()
                | events.InterruptAnswered()
                | events.UnknownEvent()
            ):
                self.end_line()
            case _:
                assert_never(event)

    def _reset(self) -> None:
        # Activation ids restart with each run, and a stopped run may have left half a line.
        self.end_line()
        self._active: str = ""
        self._indent = ""
        self._held: events.AgentResponded | None = None
        self._is_thinking = False
        self._streamed: set[str] = set()
        self._muted: set[str] = set()

    def _show_delta(self, delta: Delta) -> None:
        match delta:
            case events.TextDelta() if self._shows_answers:
                self._stream(delta)
            case events.ProgressDelta():
                self._line(delta.origin, f"… {_progress(delta)}", "dim")
            case events.CustomDelta():
                self._line(delta.origin, f"* {delta.name}: {shorten(format_value(delta.data))}", "dim")
            case events.ResponseRestarted():
                self._restart(delta.origin)
            case events.ReasoningDelta() if not self._is_thinking:
                self._line(delta.origin, "… thinking", "dim")
                self._is_thinking = True
            case _:
                # Tool call deltas tell a user nothing; `VoiceScreen` shows those of live sessions.
                pass

    def _restart(self, origin: Origin) -> None:
        self._is_thinking = False
        if origin.id in self._streamed and origin.id not in self._muted:
            self._streamed.discard(origin.id)
            self._line(origin, "… the response was interrupted and starts again", "dim")

    def _stream(self, delta: events.TextDelta) -> None:
        activation = delta.origin.id
        # Interleaved streams are unreadable: the second is shown when it is complete.
        if self._streaming not in ("", activation):
            self._muted.add(activation)
        if activation not in self._muted:
            self._show_active(delta.origin)
            self._streaming = activation
            self._streamed.add(activation)
            self._write(delta.text)

    def _show_response(self, response: events.AgentResponded) -> None:
        self._is_thinking = False
        activation = response.origin.id
        was_streamed = activation in self._streamed and activation not in self._muted
        self._streamed.discard(activation)
        self._muted.discard(activation)
        text = text_of(response.message.content)
        calls = response.message.tool_calls
        if not self._shows_answers:
            self._held = response
            if text and not calls:
                return
            self._show_held()
        elif text and not was_streamed:
            self._show_active(response.origin)
            self._write(text)
        self.end_line()
        self._show_media(response.origin, response.message.content)
        for call in calls:
            if not _is_plain_transfer(call):
                self._line(response.origin, f"▸ {format_call(call.name, call.arguments)}", "yellow")

    def _show_result(self, event: events.ToolReturned) -> None:
        # An agent called as a tool responds before its caller gets the result.
        self._show_held()
        text = text_of(event.content)
        is_transfer = event.tool_name == TRANSFER_TOOL or text.startswith('{"assistant":')
        if is_transfer and not event.is_error:
            return
        if event.is_task_call and not event.is_error:
            return
        mark, style = ("✗", "red") if event.is_error else ("◂", "dim")
        self._line(event.origin, f"{mark} {event.tool_name}: {shorten(text)}", style)
        self._show_media(event.origin, event.content)

    def _show_media(self, origin: Origin, content: Content) -> None:
        for part in media_of(content):
            self._line(origin, f"[{type(part).__name__.lower()} {getattr(part, 'media_type', '')}]", "dim")

    def _show_active(self, origin: Origin) -> None:
        if origin.id != self._active:
            self._indent = "  " * keys.depth(origin.id)
            self.line(f"{self._indent}● {origin.agent}", "bold cyan")
            self._active = origin.id

    def _show_held(self) -> None:
        """Show text that is not the run's answer, where answers are printed elsewhere."""
        held = self._held
        self._held = None
        if held is not None and (text := text_of(held.message.content)):
            self._line(held.origin, shorten(text), "dim")

    def _write(self, text: str) -> None:
        text = printable(text)
        if text:
            if self._indent:
                text = text if self._is_midline else self._indent + text
                text = _LINE_BREAK.sub(f"\n{self._indent}", text)
            self._is_midline = not text.endswith("\n")
            self.spinner.clear(is_midline=self._is_midline)
            # Bypass rich, which expands tabs and is slow for single tokens.
            self.console.file.write(text)
            self.console.file.flush()


def _activity(event: AnyEvent) -> str:
    """Return the tools or the agent at work after an event; "" if that does not change."""
    if isinstance(event, events.AgentResponded):
        return ", ".join(call.name for call in event.message.tool_calls if not _is_plain_transfer(call))
    if isinstance(event, events.AgentStarted | events.ToolReturned):
        return event.origin.agent
    return event.target if isinstance(event, events.ControlTransferred) else ""


def _format_transfer(event: events.ControlTransferred) -> str:
    payload = f" with {shorten(format_value(event.payload))}" if event.payload is not None else ""
    if event.reason == "returned":
        return f"← back to {event.target}{payload}"
    reason = f" ({event.reason})" if event.reason else ""
    return f"→ {event.target}{payload}{reason}"


def _format_ended_task(event: events.TaskEnded) -> str:
    result = f": {shorten(format_value(event.result))}" if event.outcome == "finished" else ""
    reason = f": {shorten(event.reason)}" if event.reason else ""
    return f"task of {event.task.agent} {event.outcome}{result}{reason}"


def _progress(delta: events.ProgressDelta) -> str:
    parts = [shorten(delta.text)] if delta.text else []
    if delta.done is not None:
        parts.append(f"{delta.done:g}/{delta.total:g}" if delta.total is not None else f"{delta.done:g}")
    return " ".join(parts) or "in progress"


def _is_plain_transfer(call: ToolCall) -> bool:
    """Return whether the line about the transfer says all that the call does."""
    has_no_arguments = call.arguments.strip() in ("", "{}")
    return call.name == TRANSFER_TOOL or (call.name.startswith("transfer_to_") and has_no_arguments)


_OUTCOME_FORMS = """It may have been executed. Answer {"result": …}, {"error": "…"} or {"run_again": true}"""
DISMISS = "/dismiss"
"""The command for a question that the user does not want to answer."""
_YES = ("y", "yes")
_NO = ("n", "no")
_ALWAYS = ("a", "always")
_PUNCTUATION = ",.:;!"
_APPROVAL_PROMPT = "y, n, a (always), or n and a reason › ", "y approves; n, or n and a reason, declines"


def format_interrupt(interrupt: Interrupt) -> str:
    """Format an interrupt as a question."""
    payload = interrupt.payload
    call = interrupt.tool_call
    about = format_call(call.name, call.arguments) if call is not None else ""
    fields = payload_fields(payload)
    if fields.get("kind") == "approval":
        return f"allow {format_call(str(fields.get('tool', '')), fields.get('arguments', {}))}?"
    if fields.get("kind") == "unknown_outcome":
        return f"what was the result of {about or 'the call'}? {_OUTCOME_FORMS}"
    if fields.get("kind") == "question":
        return printable(str(fields.get("text", "")))
    question = "an answer is needed" if payload is None else printable(format_value(payload))
    return f"{question} (about {about})" if about else question


def ask_interrupts(
    interrupts: Sequence[Interrupt], answers: dict[str, Any], *, screen: Screen, commands: Collection[str]
) -> str | None:
    """Ask the user, and add each valid answer to `answers` by interrupt id.

    The user may enter `/dismiss`, or `/dismiss` and a reason, instead of an answer.

    Returns:
        None if the user answered all questions; else the command that was entered, or "" if the input ended.
    """
    try:
        for interrupt in interrupts:
            if interrupt.id in answers or _is_dismissed(interrupt, interrupts, answers):
                continue
            screen.line(f"? {interrupt.agent}: {format_interrupt(interrupt)}", "bold yellow")
            prompt, hint = _APPROVAL_PROMPT if _is_approval(interrupt) else ("answer › ", '"" is an empty answer')
            while interrupt.id not in answers:
                line = screen.read(prompt)
                if line in commands:
                    return line
                try:
                    answers |= _read_answer(interrupt, line)
                except AnswerError as error:
                    screen.line(f"  {str(error) or hint}", "dim")
    except (EOFError, KeyboardInterrupt):
        return ""
    return None


def _is_dismissed(interrupt: Interrupt, interrupts: Sequence[Interrupt], answers: Mapping[str, Any]) -> bool:
    """Return whether the call that asks has been dismissed at another one of its questions."""
    dismissed = [each for each in interrupts if isinstance(answers.get(each.id), Dismiss)]
    return any(keys.contains(dismissed_call(each.id, each.tool_call), interrupt.id) for each in dismissed)


def _read_answer(interrupt: Interrupt, line: str) -> dict[str, Any]:
    """Parse and validate an answer. Raises AnswerError, without a message if it is unclear."""
    if line.partition(" ")[0] == DISMISS:
        dismissed_call(interrupt.id, interrupt.tool_call)
        reason = line.partition(" ")[2].strip()
        return {interrupt.id: Dismiss(reason) if reason else Dismiss()}
    # In a conversation a text without y or n may be meant for the team.
    is_bare_text = _is_approval(interrupt) and _first_word(line) not in (*_YES, *_NO, *_ALWAYS)
    reply = None if is_bare_text else parse_reply(interrupt, line)
    if reply is None:
        raise AnswerError
    answers = {interrupt.id: reply[0]}
    raised = InterruptRaised(interrupt.id, RUN_ORIGIN, 0.0, interrupt.payload, interrupt.tool_call, interrupt.schema)
    answer_events({interrupt.id: raised}, answers)
    return answers


def parse_reply(interrupt: Interrupt, line: str) -> tuple[Any] | None:
    """Parse the answer to an interrupt, in a tuple; None if it is unclear."""
    if _is_approval(interrupt):
        return _parse_approval(line)
    return (parse_json_or_text(line),) if line else None


def _first_word(line: str) -> str:
    return line.partition(" ")[0].rstrip(_PUNCTUATION).lower()


def _parse_approval(line: str) -> tuple[Approval] | None:
    """Parse the answer to an approval; only a bare yes approves."""
    word = _first_word(line)
    rest = line.partition(" ")[2].strip()
    if not line or (rest and word in (*_YES, *_ALWAYS)):
        return None
    if word in (*_YES, *_ALWAYS):
        return (Approval(True, always=word in _ALWAYS),)
    return (Approval(False, rest if word in _NO else line),)


def _is_approval(interrupt: Interrupt) -> bool:
    return payload_fields(interrupt.payload).get("kind") == "approval"
