"""What a run costs, by agent, model and edge, and a limit on it. The model is scripted: no network, no key.

python examples/production/costs.py
baton check examples/production/costs.py:desk
"""

import asyncio

from batonkit import Agent, Limits, Runner
from batonkit.errors import LimitError
from batonkit.messages import Usage
from batonkit.models import ModelPrice, PriceTable
from batonkit.testing import ScriptedModel, call, say

# Dollars per million tokens. Models that are not in the table have the prices of genai-prices, if it is installed.
prices = PriceTable(
    {
        "acme:small": ModelPrice(input=0.5, output=2.0, cached_input=0.05),
        "acme:large": ModelPrice(input=5.0, output=20.0, cached_input=0.5, reasoning=25.0),
    }
)
handover = say("", call("transfer_to_expert"), usage=Usage(1200, 20, cached_tokens=1000))
answer = say("Use a heat pump.", usage=Usage(1500, 900, reasoning_tokens=700))
small = ScriptedModel([handover], name="acme:small", cycle=True)
large = ScriptedModel([answer], name="acme:large", cycle=True)
expert = Agent("Expert", description="Answers hard questions.", model=large)
desk = Agent("Desk", instructions="Answer, or hand over.", model=small, handoffs=[expert])


async def main() -> None:
    """Run the team without and with a limit."""
    result = await Runner(desk, prices=prices).run("How do I heat my house?")
    usage = result.usage
    print(f"{result.agent}: {result.output}")
    print(f"total: ${usage.total.cost:.4f}")
    for (source, target), used in usage.by_edge.items():
        print(f"  {source or 'start'} → {target}: {used.total_tokens} tokens, ${used.cost:.4f}")
    try:
        await Runner(desk, prices=prices, limits=Limits(cost=0.01)).run("How do I heat my house?")
    except LimitError as error:
        print(error)


if __name__ == "__main__":
    print("scripted model: no language model is called")
    asyncio.run(main())
