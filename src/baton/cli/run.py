"""`baton run`: one run, its answer on stdout and everything else on stderr."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import click
from msgspec.structs import asdict
from rich.console import Console

from ..context.values import to_json_value
from ..errors import NotEncodableError
from ..events import Delta, Event, encode_event, encode_log
from ..messages import Usage
from ..runner import Interrupt, RunResult, RunStream, RunUsage
from .display import Screen, format_interrupt, printable, shown_value
from .errors import CANCELLED, SUSPENDED
from .targets import RunSetup, result_of, watch

Form: TypeAlias = Literal["text", "json", "events"]


def run_once(start: RunSetup, text: str, *, form: Form, quiet: bool) -> int:
    """Run the team on this text and print what comes of it; gives the exit code. Raises what ends the run."""
    live = start.runner.stream(text, values=start.values, limits=start.limits, thread=start.thread)
    printer = RunPrinter(form, Screen(Console(stderr=True, highlight=False), answers=False), quiet=quiet)
    with asyncio.Runner() as loop:
        try:
            code = outcome_of(start, live, loop, printer=printer)
        finally:
            loop.run(start.runner.close())
    printer.finish(live)
    if code == SUSPENDED:
        print_questions(live.result.interrupts, start, run_id=live.run_id)
    return code


def outcome_of(start: RunSetup, live: RunStream[Any], loop: asyncio.Runner, *, printer: "RunPrinter") -> int:
    """Drive a run and show it; gives the exit code. Raises what ends the run."""
    try:
        loop.run(watch(live, printer.show))
    except KeyboardInterrupt:
        printer.cancelled()
        return CANCELLED
    except Exception as error:  # noqa: BLE001 - raised again, in words that fit the command line
        printer.finish(live)
        raise start.explained(error, live)
    return SUSPENDED if live.result.status == "suspended" else 0


class RunPrinter:
    """Puts what happens where it belongs: the answer to stdout, in the form asked for, and activity to stderr."""

    def __init__(self, form: Form, screen: Screen, *, quiet: bool) -> None:
        self._form: Form = form
        self._screen = screen
        self._quiet = quiet
        self._printed = 0
        if form == "events":
            click.echo(encode_log(()), nl=False)

    def show(self, event: Event | Delta) -> None:
        """One event, while it happens."""
        if self._form == "events" and isinstance(event, Event):
            click.echo(encode_event(event))
            self._printed += 1
        if not self._quiet:
            self._screen.show(event)

    def cancelled(self) -> None:
        """Write that the person has stopped the run."""
        self._screen.cancelled()

    def finish(self, live: RunStream[Any]) -> None:
        """What the run came to."""
        self._screen.end_line()
        result = result_of(live)
        if result is not None and not self._quiet:
            self._screen.usage(result.usage.total)
        if self._form == "events":
            # Who cancels stops listening before the run says so in its log.
            for event in live._log.events[self._printed :]:
                click.echo(encode_event(event))
        elif result is None:
            return
        elif self._form == "json":
            click.echo(json.dumps(as_json(result), ensure_ascii=False))
        elif result.status == "completed" and result.output is not None:
            answer = shown_value(_plain(result.output))
            click.echo(printable(answer) if sys.stdout.isatty() else answer)


def as_json(result: RunResult[Any]) -> dict[str, Any]:
    """Where a run stands, for programs."""
    facts = {
        "status": result.status,
        "output": _plain(result._output),
        "agent": result.agent,
        "run_id": result.run_id,
        "usage": _usage_as_json(result.usage),
        "interrupts": to_json_value("the open questions", list(result.interrupts)),
    }
    if result.error is not None:
        facts["error"] = {"type": type(result.error).__name__, "message": str(result.error)}
    return facts


def _usage_as_json(usage: RunUsage) -> dict[str, Any]:
    def whole(spent: Usage) -> dict[str, Any]:
        return {**asdict(spent), "total_tokens": spent.total_tokens}

    return {
        "total": whole(usage.total),
        "by_agent": {name: whole(spent) for name, spent in usage.by_agent.items()},
        "by_model": {name: whole(spent) for name, spent in usage.by_model.items()},
    }


def _plain(output: Any) -> Any:
    try:
        return to_json_value("the output", output)
    except NotEncodableError:
        return repr(output)


def print_questions(questions: Sequence[Interrupt], start: RunSetup, *, run_id: str) -> None:
    """Say what a run waits for, and how to go on with it."""
    click.echo("the run waits for answers to:", err=True)
    for interrupt in questions:
        click.echo(f"  {interrupt.id}  {interrupt.agent}: {format_interrupt(interrupt)}", err=True)
    if start.store:
        click.echo(f"`baton runs resume {start.store} {run_id} {start.target}` asks them and goes on", err=True)
    else:
        click.echo("`baton chat` asks them and goes on", err=True)
