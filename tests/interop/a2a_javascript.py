"""`make interop-a2a`: the official JavaScript client, under node, talks with our server. Needs npm."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.adapters.a2a.stage import served

from baton import Agent, RunContext, Runner, tool
from baton.adapters.a2a import serve_a2a
from baton.messages import ToolMessage, text_of
from baton.models import ModelRequest
from baton.testing import ScriptedModel, call

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / ".venv" / "a2a-client"


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("how many?")


def _step(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return f"you said {text_of(last.content)}"
    return call("ask_me") if text_of(last.content) == "ask" else "hello there"


def _app() -> Any:
    model = ScriptedModel([_step], cycle=True, stream=True)
    return serve_a2a(Runner(Agent("Desk", description="Helps.", tools=[ask_me]), model=model, store="memory:"))


def _fetched(npm: str) -> Path:
    """The script, beside the client it imports."""
    if not (ROOM / "node_modules").is_dir():
        ROOM.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--silent", "--no-save", "--prefix", str(ROOM), "@a2a-js/sdk@>=1.3.0"]
        subprocess.run(install, check=True, cwd=ROOM)
    return Path(shutil.copy(HERE / "a2a_client.mjs", ROOM))


async def _talk(node: str, script: Path) -> int:
    async with served(_app()) as url:
        client = await asyncio.create_subprocess_exec(node, str(script), url)
        return await client.wait()


def main() -> int:
    """Have the client talk; the exit code."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("node and npm are not here, so the official client cannot be asked", file=sys.stderr)
        return 1
    return asyncio.run(_talk(node, _fetched(npm)))


if __name__ == "__main__":
    sys.exit(main())
