"""Follow the README as a newcomer does: its program against a local server, and its commands, in an environment."""

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from tests.architecture.test_fences import FENCE, fences_in
from tests.ports import free_port
from tests.servers import OpenAIServer
from tests.waiting import PATIENCE
from tools.terminal.story import CHAT, QUESTION, STEPS

_EXTRAS = re.compile(r"(?:\.|batonkit)\[(?P<extras>[\w,-]+)\]")


class ReadmeError(Exception):
    """A line of the README that does not do what it says."""


def commands_in(readme: str) -> Iterator[str]:
    """Yield the lines of the sh fences."""
    for fence in FENCE.finditer(readme):
        if fence["info"].strip() == "sh":
            yield from filter(None, map(str.strip, fence["code"].splitlines()))


def extras_in(readme: str) -> list[set[str]]:
    """Return the extras of each installation that the README names, also those in comments."""
    installations = [line for line in commands_in(readme) if "pip install" in line]
    return [set(match["extras"].split(",")) for line in installations for match in _EXTRAS.finditer(line)]


class Reader:
    """A newcomer with the README, an environment in which it is installed, and an empty folder."""

    def __init__(self, readme: str, scripts: Path, folder: Path) -> None:
        self._readme = readme
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATON_", "PYTHON"))}
        path = f"{scripts}{os.pathsep}{kept['PATH']}"
        self._environment = {**kept, "PATH": path, "PYTHONUTF8": "1", "COLUMNS": "200"}

    async def run_program(self) -> str:
        """Chat with the program, kill the chat at the open question, and return what the next one prints."""
        _, program = next(fences_in(self._readme))
        (self._folder / "desk.py").write_text(program, encoding="utf-8")
        if f"`{CHAT}`" not in self._readme:
            raise ReadmeError(f"the README does not say `{CHAT}`, which is in its picture")
        async with OpenAIServer(STEPS) as server:
            self._environment |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": server.api_key}
            await self.run("python -W error desk.py")
            await self._chat_until_killed()
            resumed = await self.run(CHAT, typed="y\ny\n")
            server.assert_done()
        return resumed

    async def run_commands(self) -> list[str]:
        """Run the commands that need no network, from top to bottom; return what each printed."""
        printed: list[str] = []
        for line in commands_in(self._readme):
            match shlex.split(line, comments=True):
                case ["pip", "install", *_] | ["make", "demo" | "test"]:
                    pass
                case ["baton", "demo", *options] if "scripted" in options:
                    printed.append(await self.run(line))
                case ["baton", "studio", *options]:
                    printed.append(await self._open_studio(options))
                case _:
                    raise ReadmeError(f"say in {__name__} how to follow `{line}`")
        return printed

    async def run(self, command: str, *, typed: str = "") -> str:
        """Run a command with these lines as its input; return what it prints."""
        process = await self._start(*shlex.split(command, comments=True))
        output, _ = await process.communicate(typed.encode())
        if process.returncode:
            raise ReadmeError(f"`{command}` ended with {process.returncode}:\n{output.decode()}")
        return output.decode()

    async def _chat_until_killed(self) -> None:
        process = await self._start(*shlex.split(CHAT))
        assert process.stdin is not None
        try:
            process.stdin.write(f"{QUESTION}\n".encode())
            await self._read_until(r"allow refund\(", process)
        finally:
            process.kill()
            await process.wait()

    async def _open_studio(self, options: list[str]) -> str:
        """Start Studio, open the address that it prints, and stop it; return the page."""
        process = await self._start("baton", "studio", *options, "--port", str(free_port()))
        try:
            url = await self._read_until(r"http://\S+token=\S+", process)
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as session, session.get(url) as page:
                page.raise_for_status()
                return await page.text()
        finally:
            process.terminate()
            await process.wait()

    async def _read_until(self, pattern: str, process: asyncio.subprocess.Process) -> str:
        """Read what a process prints until a pattern is found; return what matches it."""
        assert process.stdout is not None
        printed = ""
        async with asyncio.timeout(PATIENCE):
            while (found := re.search(pattern, printed)) is None:
                data = await process.stdout.read(65536)
                if not data:
                    raise ReadmeError(f"a process ended before it printed `{pattern}`:\n{printed}")
                printed += data.decode()
        return found[0]

    async def _start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
