"""Kill the process after every event, and see whether the team minds. The model is scripted: no network.

python examples/durability/crash_laboratory.py
baton check examples/durability/crash_laboratory.py:shop
"""

import asyncio
from typing import Any

from batonkit import Agent, RunContext, Runner, tool
from batonkit.stores import Store
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, crash_report

STEPS = [call("put", item="lamp"), call("check_out"), "Thank you."]


def shop_that_forgets(store: Store) -> Runner:
    """Its basket is in the memory of one process."""
    basket: list[str] = []

    @tool
    async def put(item: str) -> str:
        """Put something into the basket."""
        basket.append(item)
        return "it is in the basket"

    @tool
    async def check_out() -> str:
        """Pay for what is in the basket."""
        return f"paid for {len(basket)}"

    return Runner(Agent("Shop", tools=[put, check_out]), model=ScriptedModel(STEPS), store=store)


@tool
async def put(ctx: RunContext[Any], item: str) -> str:
    """Put something into the basket."""
    ctx.values.set("basket", [*ctx.values.get("basket", []), item])
    return "it is in the basket"


@tool
async def check_out(ctx: RunContext[Any]) -> str:
    """Pay for what is in the basket."""
    return f"paid for {len(ctx.values.get('basket', []))}"


shop = Agent("Shop", tools=[put, check_out])  # The basket is in the run's values, and so in the log.


async def main() -> None:
    print("scripted model: no language model is called")
    print(await crash_report(shop_that_forgets, "A lamp, please."))
    # In a test, this line is all:
    print(await assert_survives_crashes(lambda store: Runner(shop, model=ScriptedModel(STEPS), store=store), "Go."))


if __name__ == "__main__":
    asyncio.run(main())
