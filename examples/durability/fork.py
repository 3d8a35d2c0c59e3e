"""What if? Another run from the middle of one. The model is scripted: no network, no key.

python examples/durability/fork.py
baton check examples/durability/fork.py:agent
"""

import asyncio
from typing import Any

from batonkit import Agent, RunContext, Runner, tool
from batonkit.messages import text_of
from batonkit.models import ModelRequest
from batonkit.testing import call, scripted_or_real

searches = 0


@tool
async def book(ctx: RunContext[Any], city: str) -> str:
    """Book a flight; the customer chooses the time."""

    def search() -> list[str]:
        global searches
        searches += 1
        return ["07:10", "09:40"]

    times = await ctx.step("search", search)
    return f"{city} at {await ctx.interrupt({'which of': times})}"


def confirm(request: ModelRequest) -> str:
    return f"You fly to {text_of(request.messages[-1].content)}."


agent = Agent("Travel", instructions="Book what is asked for.", tools=[book])


async def main() -> None:
    model = scripted_or_real([call("book", city="Rome"), confirm, confirm])
    print(model.notice)
    runner = Runner(agent, model=model, store="memory:")
    first = await runner.run("A flight to Rome, please.", run_id="first")
    first = await runner.resume("first", "09:40")
    for number, event in enumerate(first.events, start=1):
        print(f"{number:>3}  {event.key:<18} {type(event).__name__}")

    await runner.runs.fork("first", edit={"1/m1.0/ask1!": "07:10"}, run_id="second")
    second = await runner.resume("second")
    print(f"first:  {first.output}\nsecond: {second.output}")
    print(f"the model and the search were not asked again for what both have: {searches} search")

    replayed = await runner.runs.replay("first")
    print(f"replayed with no effects allowed: {replayed.output}")


if __name__ == "__main__":
    asyncio.run(main())
