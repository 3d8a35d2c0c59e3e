"""Tests of `make test` wait for events and states, not for time."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.shape import REPOSITORY

TESTS = REPOSITORY / "tests"
ELSEWHERE = ("integration", "interop", "architecture")
"""Folders whose tests may be late, or are not part of `make test`."""
ALLOWED = {
    "tests/waiting.py": "polls a condition",
    "tests/leftovers.py": "waits for processes that end",
    "tests/postgres.py": "waits for the start of a server",
    "tests/temporal_server.py": "waits for the start of a server",
    "tests/servers/server.py": "delays a response as its script says",
    "tests/servers/realtime/connection.py": "notes when events were sent, and hangs as its script says",
    "tests/servers/realtime/session.py": "paces audio as its script says",
}
CLOCKS = frozenset({"monotonic", "perf_counter", "process_time", "monotonic_ns", "perf_counter_ns"})


def waits(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of calls that sleep, and of calls or comparisons that measure time."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            owner, name = called(node.func)
            is_yield = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if name == "sleep" and owner in ("asyncio", "time", "") and not is_yield:
                yield node.lineno, "sleeps; wait with tests.waiting.until, or forever()"
            if name in CLOCKS:
                yield node.lineno, "measures time; use a clock that the test sets"
        elif isinstance(node, ast.Compare | ast.Assert):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and called(inner.func) == ("time", "time"):
                    yield node.lineno, "compares the time; use a clock that the test sets"


def called(function: ast.expr) -> tuple[str, str]:
    if isinstance(function, ast.Attribute):
        return (function.value.id if isinstance(function.value, ast.Name) else "?"), function.attr
    return "", function.id if isinstance(function, ast.Name) else ""


def test_no_test_can_be_late() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in ELSEWHERE]
    assert len(files) > 300
    found = [
        f"{name}:{line}: {fault}"
        for path in files
        if (name := str(path.relative_to(REPOSITORY))) not in ALLOWED
        for line, fault in waits(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0.1)",
        "time.sleep(pause)",
        "from asyncio import sleep\nawait sleep(1)",
        "started = time.monotonic()",
        "assert perf_counter() - started < 1",
        "assert abs(seen - time.time()) < 5",
        "while time.time() < end: pass",
    ],
)
def test_waiting_is_found(source: str) -> None:
    assert len(list(waits(source))) >= 1


@pytest.mark.parametrize(
    "source", ["await asyncio.sleep(0)", "await ctx.sleep(HOUR)", "store(clock=lambda: time.time())"]
)
def test_other_code_passes(source: str) -> None:
    assert list(waits(source)) == []


def test_the_exceptions_exist() -> None:
    assert [name for name in ALLOWED if not Path(REPOSITORY / name).exists()] == []
