"""The option `--env-file`, and the parser of files with environment variables."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click

from .._wording import one_line
from .cli_errors import TargetError

DEFAULT = ".env"
_PATH = "baton.env_file"
"""The key of `Context.meta` for the file that an option of a group names."""

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*$")
_REST = re.compile(r"[ \t]*(?:#.*)?$", re.MULTILINE)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_env(text: str, source: str = DEFAULT) -> dict[str, str]:
    """Parse lines `NAME=value`; the last value of a name counts.

    Values in single quotes are taken literally; in double quotes a backslash escapes n, r, t, $, quotes and itself.
    Both may span lines. Variables in values are not expanded.

    Raises:
        TargetError: A line is not an assignment; the message names its number, not its value.
    """
    return dict(_assignments(text.removeprefix("\ufeff").replace("\r\n", "\n"), source))


def _assignments(text: str, source: str) -> Iterator[tuple[str, str]]:
    position = 0
    number = 1
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        start = position + len(line) - len(line.lstrip(" \t"))
        if not line.strip() or line.lstrip(" \t").startswith("#"):
            position = end + 1
            number += 1
            continue
        found = _ASSIGNMENT.match(text, start, end)
        if found is None:
            raise _invalid(source, number, "it is not NAME=value", "write NAME=value, or # before a comment")
        name = found["name"]
        value_start = found.end()
        if value_start < end and text[value_start] in "\"'":
            value, after = _quoted(text, value_start, source, number, name)
            rest = _REST.match(text, after)
            if rest is None:
                advice = "put a # before a comment, or a backslash before a double quote in the value"
                raise _invalid(source, number, f"there is text after the quoted value of {name}", advice)
            end = rest.end()
        else:
            value = _COMMENT.sub("", text[value_start:end]).strip()
        if "\0" in value:
            raise _invalid(source, number, f"the value of {name} has a NUL character", "remove it")
        yield name, value
        number += text.count("\n", position, end) + 1
        position = end + 1


def _quoted(text: str, start: int, source: str, number: int, name: str) -> tuple[str, int]:
    """Return the value of a quoted text, and the position after it."""
    quote = text[start]
    position = start + 1
    while position < len(text):
        if text[position] == quote:
            value = text[start + 1 : position]
            if quote == '"':
                value = _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[0]), value)
            return value, position + 1
        position += 2 if text[position] == "\\" and quote == '"' else 1
    raise _invalid(source, number, f"the quote before the value of {name} is not closed", f"end it with {quote}")


def _invalid(source: str, number: int, problem: str, advice: str) -> TargetError:
    return TargetError(f"{one_line(source)}, line {number}: {problem}; {advice}")


def load_env_file(path: Path) -> list[str]:
    """Set the variables of a file that the environment does not have.

    Returns:
        The names that were set.

    Raises:
        TargetError: The file cannot be read, or a line is invalid.
    """
    shown = one_line(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TargetError(
            f"cannot read --env-file {shown}: {error.strerror or error}; give a file that exists"
        ) from None
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise TargetError(f"{shown}, line {number}: it is not UTF-8; save the file as UTF-8") from None
    missing = {name: value for name, value in parse_env(text, str(path)).items() if name not in os.environ}
    os.environ.update(missing)
    return [*missing]


def _load(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if ctx.resilient_parsing:
        return
    if isinstance(ctx.command, click.Group):
        # Loaded by the command: its own option takes precedence, and help needs no variables.
        ctx.meta[_PATH] = value or ctx.meta.get(_PATH)
        return
    path = value or ctx.meta.get(_PATH)
    if path is not None:
        load_env_file(Path(path))
    elif Path(DEFAULT).is_file():
        load_env_file(Path(DEFAULT))


def env_file_option() -> click.Option:
    """Return the option `--env-file`, which is read before all others."""
    return click.Option(
        ["--env-file"],
        metavar="PATH",
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="Set environment variables from this file unless they are set (default: .env, if there is one).",
    )


def add_env_file(command: click.Command) -> click.Command:
    """Add the option to a command and its subcommands, if they do not have it."""
    if not any("--env-file" in parameter.opts for parameter in command.params):
        command.params.append(env_file_option())
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        add_env_file(each)
    return command
