"""Tools that report progress, that come and go, and that give the answer. The model is scripted: no network.

python examples/agents/streaming_tools.py
baton check examples/agents/streaming_tools.py:archivist
baton run examples/agents/streaming_tools.py:runner "Find the letters."
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from batonkit import Agent, RunContext, Runner, tool
from batonkit.agents import StopAt
from batonkit.log import CustomDelta, ProgressDelta, ToolReturned
from batonkit.testing import call, scripted_or_real
from batonkit.tools import Final


@tool
async def search(ctx: RunContext[Any], word: str) -> AsyncIterator[str | dict[str, int] | Final[str]]:
    """Search the archive for a word."""
    for box in (1, 2):
        yield f"box {box}"  # Text is progress.
        yield {"box": box, "letters": box * 2}  # So is any other JSON value.
    ctx.values.set("found", 6)
    yield Final("6 letters in 2 boxes")  # Only this is recorded, and read by the model.


@tool(is_enabled=lambda ctx, agent: "found" in ctx.values)
async def export(ctx: RunContext[Any]) -> str:
    """Export what was found."""
    return f"{ctx.values['found']} letters are in letters.zip"


# The calls of one response run at once, but no more than two. After `export` the model is not asked again.
stop = StopAt(["export"])
archivist = Agent("Archivist", tools=[search, export], max_parallel_tools=2, tool_use_behavior=stop)
model = scripted_or_real([call("search", word="Vienna"), call("export")], cycle=True)
runner = Runner(archivist, model=model)


async def main() -> None:
    print(model.notice)
    async with runner.stream("Find the letters.") as run:
        async for event in run:
            if isinstance(event, ProgressDelta | CustomDelta):
                print(f"  … {event.text if isinstance(event, ProgressDelta) else event.data}")
            elif isinstance(event, ToolReturned):
                print(f"  {event.tool_name} returned: {event.content}")
    for number, request in enumerate(model.requests, 1):
        print(f"turn {number} offered: {', '.join(spec.name for spec in request.tools)}")
    print(f"{len(model.requests)} model calls; the answer: {run.result.output}")


if __name__ == "__main__":
    asyncio.run(main())
