"""Writes text and JSON to the terminal; all output of the command line is sanitised here."""

import json
import sys

import click

from .._wording import UNSAFE_CODES, printable

_JSON_ESCAPES = {
    code: f"\\u{code:04x}" if code < 0x10000 else json.dumps(chr(code))[1:-1] for code in UNSAFE_CODES if code >= 0x7F
}
"""Escapes of the unsafe characters that JSON does not escape itself."""


def escape_json(text: str) -> str:
    """Escape the unsafe characters in JSON text; its value stays the same."""
    return text.translate(_JSON_ESCAPES)


def write(text: str, *, err: bool = False, label: str = "", dim: bool = False) -> None:
    """Write text for people to stdout or stderr."""
    prefix = f"{click.style(label, fg='red', bold=True)} " if label else ""
    safe = printable(text)
    click.echo(prefix + (click.style(safe, dim=True) if dim else safe), err=err)


def rewrite_line(text: str) -> None:
    """Replace the current line of stderr, which must be a terminal."""
    click.echo(f"\r\x1b[K{printable(text)}", err=True, nl=False)


def write_data(text: str) -> None:
    """Write text to stdout without a line break; it is sanitised only if stdout is a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def write_json(text: str | bytes, *, nl: bool = True) -> None:
    """Write JSON, or lines of JSON, to stdout."""
    click.echo(escape_json(text if isinstance(text, str) else text.decode()), nl=nl)
