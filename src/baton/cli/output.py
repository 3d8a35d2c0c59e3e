"""Writes text and JSON to the terminal; all output of the command line is sanitised here."""

import re
import sys

import click

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]")
"""Control characters, and invisible ones that reorder or hide text. Tabs and line breaks are harmless."""
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]")
"""The unsafe characters that JSON does not escape itself."""


def printable(text: str) -> str:
    """Make control characters visible, so that no text can control the terminal."""
    return _UNSAFE.sub(_to_symbol, text)


def one_line(text: str) -> str:
    """Make control characters and line breaks visible, for a cell of a table."""
    return printable(text).replace("\n", "␊").replace("\t", " ")


def escape_json(text: str) -> str:
    """Escape the unsafe characters in JSON text; its value stays the same."""
    return _UNSAFE_IN_JSON.sub(_to_json_escape, text)


def write(text: str, *, err: bool = False, label: str = "", dim: bool = False) -> None:
    """Write text for people to stdout or stderr.

    Args:
        text: The text.
        err: Write to stderr.
        label: A word to write before it in red.
        dim: Write it in a faint colour.
    """
    prefix = f"{click.style(label, fg='red', bold=True)} " if label else ""
    safe = printable(text)
    click.echo(prefix + (click.style(safe, dim=True) if dim else safe), err=err)


def write_data(text: str) -> None:
    """Write text to stdout without a line break; it is sanitised only if stdout is a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def write_json(json: str | bytes, *, nl: bool = True) -> None:
    """Write JSON, or lines of JSON, to stdout.

    Args:
        json: The JSON text.
        nl: Add a line break.
    """
    click.echo(escape_json(json if isinstance(json, str) else json.decode()), nl=nl)


def _to_symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0D:
        return ""
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _to_json_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
