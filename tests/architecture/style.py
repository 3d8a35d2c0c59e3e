"""Check the language and the documentation of the package against the style guide.

Run it on the whole package or on parts of it:

    python tests/architecture/style.py
    python tests/architecture/style.py src/batonkit/agents src/batonkit/errors.py
    python tests/architecture/style.py --tests
    python tests/architecture/style.py --tests tests/runs

It reads docstrings, comments and string literals, and in tests also the names of functions and classes.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "batonkit"
TESTS = REPOSITORY / "tests"
SWARM_NAMES = frozenset({"Agent"})
"""Names that OpenAI Swarm has chosen; `batonkit.swarm` keeps them."""
MAX_SUMMARY = 90
"""Maximum length of the first line of a docstring."""

_OPENINGS = ("What", "Who", "Whom", "Whose", "Whether", "How", "Those", "Somebody", "Whoever", "Nobody", "The same")
_BANNED = (
    r"anew",
    r"mend(?:s|ed|ing)?",
    r"who(?:m|se)?ever",
    r"somebody",
    r"nobody",
    r"everybody",
    r"anybody",
    r"in good order",
    r"gone on with",
    r"go(?:es)? on with",
    r"com(?:es|e) to (?:its|an) end",
    r"(?:is|are) not to be had",
    r"leave word",
    r"left word",
    r"the floor",
    r"understudy",
    r"manners",
    r"front (?:desk|door)",
    r"rooms?",
    r"the house",
    r"house rules?",
    r"say who you are",
    r"no leave to",
)
_WORDS = re.compile(rf"(?<![\w`/.-])(?:{'|'.join(_BANNED)})(?![\w`/-])", re.IGNORECASE)
_OPENING = re.compile(rf"(?:{'|'.join(_OPENINGS)})\b")
_WORD_BOUNDARY = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
_MESSAGE_CALLS = re.compile(r"(?:Error|Warning|warn|warning|error|info|debug|exception|critical|echo|print|secho|log)$")


@dataclass(frozen=True)
class Violation:
    """One place that breaks the style guide."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def check_files(paths: Iterable[Path]) -> list[Violation]:
    """Check files for banned words and openings, and docstrings for their summaries."""
    found: list[Violation] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        checks = (_check_words(source, tree), _check_openings(tree), _check_docstrings(tree))
        found += [Violation(_relative(path), *each) for check in checks for each in check]
    return found


def check_tests(paths: Iterable[Path]) -> list[Violation]:
    """Check test files for banned words and openings in prose and in names."""
    found: list[Violation] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        checks = (_check_words(source, tree), _check_openings(tree), _check_names(tree))
        found += [Violation(_relative(path), *each) for check in checks for each in check]
    return found


def check_class_names(paths: Iterable[Path]) -> list[Violation]:
    """Find public class names that are defined more than once."""
    places: dict[str, list[Violation]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(Violation(_relative(path), node.lineno, "class name used twice", node.name))
    return [
        violation for name, found in places.items() if len(found) > 1 and name not in SWARM_NAMES for violation in found
    ]


def python_files(*roots: Path) -> list[Path]:
    """List the Python files at or below these paths."""
    return [file for root in roots for file in ([root] if root.is_file() else sorted(root.rglob("*.py")))]


def _relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else path.name


def _check_words(source: str, tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    messages = _message_lines(tree)
    docstrings = _docstring_lines(tree)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.STRING, tokenize.COMMENT):
            continue
        line = token.start[0]
        if token.type == tokenize.STRING and line not in messages and line not in docstrings:
            continue
        for offset, text in enumerate(token.string.splitlines()):
            for match in _WORDS.finditer(text):
                if not _is_quoted(match):
                    yield line + offset, "banned word", f"{match.group()!r} in {text.strip()!r}"


def _is_quoted(match: re.Match[str]) -> bool:
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return before in ("'", '"') and before == after


def _message_lines(tree: ast.Module) -> set[int]:
    """Lines of calls that raise, warn, log or print."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _MESSAGE_CALLS.search(_called(node.func)):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _docstring_lines(tree: ast.Module) -> set[int]:
    """First lines of docstrings, including those below attributes."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def _check_openings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first = node.value.value.strip().split("\n")[0].strip()
            if _OPENING.match(first):
                yield node.lineno, "noun-clause docstring", first


def _check_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        words = _WORD_BOUNDARY.sub(" ", node.name.removeprefix("test_"))
        if _WORDS.search(words):
            yield node.lineno, "banned word in a name", node.name
        if node.name.startswith("test_") and _OPENING.match(words.capitalize()):
            yield node.lineno, "noun-clause test name", node.name


def _check_docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _check_summary(node)


def _check_summary(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str, str]]:
    docstring = ast.get_docstring(node)
    if docstring is None:
        return
    lines = docstring.split("\n")
    if len(lines[0]) > MAX_SUMMARY:
        yield node.lineno, "long summary", f"{node.name}: {lines[0]}"
    if len(lines) > 1 and lines[1].strip():
        yield node.lineno, "summary is not one line", f"{node.name}: {lines[0]}"


def main(arguments: list[str]) -> int:
    """Print the violations in the given files or folders, by default in the package, with --tests in the tests."""
    is_tests = "--tests" in arguments
    roots = [Path(argument).resolve() for argument in arguments if argument != "--tests"]
    if is_tests:
        found = check_tests(python_files(*(roots or [TESTS])))
    else:
        found = check_files(python_files(*(roots or [PACKAGE])))
        found += [] if roots else check_class_names(python_files(PACKAGE))
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
