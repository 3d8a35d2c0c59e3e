"""Every python fence in the README and the docs runs. Fences of one page share their names, from top to bottom."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.architecture.shape import REPOSITORY

# The pages of the tutorial build on one another: tests/integration/journeys/test_tutorial.py.
DOCS = [page for page in (REPOSITORY / "docs").rglob("*.md") if page.parent.name != "tutorial"]
FOR_ASSISTANTS = REPOSITORY.glob("src/batonkit/cli/assistants/*.md")
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS, *REPOSITORY.glob("examples/*.md"), *FOR_ASSISTANTS])
FENCE = re.compile(
    r"^(?P<indent>[ ]*)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)


def fences_in(text: str) -> Iterator[tuple[int, str]]:
    """The python fences to run: the number of their first line, and their code."""
    for fence in FENCE.finditer(text):
        language, _, rest = fence["info"].strip().partition(" ")
        if language in ("python", "py") and "no-run" not in rest:
            code = re.sub(rf"^{fence['indent']}", "", fence["code"], flags=re.MULTILINE)
            yield text.count("\n", 0, fence.start("code")) + 1, code


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


WITH_FENCES = [page for page in PAGES if any(fences_in(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", WITH_FENCES, ids=_name)
def test_the_fences_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A module of its own, because annotations are looked up in the module that a function says it is from.
    module = ModuleType("fences")
    monkeypatch.setitem(sys.modules, "fences", module)
    monkeypatch.chdir(tmp_path)
    for line, code in fences_in(page.read_text(encoding="utf-8")):
        # Blank lines before it, so that a traceback names the line of the page.
        exec(compile("\n" * (line - 1) + code, page, "exec"), vars(module))


@pytest.mark.parametrize(
    "name", ["README.md", "docs/index.md", "docs/zh/index.md", "docs/get-started/first-handoff.md"]
)
def test_the_first_programs_of_a_reader_log_no_warning(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test_the_fences_of_a_page_run(REPOSITORY / name, monkeypatch, tmp_path)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_the_pages_that_teach_have_fences() -> None:
    named = {_name(page) for page in WITH_FENCES}
    assert {"README.md", "docs/get-started/first-handoff.md", "docs/concepts/interrupts.md"} <= named


def test_fences_are_found_and_marked_ones_left_out() -> None:
    indented = "    ```py\n    if x:\n        y = 2\n    ```\n"
    page = f"a\n```python\nx = 1\n```\n\n{indented}```python no-run\n!\n```\n```sh\nls\n```\n"
    assert list(fences_in(page)) == [(3, "x = 1\n"), (7, "if x:\n    y = 2\n")]
