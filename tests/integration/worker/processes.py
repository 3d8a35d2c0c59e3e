"""`baton worker` as a process, for tests that stop, kill and freeze workers."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).parents[3]
_PROGRAM = "from batonkit.cli.main import main; main()"
SECONDS = 120.0
"""The time limit for a process to start or to end."""


class WorkerProcess:
    """A process that runs `baton worker`; it is killed at the end of the block.

    Args:
        arguments: The arguments of the command.
        cwd: The folder to start it in.
        environment: Additional environment variables.
    """

    def __init__(self, *arguments: str, cwd: Path = REPOSITORY, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-c", _PROGRAM, "worker", *arguments]
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        # A file instead of a pipe, which would be full some time.
        self._output = cwd / f"worker-{time.monotonic_ns()}.log" if cwd != REPOSITORY else None
        with (self._output or Path(os.devnull)).open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": path, **(environment or {})},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(SECONDS)

    @property
    def output(self) -> str:
        """The output of the process so far."""
        return "" if self._output is None else self._output.read_text(encoding="utf-8")

    def wait_until_ready(self) -> None:
        """Wait until the worker takes runs."""
        deadline = time.monotonic() + SECONDS
        while "worker: " not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    @property
    def health_url(self) -> str:
        """The address of the health endpoint."""
        found = re.search(r"health at (http://\S+)/healthz", self.output)
        assert found is not None, self.output
        return found[1]

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(SECONDS)

    def terminate(self) -> float:
        """Stop the process with SIGTERM; return the seconds until it was gone."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SECONDS)
        return time.monotonic() - started
