"""`make interop-a2a`: the official JavaScript client, under node, talks with our server. Needs npm."""

import sys
from typing import Any

from tests.interop.node import talked
from tests.serve.a2a.clients import served

from batonkit import Agent, RunContext, Runner, tool
from batonkit.messages import ToolMessage, text_of
from batonkit.models import ModelRequest
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel, call


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
    return a2a_app(Runner(Agent("Desk", description="Helps.", tools=[ask_me]), model=model, store="memory:"))


if __name__ == "__main__":
    sys.exit(talked(served(_app()), "a2a_client.mjs", client="@a2a-js/sdk@>=1.3.0"))
