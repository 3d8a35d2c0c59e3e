"""Files that exist only in a run: each is one of its values, logged, resumed and shared like any other."""

from typing import Any

from ..context import RunContext, Values
from ..errors import ToolError, quote_names
from ..tools import FunctionTool, Tool, tool

FILE_KEY = "file"
"""With `:` and the path: the value in which a scratch file of `deep_agent` is kept, as text."""

_MOST_LINES = 2000


@tool
async def ls(ctx: RunContext[Any]) -> str:
    """List the files in the scratch space, with their length in characters."""
    files = paths_in(ctx.values)
    return "\n".join(f"{path} ({len(ctx.values[_key(path)])})" for path in files) or "There are no files yet."


@tool
async def read_file(ctx: RunContext[Any], path: str, offset: int = 0, limit: int = _MOST_LINES) -> str:
    """Read a file of the scratch space.

    Args:
        path: Which file.
        offset: How many lines to leave out at the beginning.
        limit: How many lines to read at most.
    """
    lines = _text(ctx, path).splitlines()
    shown = lines[max(offset, 0) : max(offset, 0) + max(limit, 1)]
    if not shown:
        return f"(`{path}` has {len(lines)} lines; there is nothing after line {offset})" if lines else "(empty)"
    left = len(lines) - max(offset, 0) - len(shown)
    return "\n".join([*shown, f"({left} more lines)"] if left > 0 else shown)


@tool
async def write_file(ctx: RunContext[Any], path: str, content: str) -> str:
    """Write a file of the scratch space; what was in it is replaced.

    Args:
        path: Which file, for instance `notes/rome.md`.
        content: All of its text.
    """
    ctx.values.set(_key(path), content)
    return f"wrote `{_clean(path)}`, {len(content)} characters"


@tool
async def edit_file(ctx: RunContext[Any], path: str, old: str, new: str, replace_all: bool = False) -> str:
    """Replace text in a file of the scratch space.

    Args:
        path: Which file.
        old: The text to replace, exactly as it stands there; it must occur once, unless all are to be replaced.
        new: What to put in its place.
        replace_all: Whether to replace it wherever it occurs.
    """
    text = _text(ctx, path)
    found = text.count(old) if old else 0
    if found == 0:
        raise ToolError(f"`{path}` does not contain that text; read it first")
    if found > 1 and not replace_all:
        raise ToolError(f"`{path}` contains that text {found} times; give more of it, or say replace_all")
    ctx.values.set(_key(path), text.replace(old, new))
    return f"replaced it {found} time{'' if found == 1 else 's'} in `{_clean(path)}`"


_TOOLS: tuple[FunctionTool[..., Any], ...] = (ls, read_file, write_file, edit_file)


def scratch_file_tools() -> tuple[Tool, ...]:
    """Tools to list, read, write and edit files that are kept in the run's values."""
    return _TOOLS


def paths_in(values: "Values | dict[str, Any]") -> list[str]:
    """The paths of the scratch files among these values."""
    return sorted(key.partition(":")[2] for key in values if key.startswith(f"{FILE_KEY}:"))


def _text(ctx: RunContext[Any], path: str) -> str:
    text = ctx.values.get(_key(path))
    if text is None:
        raise ToolError(f"there is no file `{path}`; the files are: {quote_names(paths_in(ctx.values))}")
    return str(text)


def _key(path: str) -> str:
    return f"{FILE_KEY}:{_clean(path)}"


def _clean(path: str) -> str:
    """The same file however its path is written: `/a.md`, `./a.md` and `a.md`."""
    pieces = [piece for piece in path.strip().split("/") if piece not in ("", ".")]
    if not pieces or ".." in pieces:
        raise ToolError(f"`{path}` is no path of a file here; write it like `notes.md` or `notes/rome.md`")
    return "/".join(pieces)
