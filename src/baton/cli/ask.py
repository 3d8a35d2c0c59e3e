"""Open questions of a run, put to the person at the terminal."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from ..runner import Interrupt
from ..tools import Approval
from .show import Screen
from .start import json_or_text
from .wording import printable, shown_call, shown_value

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
