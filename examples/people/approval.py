"""A person allows a tool call, changes it or refuses it. The model is scripted: no network, no key.

python examples/people/approval.py
baton check examples/people/approval.py:clerk
baton chat examples/people/approval.py:runner
"""

import asyncio
from typing import Any

from batonkit import Agent, Approval, RunContext, Runner, tool
from batonkit.testing import ScriptedModel, call

paid: list[float] = []


def is_large(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
    return arguments["amount"] > 20


@tool(needs_approval=is_large)
async def refund(order: str, amount: float) -> str:
    """Pay money back."""
    paid.append(amount)
    return f"{amount:.2f} EUR paid back for {order}"


clerk = Agent("Clerk", instructions="Settle refunds.", tools=[refund])
model = ScriptedModel(
    [
        [
            call("refund", order="A", amount=5),
            call("refund", order="B", amount=80),
            call("refund", order="C", amount=95),
        ],
        "A and B are paid back, C is not.",
    ],
    cycle=True,
)
runner = Runner(clerk, model=model)


async def main() -> None:
    print("scripted model: no language model is called")
    result = await runner.run("Refund A, B and C.")
    print(f"{result.status}, paid so far: {paid}")
    b, c = result.interrupts
    print(f"open: {b.payload['arguments']} and {c.payload['arguments']}")

    # One answer at a time is fine: the other question stays open.
    result = await runner.resume(result.run_id, {b.id: Approval(True, arguments={"order": "B", "amount": 60})})
    print(f"{result.status}, still open: {len(result.interrupts)}")
    result = await runner.resume(result.run_id, {c.id: Approval(False, "the receipt is missing")})
    print(f"{result.status}: {result.output} Paid: {paid}")


if __name__ == "__main__":
    asyncio.run(main())
