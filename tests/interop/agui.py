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
from baton.runner import Hub
from baton.server import serving
from baton.testing import ScriptedModel, call

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / ".venv" / "agui-client"


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("how many?")


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool
async def note(ctx: RunContext) -> str:
    """Write a value, and remove another."""
    ctx.values.set("a/b", {"n": 1})
    if "old" in ctx.values:
        ctx.values.delete("old")
    return "noted"


class Desk:
    """An app, and what can be seen only from its side."""

    def __init__(self) -> None:
        self._cancelled = 0
        helper = Agent("Helper", description="Helps.", model=ScriptedModel(["helped"], cycle=True))
        asker = Agent("Asker", description="Asks.", tools=[ask_me], model=ScriptedModel([_step], cycle=True))
        colleague = Agent("Colleague", description="Takes over.", model=ScriptedModel(["with pleasure"], cycle=True))
        tools = [ask_me, pay, note, helper.as_tool("helper", "Ask the helper."), asker.as_tool("asker", "Ask.")]
        tools += [tool(self.linger), tool(self.stop), tool(self.cancelled)]
        model = ScriptedModel([_step], cycle=True)
        desk = frontend_tools(Agent("Desk", tools=tools, handoffs=[colleague], model=model))
        self._hub = Hub(Runner(desk, store="memory:"))
        self.app = serve_agui(self._hub)

    async def linger(self, ctx: RunContext) -> str:
        """Never end, and say so again and again: what is not recorded reaches only those who listen already."""
        try:
            while True:
                await ctx.emit("lingering")
                await asyncio.sleep(0.05)
        finally:
            self._cancelled += 1

    async def stop(self, ctx: RunContext) -> str:
        """Have somebody else cancel this run."""
        stopping = asyncio.create_task(self._hub.stop(ctx.run_id))
        await asyncio.Event().wait()
        return str(stopping)

    async def cancelled(self) -> str:
        """How many calls have been cancelled."""
        async with asyncio.timeout(10):
            while not self._cancelled:
                await asyncio.sleep(0.01)
        return str(self._cancelled)


def _step(request: ModelRequest) -> Any:
    """What the last message asks for, then what came of it."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        said = {"ask_me": "you said {}", "pick_color": "you picked {}", "helper": "the helper said: {}"}
        return said.get(last.name, "{}").format(text_of(last.content))
    assert isinstance(last, UserMessage)
    calls = {
        "state": call("note"),
        "team": call("helper", request="x"),
        "ask": call("ask_me"),
        "ask inside": call("asker", request="ask"),
        "ask twice": [call("ask_me"), call("pay")],
        "transfer": call("transfer_to_colleague"),
        "screen": call("pick_color"),
        "linger": call("linger"),
        "stop": call("stop"),
        "cancelled": call("cancelled"),
        "fail": ValueError("secret"),
    }
    return calls.get(text_of(last.content), "hello there")


def _fetched(npm: str) -> Path:
    """The script, beside the client it imports."""
    if not (ROOM / "node_modules").is_dir():
        ROOM.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--silent", "--no-save", "--prefix", str(ROOM), "@ag-ui/client@>=1.0.0"]
        subprocess.run(install, check=True, cwd=ROOM)
    return Path(shutil.copy(HERE / "agui_client.mjs", ROOM))


async def _talk(node: str, script: Path) -> int:
    async with serving(Desk().app) as url:
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
