"""Listen to a run while it happens. The model is scripted: no network, no key.

python examples/first_steps/streaming.py
baton check examples/first_steps/streaming.py:librarian
baton run examples/first_steps/streaming.py:runner "Count the books"
"""

import asyncio
from typing import Any

from batonkit import Agent, RunContext, Runner, tool
from batonkit.log import ProgressDelta, TextDelta, ToolReturned
from batonkit.testing import call, scripted_or_real


@tool
async def count_books(ctx: RunContext[Any], shelves: int) -> int:
    """Count the books on a number of shelves."""
    for shelf in range(1, shelves + 1):
        await ctx.progress(f"shelf {shelf}", done=shelf, total=shelves)
    return shelves * 30


librarian = Agent("Librarian", instructions="Count when asked.", tools=[count_books])
model = scripted_or_real([call("count_books", shelves=3), "There are 90 books here."], stream=True, cycle=True)
runner = Runner(librarian, model=model)


async def main() -> None:
    print(model.notice)
    pieces = 0
    async with runner.stream("How many books are there?") as run:
        async for event in run:
            match event:
                case ProgressDelta():
                    print(f"  … {event.text} ({event.done:g} of {event.total:g})")
                case ToolReturned():
                    print(f"  {event.tool_name} returned {event.content}")
                case TextDelta():
                    pieces += 1
                    print(event.text, end="", flush=True)
                case _:
                    pass
    print(f"\n{pieces} pieces of text, {len(run.result.events)} events in the log; deltas are not logged")


if __name__ == "__main__":
    asyncio.run(main())
