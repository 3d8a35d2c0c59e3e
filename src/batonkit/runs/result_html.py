"""A result as HTML, which notebooks display."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import msgspec

from .._wording import error_text, show
from ..log import AgentStarted, Event, keys
from ..log.events import Interrupt, payload_fields
from ..messages import Usage

_MAX_TEXT = 2000
_FIRST_AGENTS = 5
_LAST_AGENTS = 3
_CELL = ' style="text-align: left; white-space: pre-wrap"'


class ShownResult(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a result that are shown."""

    run_id: str
    status: str
    output: Any
    """The output of a completed run."""
    error: BaseException | None
    interrupts: Sequence[Interrupt]
    events: Sequence[Event]
    usage: Usage


def result_to_html(result: ShownResult) -> str:
    """Return a table: the agents that held control, the answer or open questions, and the cost."""
    rows = "".join([f"<tr><th{_CELL}>{title}</th><td{_CELL}>{value}</td></tr>" for title, value in _rows(result)])
    return f"<table>{rows}</table>"


def _rows(result: ShownResult) -> Iterator[tuple[str, str]]:
    """Yield the title and the content of each row, escaped."""
    yield "run", f"{_code(result.run_id)}, {result.status}"
    yield "agents", _text(_path(result))
    if result.status == "completed":
        yield "answer", _text(result.output if isinstance(result.output, str) else show(result.output))
    if result.error is not None:
        yield "error", _text(f"{type(result.error).__name__}: {error_text(result.error)}")
    for interrupt in result.interrupts:
        yield f"question {_code(interrupt.id)}", _text(f"{interrupt.agent}: {_question(interrupt)}")
    if result.status != "completed":
        answers = ", ".join([f"{interrupt.id!r}: …" for interrupt in result.interrupts])
        given = f", {{{answers}}}" if answers else ""
        yield "to go on", _code(f"await runner.resume({result.run_id!r}{given})")
    yield "usage", _text(_usage(result.usage))


def _path(result: ShownResult) -> str:
    """Return the agents that held control, in order."""
    started = [event for event in result.events if isinstance(event, AgentStarted)]
    names = [event.agent for event in started if not keys.is_nested(event.origin.id)]
    hidden = len(names) - _FIRST_AGENTS - _LAST_AGENTS
    if hidden > 0:
        names = [*names[:_FIRST_AGENTS], f"… {hidden} more …", *names[-_LAST_AGENTS:]]
    return " → ".join(names)


def _question(interrupt: Interrupt) -> str:
    fields = payload_fields(interrupt.payload)
    if fields.get("kind") == "approval" and interrupt.tool_call is not None:
        return f"allow {interrupt.tool_call.name}({interrupt.tool_call.arguments})?"
    question = fields.get("question", interrupt.payload)
    return question if isinstance(question, str) else msgspec.json.encode(question).decode()


def _usage(usage: Usage) -> str:
    calls = f"{usage.model_calls} model call{'' if usage.model_calls == 1 else 's'}"
    cost = [f"${usage.cost:.4g}"] if usage.cost else []
    unknown = [f"{usage.unpriced_calls} of unknown cost"] if usage.unpriced_calls else []
    return ", ".join([calls, *unknown, f"{usage.total_tokens:,} tokens", *cost])


def _text(text: str) -> str:
    return escape(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
