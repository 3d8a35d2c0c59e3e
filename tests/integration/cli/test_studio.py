"""`baton studio` and `baton serve --studio`: the printed URL, its token, and what is refused."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cli.programs import Invoke
from tests.ports import free_port

from batonkit import Agent, Runner
from batonkit.testing import ScriptedModel

Write = Callable[..., Path]
TEAM = """
desk = Agent("Desk", description="Helps.", model=ScriptedModel(["hello"], cycle=True))
"""


async def _open(*arguments: str, cwd: Path, at: str = "/") -> tuple[str, int, int]:
    """Start a command, open the URL that it prints twice, and stop it; return the output and both statuses."""
    command = [sys.executable, "-m", "batonkit", *arguments, "--port", str(free_port())]
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        printed = ""
        async with asyncio.timeout(120):
            while (found := re.search(r"http://\S+token=\S+", printed)) is None:
                line = await process.stderr.readline()
                assert line, printed
                printed += line.decode()
        statuses: list[int] = []
        for _ in range(2):
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
                session.get(found[0].partition("#")[0]) as page,
            ):
                statuses.append(page.status)
        return printed, statuses[0], statuses[1]
    finally:
        process.terminate()
        await process.wait()


async def test_the_printed_url_opens_a_run_once(write: Write, tmp_path: Path) -> None:
    write(TEAM)
    async with Runner(Agent("Desk", model=ScriptedModel(["hello"])), store=tmp_path / "runs.db") as runner:
        await runner.run("hi", run_id="r1")
    printed, first, second = await _open("studio", "desk:desk", "--store", "runs.db", "--run", "r1@2", cwd=tmp_path)
    assert "#r1@2" in printed
    assert (first, second) == (200, 403)


async def test_a_store_is_shown_without_a_team(tmp_path: Path) -> None:
    async with Runner(Agent("Desk", model=ScriptedModel(["hello"])), store=tmp_path / "runs.db") as runner:
        await runner.run("hi", run_id="r1")
    _, first, _ = await _open("studio", "--store", "runs.db", cwd=tmp_path)
    assert first == 200


async def test_a_server_has_studio_beside_its_api(write: Write, tmp_path: Path) -> None:
    write(TEAM)
    printed, first, second = await _open("serve", "desk:desk", "--store", "runs.db", "--studio", cwd=tmp_path)
    assert "/studio/?token=" in printed
    assert (first, second) == (200, 403)


@pytest.mark.parametrize("command", [("studio", "desk:desk"), ("serve", "desk:desk", "--studio")])
async def test_reload_loads_the_team_again_and_keeps_browsers_signed_in(
    write: Write, tmp_path: Path, command: tuple[str, ...]
) -> None:
    def team(name: str) -> str:
        return f'desk = Agent("{name}", model=ScriptedModel(["hello"], cycle=True))'

    write(team("Desk"))
    arguments = [*command, "--store", "runs.db", "--reload", "--drain", "0", "--port", str(free_port())]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batonkit", *arguments),
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
        # A group of its own, because another process serves.
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            printed = ""
            while (found := re.search(r"(http://\S+/)\?token=\S+", printed)) is None:
                line = await process.stderr.readline()
                assert line, printed
                printed += line.decode()
            async with session.get(found[0]) as page:
                assert page.status == 200

            async def root() -> str:
                # The socket stays open while the server restarts, so requests only wait.
                async with session.get(f"{found[1]}config.json") as answer:
                    assert answer.status == 200, "the browser is not signed in any more"
                    return (await answer.json())["root"]

            assert await root() == "Desk"
            write(team("Counter"))
            while await root() != "Counter":
                await asyncio.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a team, a store or both"),
        (("--store", "memory:", "--allow-anonymous"), "does not accept --allow-anonymous"),
        (("--store", "memory:", "--host", "0.0.0.0"), "can be reached from other machines"),
    ],
)
def test_unsafe_or_unclear_options_are_refused(baton: Invoke, arguments: Any, message: str) -> None:
    result = baton("studio", *arguments)
    assert result.exit_code != 0
    assert message in result.output
