"""`baton runs resume`: go on with a stored run, and ask in the terminal for what it waits for."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from ..errors import AnswerError, RunError, quote_names
from ..log import Log
from ..runner import Interrupt, Runner
from ..runner.result import to_interrupt
from .ask import answers_to, understood
from .failures import SUSPENDED
from .run import Form, RunPrinter, outcome_of, print_questions
from .show import Screen
from .start import RunSetup
from .store import record_of


def resume_run(
    start: RunSetup, run_id: str, *, answers: Sequence[str], accept_changes: bool, form: Form, quiet: bool
) -> int:
    """Drive the run to its end, or to a question that nobody answers here; gives the exit code."""
    screen = Screen(Console(stderr=True, highlight=False), answers=False)
    printer = RunPrinter(form, screen, quiet=quiet)
    with asyncio.Runner() as loop:
        try:
            questions = loop.run(_open_questions(start.runner, run_id))
            given = _given(answers, questions)
            asked = _asked([each for each in questions if each.id not in given], screen=screen)
            given |= asked or {}
            while given or not questions:
                live = start.runner.stream_resume(run_id, given, accept_changes=accept_changes)
                code = outcome_of(start, live, loop, printer=printer)
                questions = live.result.interrupts if code == SUSPENDED else ()
                # Who did not answer the last time is not asked once more.
                asked = _asked(questions, screen=screen) if asked is not None else None
                given = asked or {}
                if not given:
                    printer.finish(live)
                if not questions:
                    return code
        finally:
            loop.run(start.runner.close())
    print_questions(questions, start, run_id=run_id)
    return SUSPENDED


async def _open_questions(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    record = await record_of(runner._require_store("baton runs resume"), run_id)
    if record.status == "completed":
        raise RunError(f"run `{run_id}` is completed; `baton runs fork` makes another of its beginning")
    events = await runner.events(run_id)
    return [to_interrupt(asked) for asked in Log(events).open_questions().values()]


def _given(answers: Sequence[str], questions: Sequence[Interrupt]) -> dict[str, Any]:
    """What the command line answers: `id=value`, or the value alone if there is only one question."""
    by_id: Mapping[str, Interrupt] = {each.id: each for each in questions}
    given: dict[str, Any] = {}
    for answer in answers:
        id, equals, text = answer.partition("=")
        if not (equals and id in by_id):
            if len(by_id) != 1 or "/ask" in id:
                open_ones = quote_names([*by_id])
                raise AnswerError(f"`{answer}` answers no open question; say --answer ID=VALUE; open are: {open_ones}")
            id, text = next(iter(by_id)), answer
        meant = understood(by_id[id], text.strip())
        if meant is None:
            raise AnswerError(f"`{answer}` says nothing clear about {id}; y allows a call, n or a reason does not")
        given[id] = meant[0]
    return given


def _asked(questions: Sequence[Interrupt], *, screen: Screen) -> dict[str, Any] | None:
    """What somebody at the terminal answers; None if nobody is there, or wants to."""
    try:
        return answers_to(questions, _read, screen=screen)
    except (EOFError, KeyboardInterrupt):
        screen.line("not answered", "red")
        return None


def _read(prompt: str) -> str:
    if sys.stdin.isatty():
        return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
