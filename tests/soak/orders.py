"""Orders that a team works off, a bit of everything in each, with a ledger outside of the program.

The model decides by what it reads alone, so that any process can go on where another one died.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from baton import Agent, BaseAgent, ParallelAgent, RunContext, SequentialAgent, tool
from baton.messages import AssistantMessage, ToolCall, ToolMessage, text_of
from baton.models import Chunk, ModelRequest, ModelResponse

LONGEST_PAUSE = 0.02


class Deed(NamedTuple):
    """An effect that happened: of which tool, under which key, when, and in which process."""

    tool: str
    key: str
    at: float
    process: int


class Ledger:
    """A file to which effects are added in one piece each, so that not even `kill -9` loses or halves one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, tool: str, key: str) -> None:
        """Write down that it happens."""
        line = f"{tool} {key} {time.time()!r} {os.getpid()}\n".encode()
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def deeds(self) -> list[Deed]:
        """All that happened, in order."""
        if not self._path.exists():
            return []
        rows = [line.split() for line in self._path.read_text().splitlines()]
        return [Deed(name, key, float(at), int(process)) for name, key, at, process in rows]


async def _pause() -> None:
    await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))


class Clerk:
    """A model that goes by a list: each agent makes the calls of its next response, and then says that it is done."""

    name = "clerk"
    responses: dict[str, tuple[tuple[str, ...], ...]] = {
        "Front": (("look",), ("note", "charge"), ("transfer_to_desk",)),
        "Desk": (("note",),),
        "Left": (("note", "note", "look"), ("note",)),
        "Right": (("helper",), ("note",)),
        "Helper": (("charge", "note"),),
        "Back": (("ship",), ("note",)),
    }

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next response of this agent, as far as it can see."""
        await _pause()
        todo = self.responses[request.agent]
        made = sum(isinstance(message, AssistantMessage) and bool(message.tool_calls) for message in request.messages)
        if made >= len(todo):
            results = [text_of(message.content) for message in request.messages if isinstance(message, ToolMessage)]
            yield ModelResponse(AssistantMessage(f"{request.agent} is done: {', '.join(results)}"))
            return
        calls = [
            ToolCall(f"{request.agent}-{made}-{position}", name, '{"request": "go"}' if name == "helper" else "{}")
            for position, name in enumerate(todo[made])
        ]
        yield ModelResponse(AssistantMessage("", tuple(calls)))


def team(ledger: Ledger) -> BaseAgent[Any, Any]:
    """Transfers, branches at once, an agent as a tool, an approval, and tools of every effect."""

    async def do(ctx: RunContext, name: str) -> str:
        await _pause()
        ledger.note(name, ctx.idempotency_key)
        await _pause()
        return f"{name} {ctx._scope}"

    @tool(effect="read")
    async def look(ctx: RunContext) -> str:
        """Look."""
        return await do(ctx, "look")

    @tool
    async def note(ctx: RunContext) -> str:
        """Note."""
        return await do(ctx, "note")

    @tool(effect="once")
    async def charge(ctx: RunContext) -> str:
        """Charge."""
        return await do(ctx, "charge")

    @tool(effect="once", needs_approval=True)
    async def ship(ctx: RunContext) -> str:
        """Ship."""
        return await do(ctx, "ship")

    desk = Agent("Desk", description="The desk.", tools=[note])
    front = Agent("Front", description="The front.", tools=[look, note, charge], handoffs=[desk])
    helper = Agent("Helper", description="Helps.", tools=[note, charge])
    left = Agent("Left", description="The left.", tools=[note, look])
    right = Agent("Right", description="The right.", tools=[note, helper.as_tool(stream_events=False)])
    back = Agent("Back", description="The back.", tools=[note, ship])
    return SequentialAgent("Orders", sub_agents=[front, ParallelAgent("Both", sub_agents=[left, right]), back])


ONCE = ("charge", "ship")
EFFECTS_OF_AN_ORDER = sum(
    name in ("look", "note", *ONCE) for todo in Clerk.responses.values() for calls in todo for name in calls
)
