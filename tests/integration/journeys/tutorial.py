"""The tutorial as its reader follows it: its steps in both languages, and the folder with the reader's files."""

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.shape import REPOSITORY
from tests.ports import free_port
from tests.waiting import PATIENCE

BIN = Path(sys.executable).parent
_DOCS = REPOSITORY / "docs"
_FENCE = re.compile(r"^```(?P<language>\w+)(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="(?P<file>[^" ]+)(?P<change> \([^)]+\))?"')
_PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
# A reader has a wide terminal, and pytest without the plugins of this environment.
_READER = {"COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Tutorial:
    """One language of the tutorial, and what its customer and its desk say."""

    steps: Sequence[str]
    """The texts of the steps by number; the first is the preparation."""
    where_is_it: str
    it_was_delivered: str
    i_want_my_money_back: str
    it_is_paid: str


def _read_pages() -> list[str]:
    folder = _DOCS / "tutorial"
    pages = [folder / "index.md", *sorted(folder.glob("[1-9]-*.md"))]
    return [page.read_text(encoding="utf-8") for page in pages]


ENGLISH = Tutorial(
    steps=_read_pages(),
    where_is_it="Where is order A-17?",
    it_was_delivered="Order A-17: a lamp for 80 EUR, delivered on Monday.",
    i_want_my_money_back="A-17 arrived broken, I want my money back.",
    it_is_paid="80 EUR for order A-17 are on their way to you.",
)
CHINESE = Tutorial(
    steps=re.split(r"^## (?=\d\. )", (_DOCS / "zh" / "tutorial.md").read_text(encoding="utf-8"), flags=re.MULTILINE),
    where_is_it="订单 A-17 到哪儿了？",
    it_was_delivered="订单 A-17：台灯一盏，300 元，周一已送达。",
    i_want_my_money_back="A-17 是坏的，我要退款。",
    it_is_paid="订单 A-17 的 300 元退款已汇出。",
)


@dataclass
class Project:
    """The folder of a reader who follows the tutorial."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATON_", "DESK_", "PYTEST"))}
        return kept | {"PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "PYTHONIOENCODING": "utf-8", **_READER}

    def follow(self, step: str, *, run: bool = True) -> None:
        """Write the files of a step and run its commands, from top to bottom."""
        for fence in _FENCE.finditer(step):
            language, code, title = fence["language"], fence["code"], _TITLE.search(fence["info"])
            assert title or language != "python", f"the page does not say the file for:\n{code}"
            if title is not None:
                file = self.folder / title["file"]
                file.parent.mkdir(exist_ok=True)
                before = file.read_text(encoding="utf-8") if title["change"] else ""
                file.write_text(change(before, code) if title["change"] else code, encoding="utf-8")
                if run and (printed := _PRINTED.findall(code)):
                    check_output(self._run(f"python {file.name}"), "\n".join(printed))
            elif language == "console" and run:
                command, _, expected = code.removeprefix("$ ").partition("\n")
                check_output(self._run(command), expected)

    def _run(self, command: str) -> str:
        """Run a command in a shell and return what it prints."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, encoding="utf-8"
        )
        return done.stderr + done.stdout

    @contextmanager
    def served(self, **environment: str) -> Generator[str]:
        """Serve the web app as the page says; gives its address."""
        port = free_port()
        command = [BIN / "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "5"]
        output = self.folder / f"uvicorn-{port}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment | environment, stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + PATIENCE
            while "Uvicorn running on" not in output.read_text():
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def change(text: str, code: str) -> str:
    """Replace the definitions that have the same names, and add the imports that are new."""
    for node in ast.parse(code).body:
        source = "\n".join(code.splitlines()[_first_line(node) - 1 : node.end_lineno])
        known = [each for each in ast.parse(text).body if _name(each) == _name(node)]
        lines = text.splitlines()
        if known:
            lines[_first_line(known[0]) - 1 : known[0].end_lineno] = [source]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            lines.insert(0, source)
        else:
            position = max(_first_line(each) for each in ast.parse(text).body if not isinstance(each, ast.Expr)) - 1
            lines.insert(position, source)
        text = "\n".join(lines) + "\n"
    return text


def _name(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ast.dump(node)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def check_output(found: str, expected: str) -> None:
    """Compare an output with that of the page, where … stands for any text; white space may differ."""
    pattern = ".*".join(re.escape(part) for part in " ".join(expected.split()).split("…"))
    assert re.fullmatch(pattern, " ".join(found.split()), re.DOTALL), f"{found}\n--- the page says:\n{expected}"
