"""`baton studio` and `baton serve --studio`: the printed URL, its token, and what is refused."""

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cli.conftest import Invoke
from tests.ports import free_port

from baton import Agent, Runner
from baton.testing import ScriptedModel

Write = Callable[..., Path]
TEAM = """
desk = Agent("Desk", description="Helps.", model=ScriptedModel(["hello"], cycle=True))
"""


async def _open(*arguments: str, cwd: Path, at: str = "/") -> tuple[str, int, int]:
    """Start a command, open the URL that it prints twice, and stop it; return the output and both statuses."""
    command = [sys.executable, "-m", "baton", *arguments, "--port", str(free_port())]
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
    # S16, S20
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a team, a store or both"),
        (("--store", "memory:", "--allow-anonymous"), "does not accept --allow-anonymous"),
        (("--store", "memory:", "--host", "0.0.0.0"), "can be reached from other machines"),
    ],
)
def test_unsafe_or_unclear_options_are_refused(baton: Invoke, arguments: Any, message: str) -> None:
    # S20
    result = baton("studio", *arguments)
    assert result.exit_code != 0
    assert message in result.output
