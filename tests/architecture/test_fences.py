"""Every python fence in the README and the docs runs, and prints what its comments say.

Fences of one page share their names, from top to bottom. The comment after a `print(…)`, and the comments right below a
statement at the top level, are the lines that it prints.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest
from tests.architecture.shape import REPOSITORY

# The steps of the tutorial build on one another: tests/integration/journeys/test_tutorial.py.
DOCS = [page for page in (REPOSITORY / "docs").rglob("*.md") if "tutorial" not in (page.parent.name, page.stem)]
FOR_ASSISTANTS = REPOSITORY.glob("src/batonkit/cli/assistants/*.md")
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS, *REPOSITORY.glob("examples/*.md"), *FOR_ASSISTANTS])
FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)

SHOWING = ("docs/index.md", "docs/get-started/*.md", "docs/guides/*.md", "docs/concepts/*.md")
"""Pages whose first fences print something."""
NOT_SHOWING = ("docs/guides/other-kits.md", "docs/guides/record-a-model.md")
"""Pages whose programs need other frameworks, or are tests."""
PRINTING = (ast.Expr, ast.For, ast.Try, ast.With)
"""Statements at the top level that comments below them may say the output of."""


def fences_in(text: str) -> Iterator[tuple[int, str]]:
    """The python fences to run: the number of their first line, and their code."""
    for fence in FENCE.finditer(text):
        language, _, rest = fence["info"].strip().partition(" ")
        if language in ("python", "py") and "no-run" not in rest:
            code = re.sub(rf"^{fence['indent']}", "", fence["code"], flags=re.MULTILINE)
            yield text.count("\n", 0, fence.start("code")) + 1, code


def printed_lines(code: str) -> list[str]:
    """Return the lines that a fence says it prints, in their order."""
    lines = code.splitlines()
    ends = {node.end_lineno for node in ast.parse(code).body if isinstance(node, PRINTING)}
    expected: list[str] = []
    for number, line in enumerate(lines, 1):
        if inline := re.match(r"\s*print\(.*\)  # (.+)", line):
            expected.append(inline[1])
        if number in ends:
            expected += [comment.removeprefix("#").strip() for comment in takewhile(_is_comment, lines[number:])]
    return expected


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


WITH_FENCES = [page for page in PAGES if any(fences_in(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", WITH_FENCES, ids=_name)
def test_the_fences_of_a_page_run(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A module of its own, because annotations are looked up in the module that a function says it is from.
    module = ModuleType("fences")
    monkeypatch.setitem(sys.modules, "fences", module)
    monkeypatch.chdir(tmp_path)
    for line, code in fences_in(page.read_text(encoding="utf-8")):
        # Blank lines before it, so that a traceback names the line of the page.
        exec(compile("\n" * (line - 1) + code, page, "exec"), vars(module))
        printed = capsys.readouterr().out
        lines = iter(text.strip() for text in printed.splitlines())
        wrong = [expected for expected in printed_lines(code) if expected not in lines]
        assert wrong == [], f"the fence in line {line} of {page.name} prints:\n{printed}"


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/index.md", "docs/zh/index.md", "docs/zh/get-started.md", "docs/get-started/quick-tour.md"],
)
def test_the_first_programs_of_a_reader_log_no_warning(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    test_the_fences_of_a_page_run(REPOSITORY / name, monkeypatch, tmp_path, capsys)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_the_pages_that_teach_have_fences() -> None:
    named = {_name(page) for page in WITH_FENCES}
    assert {"README.md", "docs/get-started/quick-tour.md", "docs/concepts/interrupts.md"} <= named


SHOWING_PAGES = [
    page for page in WITH_FENCES if any(map(page.match, SHOWING)) and not any(map(page.match, NOT_SHOWING))
]


@pytest.mark.parametrize("page", SHOWING_PAGES, ids=_name)
def test_a_page_soon_shows_what_its_fences_print(page: Path) -> None:
    first_two = [code for _, code in fences_in(page.read_text(encoding="utf-8"))][:2]
    assert any(printed_lines(code) for code in first_two), "print a result, with its output as a comment"


def test_fences_are_found_and_marked_ones_left_out() -> None:
    indented = "    ```py\n    if x:\n        y = 2\n    ```\n"
    page = f"a\n```python\nx = 1\n```\n\n{indented}```python no-run\n!\n```\n```sh\nls\n```\n"
    assert list(fences_in(page)) == [(3, "x = 1\n"), (7, "if x:\n    y = 2\n")]


def test_the_lines_that_a_fence_prints_are_read_from_its_comments() -> None:
    code = "def f():\n    print(1)  # 1\n\n\nf()  # Why.\nprint(2)\n# 2\n# 3\n\n# Not printed.\nx = 4\n# Neither.\n"
    assert printed_lines(code) == ["1", "2", "3"]
