"""A team that processes orders with all kinds of agents and tools, and a log of its effects outside of the runs.

The model decides only by the messages it reads, so that any process can resume a run after another one died.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from batonkit import Agent, BaseAgent, ParallelAgent, RunContext, SequentialAgent, tool
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse

MAX_PAUSE = float(os.environ.get("BATON_SOAK_PAUSE", "0.02"))
"""The most seconds that a model call takes, and a tool before and after its effect."""


class Effect(NamedTuple):
    """An effect that happened: the tool, its idempotency key, the time and the process."""

    tool: str
    key: str
    at: float
    process: int


class EffectLog:
    """A file to which each effect is appended with one write, so that `kill -9` neither loses nor truncates one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, tool: str, key: str) -> None:
        """Append an effect."""
        line = f"{tool} {key} {time.time()!r} {os.getpid()}\n".encode()
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def effects(self) -> list[Effect]:
        """Return all effects in order."""
        if not self._path.exists():
            return []
        rows = [line.split() for line in self._path.read_text().splitlines()]
        return [Effect(name, key, float(at), int(process)) for name, key, at, process in rows]


async def _pause() -> None:
    await asyncio.sleep(random.uniform(0, MAX_PAUSE))


class OrderModel:
    """A model with fixed responses for each agent, followed by a final message."""

    name = "orders"
    responses: dict[str, tuple[tuple[str, ...], ...]] = {
        "Desk": (("look_up",), ("take_note", "take_note"), ("charge",), ("take_note",), ("transfer_to_orders",)),
        "Intake": (("look_up",), ("take_note", "charge"), ("transfer_to_review",)),
        "Review": (("take_note",),),
        "Packing": (("take_note", "take_note", "look_up"), ("take_note",)),
        "Invoicing": (("helper",), ("take_note",)),
        "Helper": (("charge", "take_note"),),
        "Shipping": (("ship",), ("take_note",)),
    }

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Return the next response of the agent, by the number of calls in the request."""
        await _pause()
        responses = self.responses[request.agent]
        made = sum(isinstance(message, AssistantMessage) and bool(message.tool_calls) for message in request.messages)
        if made >= len(responses):
            results = [text_of(message.content) for message in request.messages if isinstance(message, ToolMessage)]
            yield ModelResponse(AssistantMessage(f"{request.agent} is done: {', '.join(results)}"))
            return
        calls = [
            ToolCall(f"{request.agent}-{made}-{position}", name, '{"request": "go"}' if name == "helper" else "{}")
            for position, name in enumerate(responses[made])
        ]
        yield ModelResponse(AssistantMessage("", tuple(calls)))


def make_team(effect_log: EffectLog) -> BaseAgent[Any, Any]:
    """Create a team with transfers, parallel branches, an agent as a tool, an approval, and tools of every effect."""

    async def record_effect(ctx: RunContext, name: str) -> str:
        await _pause()
        effect_log.record(name, ctx.idempotency_key)
        await _pause()
        return f"{name} {ctx._scope}"

    @tool(effect="read")
    async def look_up(ctx: RunContext) -> str:
        """Look the order up."""
        return await record_effect(ctx, "look_up")

    @tool
    async def take_note(ctx: RunContext) -> str:
        """Take a note."""
        return await record_effect(ctx, "take_note")

    @tool(effect="once")
    async def charge(ctx: RunContext) -> str:
        """Charge the customer."""
        return await record_effect(ctx, "charge")

    @tool(effect="once", needs_approval=True)
    async def ship(ctx: RunContext) -> str:
        """Ship the order."""
        return await record_effect(ctx, "ship")

    review = Agent("Review", description="Reviews orders.", tools=[take_note])
    intake = Agent("Intake", description="Takes orders.", tools=[look_up, take_note, charge], handoffs=[review])
    helper = Agent("Helper", description="Helps.", tools=[take_note, charge])
    packing = Agent("Packing", description="Packs orders.", tools=[take_note, look_up])
    invoicing = Agent(
        "Invoicing", description="Writes invoices.", tools=[take_note, helper.as_tool(stream_events=False)]
    )
    shipping = Agent("Shipping", description="Ships orders.", tools=[take_note, ship])
    orders = SequentialAgent(
        "Orders",
        description="Processes orders.",
        sub_agents=[intake, ParallelAgent("Both", sub_agents=[packing, invoicing]), shipping],
    )
    return Agent("Desk", tools=[look_up, take_note, charge], handoffs=[orders])


ONCE = ("charge", "ship")
EFFECTS_OF_AN_ORDER = sum(
    name in ("look_up", "take_note", *ONCE)
    for responses in OrderModel.responses.values()
    for calls in responses
    for name in calls
)
