"""Server processes that share a store, and that tests kill."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from tests.ports import free_port


class Replicas:
    """Processes of one program with a shared store. `program` is a module that takes a port and a folder."""

    def __init__(self, folder: Path, program: str = "tests.integration.serve.a2a.replica", probe: str = "") -> None:
        self.folder = folder
        self._program = program
        self._probe = probe or "/.well-known/agent-card.json"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, url: str = "", *options: str) -> str:
        """Start a process, at this URL if one is given; return its URL."""
        port = int(url.rpartition(":")[2]) if url else free_port()
        url = f"http://127.0.0.1:{port}"
        program = [sys.executable, "-m", self._program, str(port), str(self.folder), *options]
        self._processes[url] = subprocess.Popen(program)
        return url

    async def wait_until_up(self, *urls: str) -> None:
        """Wait until the servers respond."""
        async with httpx.AsyncClient() as http:
            for url in urls:
                while True:
                    try:
                        await http.get(url + self._probe)
                        break
                    except httpx.HTTPError:
                        assert self._processes[url].poll() is None
                        await asyncio.sleep(0.05)

    def kill(self, url: str) -> None:
        """Kill a process immediately, like a machine failure."""
        process = self._processes.pop(url)
        process.kill()
        process.wait()

    def terminate(self, url: str) -> "subprocess.Popen[bytes]":
        """Ask a process to shut down gracefully, and return it without waiting."""
        process = self._processes.pop(url)
        process.send_signal(signal.SIGTERM)
        return process

    def close(self) -> None:
        """Kill all processes."""
        for url in [*self._processes]:
            self.kill(url)

    def allow(self, what: str) -> None:
        """Create a file that agents wait for."""
        (self.folder / what).touch()

    def notes(self) -> list[str]:
        """Return the recorded actions."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    async def wait_for_note(self, what: str, times: int = 1) -> None:
        """Wait until an action has happened."""
        await self._wait_for_line("notes", what, times)

    async def wait_until_stored(self, what: str) -> None:
        """Wait until an action is in the log, so that a kill does not repeat it."""
        await self._wait_for_line("stored", what, 1)

    async def _wait_for_line(self, file: str, line: str, times: int) -> None:
        path = self.folder / file
        async with asyncio.timeout(60):
            while (path.read_text().splitlines() if path.exists() else []).count(line) < times:
                await asyncio.sleep(0.02)
