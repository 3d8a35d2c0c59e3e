"""A process that starts workers quickly, by forking after all imports: `python -m tests.integration.soak.fork_server`.

It reads the commands `work`, `kill PID` and `wait PID`, one per line, and replies with one line each.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.soak.worker import work

from batonkit.stores import resolve_store

REPOSITORY = Path(__file__).parents[3]


class ForkServer:
    """The client of a fork server process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start_worker(self) -> int:
        """Start a worker and return its process id."""
        return int(self._request("work"))

    def kill(self, worker: int) -> bool:
        """Kill a worker with SIGKILL; return False if it had already ended."""
        return self._request(f"kill {worker}") == "killed"

    def wait(self, worker: int) -> int:
        """Wait until a worker has ended and return its exit code."""
        return int(self._request(f"wait {worker}"))

    def _request(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def start_fork_server(url: str, log_path: Path) -> Generator[ForkServer]:
    """Start a fork server for this store; the stderr of its workers is in a file next to the effect log."""
    command = [sys.executable, "-m", "tests.integration.soak.fork_server", url, str(log_path)]
    pipe = subprocess.PIPE
    with (
        log_path.with_suffix(".errors").open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=REPOSITORY) as process,
    ):
        yield ForkServer(process)


def serve(url: str, log_path: Path) -> None:
    """Handle commands until the input ends."""
    resolve_store(url)  # Loads the database driver, so that the workers do not spend their short life on that.
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        if command == "work":
            reply = _fork_worker(url, log_path)
        elif command == "kill":
            reply = _kill_worker(int(rest))
        else:
            reply = os.waitstatus_to_exitcode(os.waitpid(int(rest), 0)[1])
        sys.stdout.write(f"{reply}\n")
        sys.stdout.flush()


def _fork_worker(url: str, log_path: Path) -> int:
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            asyncio.run(work(url, log_path))
            code = 0
        finally:
            os._exit(code)
    return worker


def _kill_worker(worker: int) -> str:
    if os.waitpid(worker, os.WNOHANG)[0]:
        return "ended"
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    return "killed"


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
