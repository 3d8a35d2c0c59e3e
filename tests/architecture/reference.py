"""Keep the tables of names in docs/reference, and the tree of errors, as the docstrings have them. `make fix` runs it.

What stands between the two marks of a page is made here; everything else on it is written by hand.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import baton

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "baton"
REFERENCE = REPOSITORY / "docs" / "reference"
ERRORS = REPOSITORY / "docs" / "concepts" / "errors.md"
BEGIN, END = "<!-- names: made by `make fix` from the docstrings -->", "<!-- end of names -->"
NOT_FOR_PROGRAMS = frozenset({"__init__", "__main__", "__pycache__", "cli", "py"})
ROOMS = sorted({path.stem for path in PACKAGE.iterdir()} - NOT_FOR_PROGRAMS)
HOMES: dict[str, tuple[str, ...]] = vars(baton)["_HOMES"]

# Aliases and constants whose value says all, so that the code has no words for them.
SELF_EVIDENT = {
    "events.Action": "What an agent may return: `Transfer`, `Exit` or `BreakLoop`.",
    "agents.EXIT_TOOL": 'The name of the tool that ends a run: `"exit"`.',
    "agents.MultipleTransfers": 'Which of several transfers at once is followed: `"first"`, `"last"` or `"error"`.',
    "handoffs.InputFilter": "A function of `HandoffInputData` that gives `HandoffInputData`, sync or async.",
    "handoffs.Language": 'The language a model is told about its team in: `"en"` or `"zh"`.',
    "handoffs.TRANSFER_TOOL": 'The name of the one tool for `sub_agents`: `"transfer_to_agent"`.',
    "messages.Content": "Text, or several parts.",
    "messages.Input": "What a run can be started with: text, a message, a dict of role and content, or several.",
    "messages.Message": "A system, user, assistant or tool message.",
    "messages.Part": "Text, an image, audio, a file or data.",
    "models.Chunk": "A piece of an answer: text, reasoning, a call, a part, or the `Response` at its end.",
    "server.AuthLike": "One way to know callers, several, or a `Token`, which stands for `Bearer` with it.",
    "server.Token": "One token for one caller, tokens and whose they are, or a function that tells whose a token is.",
    "server.Verifier": "A function that says whose a bearer token is: a name, or None; sync or async.",
    "runner.Status": 'Where a run stands: `"completed"`, `"suspended"`, `"failed"` or `"cancelled"`.',
}


def public_names(room: str) -> list[str]:
    """What a room offers: its `__all__`; for a room of one file, what it defines."""
    if (PACKAGE / room).is_dir():
        return list(import_module(f"baton.{room}").__all__)
    return [name for name, _ in _defined_in(PACKAGE / f"{room}.py") if not name.startswith("_") and name != "E"]


def described(room: str, name: str) -> str:
    """What a name is, in one line; "" if nobody has said so."""
    thing = getattr(import_module(f"baton.{room}"), name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return (inspect.getdoc(thing) or "").partition("\n")[0]
    sources = PACKAGE / room
    for path in sorted(sources.glob("*.py")) if sources.is_dir() else [PACKAGE / f"{room}.py"]:
        for found, words in _defined_in(path):
            if found == name and words:
                return words
    return SELF_EVIDENT.get(f"{room}.{name}", "")


def table_for(page: str) -> str:
    """The table that belongs on a page: the names of a room, or of the front door with where they live."""
    if page != "index":
        rows = [f"| `{name}` | {_cell(described(page, name))} |" for name in public_names(page)]
        return "\n".join(["| name | is |", "|---|---|", *rows])
    home = {name: room for room, names in HOMES.items() for name in names}
    rows = [
        f"| `{name}` | [`baton.{home[name]}`]({home[name]}.md) | {_cell(described(home[name], name))} |"
        for name in baton.__all__
    ]
    return "\n".join(["| name | lives in | is |", "|---|---|---|", *rows])


def tree_of_errors() -> str:
    """The tree that is drawn at the top of `baton.errors`."""
    drawn = inspect.getdoc(import_module("baton.errors")) or ""
    return f"```text\n{drawn[drawn.index('BatonError') :]}\n```"


def made() -> Iterator[tuple[Path, str]]:
    """Every page on which something is made, and what."""
    yield ERRORS, tree_of_errors()
    yield from ((REFERENCE / f"{page}.md", table_for(page)) for page in ("index", *ROOMS))


def with_table(page: str, table: str) -> str:
    """The text of a page, with this between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _defined_in(path: Path) -> Iterator[tuple[str, str]]:
    """Each name a file defines, with the words that stand under an assignment."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        words = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = inspect.cleandoc(str(following.value.value)).partition("\n")[0]
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, ""
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, words
            case _:
                pass


def main() -> None:
    """Write every page that is out of date."""
    for path, table in made():
        text = path.read_text(encoding="utf-8")
        renewed = with_table(text, table)
        if renewed != text:
            path.write_text(renewed, encoding="utf-8")
            print(f"renewed {path.relative_to(REPOSITORY)}", file=sys.stderr)


if __name__ == "__main__":
    main()
