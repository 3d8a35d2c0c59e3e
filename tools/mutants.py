"""Break the package in places that a seed draws, and tell which breaks the tests notice.

`python -m tools.mutants --seed 1 --count 40` changes one place at a time in a copy of the sources (a condition is
negated, a result is dropped, a call is left out, an await is left out), runs the tests of its area until one fails, and
prints what happened. A change that no test notices is a test that is missing, or code that is not needed.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "src/batonkit"
SECONDS = 420
"""After so long, the tests hang: the change is noticed."""


@dataclass(frozen=True)
class Area:
    """Modules that belong together, and the tests that hold them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "flow": Area(
        ("team/follow.py", "team/edges.py", "team/team.py", "team/tasks.py", "team/loops.py"),
        ("tests/team", "tests/handoffs", "tests/workflows", "tests/workflows", "tests/runs", "tests/laws"),
    ),
    "turn": Area(
        ("agents/turn.py", "agents/calls.py", "agents/loop.py", "agents/model_calls.py", "agents/middleware_layers.py"),
        ("tests/agents", "tests/handoffs", "tests/context", "tests/middleware", "tests/runs", "tests/laws"),
    ),
    "journal": Area(
        ("runs/stored/journal.py", "runs/stored/repository.py", "runs/stored/driving.py"),
        ("tests/runs", "tests/stores", "tests/worker", "tests/laws"),
    ),
    "stores": Area(
        ("stores/memory.py", "stores/sqlite/store.py", "stores/keyvalue.py", "stores/records.py"),
        ("tests/conformance", "tests/stores", "tests/runs"),
    ),
    "history": Area(
        ("log/views.py", "log/fold.py", "log/history.py"),
        ("tests/team", "tests/context", "tests/handoffs", "tests/agents", "tests/runs", "tests/laws"),
    ),
}


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two positions of a module is replaced."""

    area: str
    module: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.kind}"


def mutants_of(area: str, module: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a module that this program knows."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset

    def mutant(node: ast.expr | ast.stmt, kind: str, text: str) -> Mutant:
        start, end = span(node)
        return Mutant(area, module, node.lineno, kind, start, end, text)

    def text_of(node: ast.expr) -> str:
        start, end = span(node)
        return source.encode()[start:end].decode()

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If | ast.While | ast.IfExp) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield mutant(node.test, "condition negated", f"(not ({text_of(node.test)}))")
        elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
            yield mutant(node.value, "result dropped", "None")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield mutant(node, "call left out", "pass")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Await):
            yield mutant(node, "awaited call left out", "pass")


def draw(seed: int, count: int) -> list[Mutant]:
    """Draw changes, as many in each area as far as possible."""
    chooser = random.Random(seed)
    drawn: list[Mutant] = []
    for number, (name, area) in enumerate(AREAS.items()):
        known = [
            mutant
            for module in area.modules
            if (path := REPOSITORY / PACKAGE / module).exists()
            for mutant in mutants_of(name, module, path.read_text(encoding="utf-8"))
        ]
        share = count // len(AREAS) + (number < count % len(AREAS))
        drawn += chooser.sample(known, min(share, len(known)))
    return drawn


def is_noticed(mutant: Mutant, workers: int) -> str:
    """Run the tests with one change; return the name of the test that fails, or "" if none does."""
    with TemporaryDirectory(prefix="baton-mutant-") as folder:
        sources = Path(folder) / "src"
        shutil.copytree(REPOSITORY / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        changed = sources / "batonkit" / mutant.module
        text = changed.read_bytes()
        changed.write_bytes(text[: mutant.start] + mutant.text.encode() + text[mutant.end :])
        # In order: the tests that are closest to the area come first.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(workers), "-p", "no:randomly"]
        command += ["-p", "no:cacheprovider", "-o", "timeout=60", *AREAS[mutant.area].tests]
        environment = os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            finished = subprocess.run(
                command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "(the tests hang)"
    if finished.returncode == 0:
        return ""
    failed = [line for line in finished.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:140] if failed else "(the tests cannot be collected)"


def main(arguments: list[str]) -> int:
    """Try each change that was drawn, and print the outcome; return 1 if one was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist")
    parser.add_argument("--first", type=int, default=0, help="the number of the first change")
    parser.add_argument("--only", type=int, help="the number of one change, to look at")
    options = parser.parse_args(arguments)
    unnoticed: list[Mutant] = []
    drawn = draw(options.seed, options.count)
    for number in range(options.first, len(drawn)) if options.only is None else [options.only]:
        mutant = drawn[number]
        test = is_noticed(mutant, options.workers)
        print(f"{number:>3} {mutant}: {test or 'NOT NOTICED'}", flush=True)
        unnoticed += [] if test else [mutant]
    print(f"{len(unnoticed)} not noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
