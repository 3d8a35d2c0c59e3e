"""What a person at a terminal is told when something goes wrong: one line, and a traceback only for who asks for it."""

import logging
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import click

from ..errors import BatonError, SetupError

FAILED = 1
USAGE = 2
SUSPENDED = 3
CANCELLED = 130


class TargetError(SetupError):
    """What the command line names cannot be found, or is nothing that can run."""


def print_error(error: BaseException, *, debug: bool) -> None:
    """Write the error to stderr."""
    if debug:
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {_in_words(error)}", err=True)
    if not isinstance(error, BatonError) and not debug:
        for note in [*getattr(error, "__notes__", ()), "--debug shows the traceback"]:
            click.echo(click.style(f"  {note}", dim=True), err=True)


def exit_code_of(error: BaseException) -> int:
    """What the program ends with because of this error."""
    return USAGE if isinstance(error, TargetError) else FAILED


@contextmanager
def warnings_on_stderr(*, debug: bool, quiet: bool) -> Generator[None]:
    """What Baton logs meanwhile is written to stderr, one line each, unless the program has its own logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(debug=debug))
    handler.addFilter(lambda record: debug or not (quiet or _is_on_screen(record)))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    logger = logging.getLogger("baton")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _is_on_screen(record: logging.LogRecord) -> bool:
    # A tool that failed has a result that says so, and that is shown where the call is.
    return record.name == "baton.tools" and record.exc_info is not None


class _Lines(logging.Formatter):
    """One line for each record; the traceback only for who asks for it."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        """The record as a person reads it."""
        if self._debug:
            return f"{record.levelname.lower()}: {super().format(record)}"
        return f"{record.levelname.lower()}: {record.getMessage()}"


def _in_words(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, BatonError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
