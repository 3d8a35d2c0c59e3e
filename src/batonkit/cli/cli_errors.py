"""Errors and log records as one line on stderr, and exit codes."""

import logging
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from ..errors import AddressError, BatonError, SetupError
from .cli_options import DEBUG, QUIET, SCREEN
from .output import write

FAILED = 1
USAGE = 2
SUSPENDED = 3
ADDRESS = 4
CANCELLED = 130


class TargetError(SetupError):
    """The command line names something that does not exist or cannot run."""


def print_error(error: BaseException) -> None:
    """Print an error to stderr; with --debug, also its traceback."""
    is_debugging = click.get_current_context().meta.get(DEBUG)
    if is_debugging:
        write("".join(traceback.format_exception(error)).rstrip(), err=True)
    text = str(error)
    name = type(error).__name__
    message = text if isinstance(error, BatonError) and text else f"{name}: {text}" if text else name
    write(message, err=True, label="error:")
    if not isinstance(error, BatonError) and not is_debugging:
        for note in [*getattr(error, "__notes__", ()), "use --debug to see the traceback"]:
            write(f"  {note}", err=True, dim=True)


def exit_code_for(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, AddressError):
        return ADDRESS
    return USAGE if isinstance(error, TargetError) else FAILED


@contextmanager
def warnings_on_stderr(flags: Mapping[str, Any]) -> Generator[None]:
    """Print all log records to stderr, unless the program configures logging itself."""
    previous = logging.lastResort
    logging.lastResort = _StderrHandler(flags)
    try:
        yield
    finally:
        logging.lastResort = previous


class _StderrHandler(logging.Handler):
    """Prints a record as one line; with --debug, also its traceback."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        super().__init__()
        self._flags = flags

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        is_debugging = self._flags.get(DEBUG)
        # A failed tool call is displayed with its result.
        is_displayed = record.name == "baton.tools" and record.exc_info is not None
        is_hidden = not is_debugging and (is_displayed or self._flags.get(QUIET))
        if not is_hidden:
            if (screen := self._flags.get(SCREEN)) is not None:
                screen.end_line()
            text = self.format(record) if is_debugging else record.getMessage()
            # Indented, so that text with line breaks does not look like another record.
            write(f"{record.levelname.lower()}: {text}".replace("\n", "\n  "), err=True)
