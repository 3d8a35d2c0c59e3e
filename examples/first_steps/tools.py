"""Tools are Python functions. The model is scripted: no network, no key.

python examples/first_steps/tools.py
baton check examples/first_steps/tools.py:shopkeeper
"""

from dataclasses import dataclass

from batonkit import Agent, RunContext, Runner, ToolError, tool
from batonkit.testing import call, scripted_or_real, transcript


@dataclass
class Shop:
    """Your own object: tools read it, models never see it."""

    stock: dict[str, int]


@tool
async def in_stock(ctx: RunContext[Shop], item: str) -> int:
    """Count an item in stock.

    Args:
        item: What the customer wants, in the singular.
    """
    return ctx.context.stock.get(item, 0)


@tool(timeout=5)
def price(item: str, *, quantity: int = 1) -> str:
    """Calculate the price of a number of items."""
    if quantity < 1:
        # A ToolError is a word to the model, which may then try again.
        raise ToolError("quantity must be at least 1")
    return f"{quantity} x {item}: {quantity * 4.5:.2f} EUR"


shopkeeper: Agent[Shop] = Agent("Shopkeeper", instructions="Use the tools, never guess.", tools=[in_stock, price])
model = scripted_or_real(
    [
        [call("in_stock", item="lamp"), call("price", item="lamp", quantity=0)],
        call("price", item="lamp", quantity=2),
        "There are 7 lamps; two of them cost 9.00 EUR.",
    ]
)
runner = Runner(shopkeeper, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("How much are two lamps?", context=Shop({"lamp": 7}))
    print("\n".join(transcript(result.events)))
    print(f"what the model is told: {in_stock.spec.description} {in_stock.spec.parameters['properties']}")


if __name__ == "__main__":
    main()
