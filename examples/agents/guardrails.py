"""Guardrails reject input, output and tool calls. The model is scripted.

python examples/agents/guardrails.py
baton check examples/agents/guardrails.py:desk
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from batonkit import Agent, GuardrailVerdict, RunContext, Runner, guardrail, tool
from batonkit.errors import GuardrailTrippedError
from batonkit.messages import Message, text_of
from batonkit.testing import call, scripted_or_real

paid: list[float] = []


def at_most_100(ctx: RunContext[Any], arguments: dict[str, Any]) -> GuardrailVerdict:
    return GuardrailVerdict(arguments["amount"] <= 100, "more than 100 EUR needs the head office")


@tool(input_guardrails=[at_most_100])
def pay(amount: float) -> str:
    """Pay money back."""
    paid.append(amount)
    return f"{amount:.2f} EUR paid back"


# In parallel: the model is called while the guardrail runs; its answer is held back until the guardrail passes.
@guardrail(parallel=True)
async def no_legal_advice(ctx: RunContext[Any], messages: Sequence[Message]) -> GuardrailVerdict:
    return GuardrailVerdict("sue" not in text_of(messages[-1].content), "we give no legal advice")


@guardrail(name="no promises")
def no_promises(ctx: RunContext[Any], output: str) -> bool:
    return "guarantee" not in output


desk = Agent("Clerk", tools=[pay], input_guardrails=[no_legal_advice], output_guardrails=[no_promises])
too_much, enough = call("pay", amount=500), call("pay", amount=80)
model = scripted_or_real([too_much, enough, "80 EUR are on their way.", enough])
runner = Runner(desk, model=model)


async def main() -> None:
    print(model.notice)
    result = await runner.run("Refund my 500 EUR.")
    print(f"{result.output} Paid: {paid}")
    for each in result.guardrail_results:
        print(f"  {each.stage} {each.name}: {'passed' if each.verdict.passed else each.verdict.reason}")
    try:
        await runner.run("Pay or I sue you.")
    except GuardrailTrippedError as trip:
        print(f"{trip} (paid is still {paid})")


if __name__ == "__main__":
    asyncio.run(main())
