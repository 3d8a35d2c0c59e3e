"""Lesson 40: the tools of an MCP server, for one agent of a team. The model is scripted: no network, no key.

python examples/40_mcp.py
baton check examples/40_mcp.py:desk
baton mcp examples/40_mcp.py:desk
"""

import asyncio
import json
import sys

from baton import Agent, Runner
from baton.adapters import MCPServer
from baton.events import ToolReturned
from baton.testing import ScriptedModel, call

# A server that somebody else wrote (pip install mcp-server-time): a program of its own, started when it is needed.
clock = MCPServer([sys.executable, "-m", "mcp_server_time", "--local-timezone=UTC"], prefix="clock")

times = Agent("Times", description="Knows what time it is elsewhere.", instructions="Use the clock.", tools=[clock])
desk = Agent("Desk", description="Plans calls.", instructions="Find out who can answer.", handoffs=[times])
model = ScriptedModel(
    {
        "Desk": [call("transfer_to_times")],
        "Times": [
            call("clock_convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
            call("clock_convert_time", source_timezone="UTC", time="noon", target_timezone="Asia/Tokyo"),
            "At noon here it is nine in the evening in Tokyo: too late to call.",
        ],
    }
)
runner = Runner(desk, model=model)


async def main() -> None:
    """Ask when to call Tokyo."""
    result = await runner.run("Can I call Tokyo at noon?")
    print(f"tools of Times: {', '.join(spec.name for spec in model.requests[1].tools)}")
    right, wrong = [event for event in result.events if isinstance(event, ToolReturned) and not event.wanted]
    there = json.loads(str(right.content))["target"]["datetime"]
    print(f"the server answered: {there[11:16]} in Tokyo")
    print(f"the server refused: {wrong.content}")
    print(f"{result.agent}: {result.output}")


if __name__ == "__main__":
    print("scripted model: no language model is asked")
    asyncio.run(main())
