"""A function that returns an agent is a transfer to it. The model is scripted: no network, no key.

python examples/first_steps/function_returns_agent.py
baton check examples/first_steps/function_returns_agent.py:triage
"""

from typing import Any

from batonkit import Agent, RunContext, Runner
from batonkit.testing import call, scripted_or_real, transcript

sales = Agent("Sales", description="Sells things.", instructions="Sell something.")
refunds = Agent(
    "Refunds",
    description="Pays money back.",
    # {order} is filled in from the run's values, because template=True.
    instructions="Settle the refund of order {order}.",
    template=True,
)


def to_sales() -> Agent:
    """Hand over to the agent that sells things."""
    return sales


def to_refunds(ctx: RunContext[Any], order: str) -> Agent:
    """Hand over to the agent that pays money back."""
    ctx.values.set("order", order)
    return refunds


triage = Agent("Triage", instructions="Find out who can help.", tools=[to_sales, to_refunds])
model = scripted_or_real({"Triage": [call("to_refunds", order="A-17")], "Refunds": ["A-17 is refunded."]})
runner = Runner(triage, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("I want my money back for A-17.")
    print("\n".join(transcript(result.events)))
    print(f"Refunds was told: {model.requests[-1].instructions}")
    print(f"values: {result.values}")


if __name__ == "__main__":
    main()
