"""Processes that serve one store, to be killed by tests."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from tests.ports import free_port


class Replicas:
    """Processes of one program that serve one store. `program` is a module that takes a port and a folder."""

    def __init__(self, folder: Path, program: str = "tests.serving.a2a.replica", probe: str = "") -> None:
        self.folder = folder
        self._program = program
        self._probe = probe or "/.well-known/agent-card.json"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, url: str = "", *options: str) -> str:
        """One more, or one again at its address; the address."""
        port = int(url.rpartition(":")[2]) if url else free_port()
        url = f"http://127.0.0.1:{port}"
        program = [sys.executable, "-m", self._program, str(port), str(self.folder), *options]
        self._processes[url] = subprocess.Popen(program)
        return url

    async def up(self, *urls: str) -> None:
        """Return when they answer."""
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
        """End one at once, as a failing machine would."""
        process = self._processes.pop(url)
        process.kill()
        process.wait()

    def ask_to_end(self, url: str) -> "subprocess.Popen[bytes]":
        """Have one end in good order; it takes its time."""
        process = self._processes.pop(url)
        process.send_signal(signal.SIGTERM)
        return process

    def close(self) -> None:
        """End all."""
        for url in [*self._processes]:
            self.kill(url)

    def allow(self, what: str) -> None:
        """Let those go on who wait for this."""
        (self.folder / what).touch()

    def notes(self) -> list[str]:
        """What was done, once for each time it was done."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    async def noted(self, what: str, times: int = 1) -> None:
        """Return when it has been done."""
        async with asyncio.timeout(60):
            while self.notes().count(what) < times:
                await asyncio.sleep(0.02)
