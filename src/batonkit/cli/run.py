"""The command `baton run`: the answer goes to stdout, everything else to stderr."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import click
from msgspec.structs import asdict
from rich.console import Console

from ..context.values import to_json_value
from ..errors import NotEncodableError
from ..log import Delta, Event, encode_event, encode_log
from ..messages import Usage
from ..runs import Interrupt, RunResult, RunStream
from ..stores import PostgresStore, SQLiteStore, Store
from ..stores.parts import innermost_store
from .cli_errors import CANCELLED, SUSPENDED
from .cli_options import SCREEN, RunArguments, choose_format, json_result, quiet, run_options, target
from .display import Screen, format_interrupt, format_value
from .output import write, write_data, write_json
from .targets import RunSetup, get_result, set_up_run

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


class RunPrinter:
    """Prints a run: the answer in the requested format to stdout, activity to stderr."""

    def __init__(self, output_format: OutputFormat, *, quiet: bool) -> None:
        self.screen = Screen(Console(stderr=True, highlight=False), answers=False)
        click.get_current_context().meta[SCREEN] = self.screen
        self._output_format: OutputFormat = output_format
        self._quiet = quiet
        self._printed = 0
        if output_format == "events":
            write_json(encode_log(()), nl=False)

    def drive(self, setup: RunSetup, stream: RunStream[Any]) -> int:
        """Drive and display a run; return the exit code. Raises the error of a failed run."""
        try:
            setup.show(stream, self._show, spinner=None if self._quiet else self.screen.spinner)
        except KeyboardInterrupt:
            self.screen.cancelled()
            return CANCELLED
        except Exception:
            self.finish(stream)
            raise
        return SUSPENDED if stream.result.status == "suspended" else 0

    def _show(self, event: Event | Delta) -> None:
        if self._output_format == "events" and isinstance(event, Event):
            self.screen.spinner.clear()
            write_json(encode_event(event))
            self._printed += 1
        if not self._quiet:
            self.screen.show(event)

    def finish(self, stream: RunStream[Any]) -> None:
        """Print the result."""
        self.screen.end_line()
        result = get_result(stream)
        if result is not None and not self._quiet:
            self.screen.usage(result.usage.total)
        if self._output_format == "events":
            # A cancelled stream ends before the cancellation is logged.
            for event in stream._log.events[self._printed :]:
                write_json(encode_event(event))
        elif result is None:
            return
        elif self._output_format == "json":
            write_json(json.dumps(result_to_json(result), ensure_ascii=False))
        elif result.status == "completed" and result.output is not None:
            write_data(f"{format_value(_to_json(result.output))}\n")


def result_to_json(result: RunResult[Any]) -> dict[str, Any]:
    """Convert a result to JSON."""
    usage = result.usage
    data = {
        "status": result.status,
        "output": _to_json(result.output) if result.status == "completed" else None,
        "agent": result.agent,
        "run_id": result.run_id,
        "usage": {
            "total": _usage_as_json(usage.total),
            "by_agent": {name: _usage_as_json(used) for name, used in usage.by_agent.items()},
            "by_model": {name: _usage_as_json(used) for name, used in usage.by_model.items()},
        },
        "interrupts": to_json_value("the open interrupts", list(result.interrupts)),
    }
    if result.error is not None:
        data["error"] = {"type": type(result.error).__name__, "message": str(result.error)}
    return data


def _usage_as_json(usage: Usage) -> dict[str, Any]:
    return {**asdict(usage), "total_tokens": usage.total_tokens}


def _to_json(output: Any) -> Any:
    try:
        return to_json_value("the output", output)
    except NotEncodableError:
        return repr(output)


def print_interrupts(interrupts: Sequence[Interrupt], setup: RunSetup, *, run_id: str) -> None:
    """Print the open interrupts of a run and how to resume it."""
    write("the run is suspended; open interrupts:", err=True)
    for interrupt in interrupts:
        write(f"  {interrupt.id}  {interrupt.agent}: {format_interrupt(interrupt)}", err=True)
    location = setup.arguments.store or _location_of(setup.runner._access.store)
    if not location:
        write("to answer, use `baton chat`, or pass --store and resume the run", err=True)
        return
    store = _without_password(location)
    write(f"answer with `baton runs resume {run_id} {setup.target} --store {shlex.quote(store)}`", err=True)
    if store != location:
        write("the password of the store is not shown: add it to the URL, or set PGPASSWORD", err=True)


def _location_of(store: Store | None) -> str:
    """Return the --store of a runner's own store, or "" if only this process has it."""
    match None if store is None else innermost_store(store):
        case SQLiteStore() as file:
            return os.path.relpath(file.path)
        case PostgresStore() as database:
            url = database._pool._url
            return url if "://" in url else ""
        case _:
            return ""


def _without_password(location: str) -> str:
    """Remove the password from the URL of a database; other locations stay as they are."""
    if "://" not in location:
        return location
    parts = urlsplit(location)
    login, at, host = parts.netloc.rpartition("@")
    query = "&".join(each for each in parts.query.split("&") if not each.startswith("password="))
    return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{host}", query=query))


@click.command("run", epilog=_EXIT_CODES)
@target
@click.argument("text")
@quiet
@json_result
@click.option("--events", "as_events", is_flag=True, help="Print the run's log, one JSON line for each event.")
@run_options
def run_command(*, target: str, text: str, quiet: bool, as_json: bool, as_events: bool, arguments: RunArguments) -> int:
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
    output_format = choose_format(as_json=as_json, as_events=as_events)
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise click.UsageError("the message is empty; pass a text, or - and something on stdin")
    with set_up_run(target, arguments) as setup:
        printer = RunPrinter(output_format, quiet=quiet)
        stream = setup.runner.stream(text, values=arguments.values, limits=setup.limits, thread=arguments.thread)
        code = printer.drive(setup, stream)
        printer.finish(stream)
        if code == SUSPENDED:
            print_interrupts(stream.result.interrupts, setup, run_id=stream.run_id)
    return code
