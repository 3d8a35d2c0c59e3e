"""Starts workers fast, by forking from a process that has everything loaded: `python -m tests.soak.nursery`.

It reads `work`, `kill PID` and `wait PID`, a line each, and answers with a line.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.worker import work

from baton.stores import resolve_store

REPOSITORY = Path(__file__).parents[2]


class Nursery:
    """The other end of it, for tests."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def worker(self) -> int:
        """Start one; its process id."""
        return int(self._told("work"))

    def kill(self, worker: int) -> bool:
        """Kill one with SIGKILL; whether it was alive until then."""
        return self._told(f"kill {worker}") == "killed"

    def wait(self, worker: int) -> int:
        """Wait until one has ended by itself; its exit code."""
        return int(self._told(f"wait {worker}"))

    def _told(self, wish: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{wish}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def nursery(url: str, ledger: Path) -> Generator[Nursery]:
    """A nursery for this store; what its workers complain about is in a file beside the ledger."""
    command = [sys.executable, "-m", "tests.soak.nursery", url, str(ledger)]
    pipe = subprocess.PIPE
    with (
        ledger.with_suffix(".errors").open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=REPOSITORY) as process,
    ):
        yield Nursery(process)


def serve(url: str, ledger: Path) -> None:
    """Handle commands until the input ends."""
    resolve_store(url)  # Loads the driver of its database, so that no worker spends its short life on that.
    for line in sys.stdin:
        wish, _, rest = line.strip().partition(" ")
        if wish == "work":
            told = _forked(url, ledger)
        elif wish == "kill":
            told = _killed(int(rest))
        else:
            told = os.waitstatus_to_exitcode(os.waitpid(int(rest), 0)[1])
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


def _forked(url: str, ledger: Path) -> int:
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            asyncio.run(work(url, ledger))
            code = 0
        finally:
            os._exit(code)
    return worker


def _killed(worker: int) -> str:
    if os.waitpid(worker, os.WNOHANG)[0]:
        return "ended"
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    return "killed"


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
