"""The command `baton run`: the answer goes to stdout, everything else to stderr."""

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
from .display import Screen, format_interrupt, format_value, printable
from .errors import CANCELLED, SUSPENDED, warnings_on_stderr
from .options import is_debugging, json_result, quiet, run_arguments, run_options, target
from .targets import RunSetup, default_model, get_result, set_up_run, show_events

OutputFormat: TypeAlias = Literal["text", "json", "events"]

_EXIT_CODES = """
\b
Exit codes:
  0    completed
  1    failed
  2    the command line is invalid, or names something that does not exist
  3    suspended: the run waits for answers
  130  cancelled with Ctrl-C
"""


def run_once(setup: RunSetup, text: str, *, output_format: OutputFormat, quiet: bool) -> int:
    """Run the team and print the result; return the exit code. Raises the error of a failed run."""
    stream = setup.runner.stream(text, values=setup.values, limits=setup.limits, thread=setup.thread)
    printer = RunPrinter(output_format, Screen(Console(stderr=True, highlight=False), answers=False), quiet=quiet)
    with asyncio.Runner() as loop:
        try:
            code = drive(setup, stream, loop, printer=printer)
        finally:
            loop.run(setup.runner.close())
    printer.finish(stream)
    if code == SUSPENDED:
        print_interrupts(stream.result.interrupts, setup, run_id=stream.run_id)
    return code


def drive(setup: RunSetup, stream: RunStream[Any], loop: asyncio.Runner, *, printer: "RunPrinter") -> int:
    """Drive and display a run; return the exit code. Raises the error of a failed run."""
    try:
        loop.run(show_events(stream, printer.show))
    except KeyboardInterrupt:
        printer.cancelled()
        return CANCELLED
    except Exception as error:  # noqa: BLE001 - raised again with advice for the command line
        printer.finish(stream)
        raise setup.explain(error, stream)
    return SUSPENDED if stream.result.status == "suspended" else 0


class RunPrinter:
    """Prints a run: the answer in the requested format to stdout, activity to stderr.

    Args:
        output_format: The format on stdout.
        screen: Displays activity.
        quiet: Display no activity.
    """

    def __init__(self, output_format: OutputFormat, screen: Screen, *, quiet: bool) -> None:
        self._output_format: OutputFormat = output_format
        self._screen = screen
        self._quiet = quiet
        self._printed = 0
        if output_format == "events":
            click.echo(encode_log(()), nl=False)

    def show(self, event: Event | Delta) -> None:
        """Print one event or delta."""
        if self._output_format == "events" and isinstance(event, Event):
            click.echo(encode_event(event))
            self._printed += 1
        if not self._quiet:
            self._screen.show(event)

    def cancelled(self) -> None:
        """Print that the run was cancelled."""
        self._screen.cancelled()

    def finish(self, stream: RunStream[Any]) -> None:
        """Print the result."""
        self._screen.end_line()
        result = get_result(stream)
        if result is not None and not self._quiet:
            self._screen.usage(result.usage.total)
        if self._output_format == "events":
            # A cancelled stream ends before the cancellation is logged.
            for event in stream._log.events[self._printed :]:
                click.echo(encode_event(event))
        elif result is None:
            return
        elif self._output_format == "json":
            click.echo(json.dumps(result_to_json(result), ensure_ascii=False))
        elif result.status == "completed" and result.output is not None:
            answer = format_value(_to_json(result.output))
            click.echo(printable(answer) if sys.stdout.isatty() else answer)


def result_to_json(result: RunResult[Any]) -> dict[str, Any]:
    """Convert a result to JSON."""
    data = {
        "status": result.status,
        "output": _to_json(result.output) if result.status == "completed" else None,
        "agent": result.agent,
        "run_id": result.run_id,
        "usage": _usage_as_json(result.usage),
        "interrupts": to_json_value("the open interrupts", list(result.interrupts)),
    }
    if result.error is not None:
        data["error"] = {"type": type(result.error).__name__, "message": str(result.error)}
    return data


def _usage_as_json(usage: RunUsage) -> dict[str, Any]:
    def encode(used: Usage) -> dict[str, Any]:
        return {**asdict(used), "total_tokens": used.total_tokens}

    return {
        "total": encode(usage.total),
        "by_agent": {name: encode(used) for name, used in usage.by_agent.items()},
        "by_model": {name: encode(used) for name, used in usage.by_model.items()},
    }


def _to_json(output: Any) -> Any:
    try:
        return to_json_value("the output", output)
    except NotEncodableError:
        return repr(output)


def print_interrupts(interrupts: Sequence[Interrupt], setup: RunSetup, *, run_id: str) -> None:
    """Print the open interrupts of a run and how to resume it."""
    click.echo("the run is suspended; open interrupts:", err=True)
    for interrupt in interrupts:
        click.echo(f"  {interrupt.id}  {interrupt.agent}: {format_interrupt(interrupt)}", err=True)
    if setup.store:
        click.echo(f"answer with `baton runs resume {run_id} {setup.target} --store {setup.store}`", err=True)
    else:
        click.echo("to answer, use `baton chat`, or pass --store and resume the run", err=True)


@click.command("run", epilog=_EXIT_CODES)
@target
@click.argument("text")
@quiet
@json_result
@click.option("--events", "as_events", is_flag=True, help="Print the run's log, one JSON line for each event.")
@run_options
@click.pass_context
def run_command(
    ctx: click.Context, /, *, target: str, text: str, quiet: bool, as_json: bool, as_events: bool, **rest: Any
) -> None:
    """Run a team once and print its answer.

    The answer goes to stdout, everything else to stderr. TEXT is the user's message; - reads it from stdin.

    \b
    Examples:
      baton run desk:router "What's the weather in Beijing?"
      echo "Summarise this" | baton run desk:router - --quiet
      baton run desk:router "Hello" --value user=Ada --json | jq .usage.total
      baton run desk:router "Hello" --events > run.jsonl
      baton run desk:router "Hello again" --store runs.db --thread u42
    """
    if as_json and as_events:
        raise click.UsageError("--json and --events cannot be combined; choose one")
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise click.UsageError("the message is empty; pass a text, or - and something on stdin")
    arguments = run_arguments(**rest)
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=quiet), default_model(arguments.model):
        setup = set_up_run(target, arguments)
        output_format = "json" if as_json else "events" if as_events else "text"
        ctx.exit(run_once(setup, text, output_format=output_format, quiet=quiet))
