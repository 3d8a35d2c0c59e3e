"""Errors and log records as one line on stderr, and exit codes."""

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
    """The command line names something that does not exist or cannot run."""


def print_error(error: BaseException, *, debug: bool) -> None:
    """Print an error to stderr; with `debug`, also its traceback."""
    if debug:
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {_describe(error)}", err=True)
    if not isinstance(error, BatonError) and not debug:
        for note in [*getattr(error, "__notes__", ()), "use --debug to see the traceback"]:
            click.echo(click.style(f"  {note}", dim=True), err=True)


def exit_code_for(error: BaseException) -> int:
    """Return the exit code for an error."""
    return USAGE if isinstance(error, TargetError) else FAILED


@contextmanager
def warnings_on_stderr(*, debug: bool, quiet: bool) -> Generator[None]:
    """Print Baton's log records to stderr, unless the program configures logging itself."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(debug=debug))
    handler.addFilter(lambda record: debug or not (quiet or _is_displayed(record)))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    logger = logging.getLogger("baton")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _is_displayed(record: logging.LogRecord) -> bool:
    # A failed tool call is displayed with its result.
    return record.name == "baton.tools" and record.exc_info is not None


class _LineFormatter(logging.Formatter):
    """Formats a record as one line; with `debug`, also its traceback."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        if self._debug:
            return f"{record.levelname.lower()}: {super().format(record)}"
        return f"{record.levelname.lower()}: {record.getMessage()}"


def _describe(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, BatonError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
