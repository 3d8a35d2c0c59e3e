"""A team for the deployment example, which the API server, the workers and Studio import.

The model is scripted unless BATON_MODEL is set.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from batonkit import Agent, Runner, tool
from batonkit.messages import ToolMessage
from batonkit.models import ModelRequest
from batonkit.stores import resolve_store
from batonkit.testing import ScriptedModel, call


@tool(effect="read")
async def look_up(order: str) -> str:
    """Look up an order, which takes a while.

    Args:
        order: The number of the order.
    """
    await asyncio.sleep(float(os.environ.get("DESK_SECONDS", "1")))
    return f"order {order} was shipped yesterday"


def _next_step(request: ModelRequest) -> Any:
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    return "Your order was shipped yesterday." if results else call("look_up", order="A-17")


_script: Sequence[Any] = [_next_step]
_model = None if "BATON_MODEL" in os.environ else ScriptedModel(_script, cycle=True)
desk = Agent("Desk", instructions="Answer questions about orders.", tools=[look_up])
_store = resolve_store(os.environ.get("DESK_STORE", "runs.db"), lease_seconds=5)
runner = Runner(desk, model=_model, store=_store)
