"""`make interop`: the official AG-UI client, under node, talks with our server. Needs npm; not part of `make test`."""

import asyncio
import sys
from typing import Any

from tests.interop.node import talked

from batonkit import Agent, RunContext, Runner, tool
from batonkit.messages import ToolMessage, UserMessage, text_of
from batonkit.models import ModelRequest
from batonkit.runs import BackgroundRunner
from batonkit.serve import serve_in_background
from batonkit.serve.agui import agui_app, with_frontend_tools
from batonkit.testing import ScriptedModel, call


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
        desk = with_frontend_tools(Agent("Desk", tools=tools, handoffs=[colleague], model=model))
        self._hub = BackgroundRunner(Runner(desk, store="memory:"))
        self.app = agui_app(self._hub)

    async def linger(self, ctx: RunContext) -> str:
        """Never end, and say so again and again: what is not recorded reaches only those who listen already."""
        try:
            while True:
                await ctx.emit("lingering")
                await asyncio.sleep(0.05)
        finally:
            self._cancelled += 1

    async def stop(self, ctx: RunContext) -> str:
        """Cancel this run from another task."""
        stopping = asyncio.create_task(self._hub.cancel(ctx.run_id))
        await asyncio.Event().wait()
        return str(stopping)

    async def cancelled(self) -> str:
        """Return the number of cancelled calls."""
        async with asyncio.timeout(10):
            while not self._cancelled:
                await asyncio.sleep(0.01)
        return str(self._cancelled)


def _step(request: ModelRequest) -> Any:
    """Call the tool that the last message names, then report its result."""
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


if __name__ == "__main__":
    sys.exit(talked(serve_in_background(Desk().app), "agui_client.mjs", client="@ag-ui/client@>=1.0.0"))
