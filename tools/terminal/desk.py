"""The team of the recorded terminal session: a router, and an agent whose tool needs approval."""

import asyncio

from batonkit import Agent, Runner, tool
from batonkit.messages import ToolCall
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call, transfer_to


@tool
async def find_order(order: str) -> str:
    """Look an order up."""
    await asyncio.sleep(0.6)
    return "lamp, 80 EUR, arrived broken"


@tool(needs_approval=True, effect="once")
async def refund(order: str, amount: int) -> str:
    """Pay money back."""
    await asyncio.sleep(0.8)
    return f"{amount} EUR paid back"


refunds = Agent("Refunds", description="Pays money back.", tools=[find_order, refund])
router = Agent("Router", description="Finds the right colleague.", sub_agents=[refunds])


def next_step(request: ModelRequest) -> ToolCall | str:
    """Choose the next step from the history, because a process that resumes has a new script."""
    called = {entry.name for message in request.messages for entry in getattr(message, "tool_calls", ())}
    if "find_order" not in called:
        return call("find_order", order="A-17")
    if "refund" not in called:
        return call("refund", order="A-17", amount=80)
    return "I have paid back 80 EUR for order A-17."


model = ScriptedModel({"Router": [transfer_to("Refunds")], "Refunds": [next_step]}, cycle=True, stream=True)
runner = Runner(router, model=model)
