"""Code in the sentences of the docs: `Runner(store=…)`, `ctx.interrupt(…)`; fences are tested by running them."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from tests.architecture.public import public_objects
from tests.architecture.shape import PACKAGE

from batonkit import Agent, Runner, RunResult
from batonkit.agents import AgentContext
from batonkit.context import RunContext
from batonkit.realtime import RealtimeRunner, RealtimeSession
from batonkit.runs import BackgroundRunner, RunStream
from batonkit.runs.threads.thread import Thread
from batonkit.stores import PostgresStore, SQLiteStore, Store
from batonkit.worker import Worker

ROOT = Path(__file__).parents[2]
VARIABLES: dict[str, tuple[type, ...]] = {
    "agent": (Agent,),
    "ctx": (RunContext, AgentContext),
    "result": (RunResult,),
    "run": (RunStream,),
    "runner": (Runner, BackgroundRunner, RealtimeRunner),
    "session": (RealtimeSession,),
    "store": (Store, SQLiteStore, PostgresStore),
    "thread": (Thread,),
    "worker": (Worker,),
}
"""The classes of the objects that the docs call by these names."""
_CELL = re.compile(r" \| (?=(?:[^`]*`[^`]*`)*[^`]*$)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_OUTCOMES = re.compile(r"<!-- outcomes:start -->.*?<!-- outcomes:end -->", re.DOTALL)
"""The list of docs/compare.md that names parameters of other frameworks."""
_CODE = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"(?<!\w)(\w+)\(([^()]*)")
_KEYWORD = re.compile(r"(?<![\w.\"'])([a-z_]\w*)=(?!=)")
_ALONE = re.compile(r"([a-z_]\w*)=(?!=)")
_ATTRIBUTE = re.compile(rf"(?<![\w./])({'|'.join(VARIABLES)})\.([a-z]\w*)(?! *=)")


def pages() -> list[Path]:
    """List the pages, and the modules, whose docstrings are pages of the reference."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py")]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def text_of(path: Path) -> str:
    """Return the sentences of a page, or the docstrings of a module."""
    text = path.read_text()
    if path.suffix == ".md":
        return sentences(text)
    # Docstrings and the descriptions of attributes are expressions that are nothing but a string.
    expressions = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    return "\n\n".join(str(each.value) for each in expressions if isinstance(each, ast.Constant))


def wrong_names(text: str) -> Iterator[str]:
    """Yield inline code that names a parameter or an attribute that does not exist."""
    for code in _inline_code(text):
        if (alone := _ALONE.match(code)) and alone[1] not in _parameter_names():
            yield f"`{code}`: no function has a parameter `{alone[1]}`"
        for name, arguments in _CALL.findall(code):
            callables = _callables().get(name, set())
            for keyword in _KEYWORD.findall(arguments) if callables else ():
                if not any(_accepts(each, keyword) for each in callables):
                    yield f"`{code}`: `{name}` has no parameter `{keyword}`"
        for variable, attribute in _ATTRIBUTE.findall(code):
            if not any(_has(each, attribute) for each in VARIABLES[variable]):
                yield f"`{code}`: `{variable}` has no attribute `{attribute}`"


def _inline_code(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from (" ".join(code.split()) for code in _CODE.findall(paragraph))


def sentences(page: str) -> str:
    """Return a page without fences, without the columns of others in tables, and without their outcomes."""
    lines: list[str] = []
    column: int | None = None
    for line in _OUTCOMES.sub("", _FENCE.sub("", page)).splitlines():
        cells = _CELL.split(line) if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None and (own := [place for place, cell in enumerate(cells) if cell.strip("| ") == "Baton"]):
            column = own[0]
        lines.append(line if column is None else (cells[column] if column < len(cells) else ""))
    return "\n".join(lines)


@cache
def _callables() -> dict[str, set[Any]]:
    """Return the public classes, functions and methods by their names."""
    found: dict[str, set[Any]] = {}
    for name, value in public_objects():
        found.setdefault(name.rpartition(".")[2], set()).add(value)
        for member, function in inspect.getmembers(value, callable) if inspect.isclass(value) else ():
            if not member.startswith("_"):
                found.setdefault(member, set()).add(function)
    return found


def _accepts(value: Any, keyword: str) -> bool:
    """Return whether a parameter is in the signature, in the `TypedDict` that it unpacks, or in the docstring."""
    if fields := getattr(value, "__struct_fields__", ()):
        return keyword in fields
    parameters = inspect.signature(value).parameters
    if [*parameters] == ["args", "kwargs"]:
        # A metaclass checks the arguments.
        parameters = inspect.signature(value.__init__).parameters
    options: list[Any] = [each.annotation for each in parameters.values() if each.kind is each.VAR_KEYWORD]
    if Any in options:
        # A method of this kind only refuses what it is given.
        return "." not in value.__qualname__
    unpacked = [get_args(each)[0] for each in options if get_args(each)]
    keys = {key for each in unpacked for key in _keys(get_origin(each) or each)}
    documented = re.search(rf"^ +{keyword}: ", inspect.getdoc(value) or "", re.MULTILINE)
    return keyword in {*parameters, *keys} or documented is not None


@cache
def _parameter_names() -> set[str]:
    """Return the names of all parameters and fields in the package, and of those of others that the docs mention."""
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return parameters | fields | {"sslmode"}


def _keys(kind: Any) -> frozenset[str]:
    return kind.__required_keys__ | kind.__optional_keys__


def _has(kind: type, attribute: str) -> bool:
    if hasattr(kind, attribute) or attribute in getattr(kind, "__struct_fields__", ()):
        return True
    # Instance attributes that `__init__` sets.
    return f"self.{attribute}:" in inspect.getsource(kind) or f"self.{attribute} =" in inspect.getsource(kind)
