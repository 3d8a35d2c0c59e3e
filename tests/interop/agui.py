"""`make interop`: the official AG-UI client, under node, talks with our server. Needs npm; not part of `make test`."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from baton import Agent, RunContext, Runner, tool
from baton.adapters.agui import frontend_tools, serve_agui
from baton.messages import ToolMessage, UserMessage, text_of
from baton.models import ModelRequest
from baton.server import serving
from baton.testing import ScriptedModel, call

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / ".venv" / "agui-client"


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("how many?")


@tool
async def note(ctx: RunContext) -> str:
    """Write a value."""
    ctx.values.set("a/b", {"n": 1})
    return "noted"


@tool
async def fail() -> str:
    """Fail."""
    raise SystemError("secret")


def _step(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        said = {"ask_me": "you said {}", "pick_color": "you picked {}", "helper": "the helper said: {}"}
        return said.get(last.name, "{}").format(text_of(last.content))
    assert isinstance(last, UserMessage)
    calls = {"state": call("note"), "team": call("helper", request="x"), "ask": call("ask_me")}
    return {**calls, "screen": call("pick_color"), "fail": ValueError("secret")}.get(text_of(last.content), "hello")


def _app() -> Any:
    helper = Agent("Helper", description="Helps.", model=ScriptedModel(["helped"], cycle=True))
    tools = [ask_me, note, helper.as_tool("helper", "Ask the helper.")]
    desk = frontend_tools(Agent("Desk", tools=tools, model=ScriptedModel([_step], cycle=True)))
    return serve_agui(Runner(desk, store="memory:"))


def _fetched(npm: str) -> Path:
    """The script, beside the client it imports."""
    if not (ROOM / "node_modules").is_dir():
        ROOM.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--silent", "--no-save", "--prefix", str(ROOM), "@ag-ui/client@>=1.0.0"]
        subprocess.run(install, check=True, cwd=ROOM)
    return Path(shutil.copy(HERE / "agui_client.mjs", ROOM))


async def _talk(node: str, script: Path) -> int:
    async with serving(_app()) as url:
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
