"""A team, and runs of it that contain every event: the source of the fixtures, and what resumes them.

The model answers by what it reads, so that a process of a later version continues a run as the first would have.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pydantic import BaseModel

from batonkit import Agent, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.agents import Compaction
from batonkit.errors import ModelError
from batonkit.handoffs import HandoffInputData
from batonkit.log import Event
from batonkit.log.fold import history_from_log
from batonkit.messages import Message, ToolMessage, UserMessage, text_of
from batonkit.models import ModelRequest
from batonkit.stores import Store
from batonkit.testing import ScriptedModel, call, say, transcript

RUNS = (
    "lookup",
    "refund",
    "answered",
    "cancelled",
    "crashed",
    "charged",
    "failed",
    "panel",
    "expert",
    "book-1",
    "book-2",
    "book-3",
    "long-1",
    "long-2",
    "long-3",
    "forked",
)
"""The ids of the runs that `play` leaves in a store."""


class Reason(BaseModel):
    """Why control goes to Refunds."""

    order: str
    reason: str


class Table(BaseModel):
    """The result of a booking."""

    day: str
    people: int


@dataclass
class World:
    """The world outside of Baton, which the tools change."""

    effects: list[str] = field(default_factory=list[str])
    is_stuck: bool = False
    """True if slow tools do not return."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a slow tool has begun."""

    async def act(self, effect: str) -> None:
        """Record an effect and, if the tools are stuck, wait without end."""
        self.effects.append(effect)
        self.begun.set()
        if self.is_stuck:
            await asyncio.Event().wait()


def reply(request: ModelRequest) -> Any:
    """Return what the model of an agent answers to what it reads."""
    last = request.messages[-1]
    text = text_of(last.content)
    match request.agent:
        case "Desk":
            return _reply_of_desk(last, text)
        case "Refunds" if isinstance(last, ToolMessage):
            return f"Done: {text}"
        case "Refunds":
            return say("One moment.", call("refund", order="7", euros=20))
        case "Booking" if isinstance(last, ToolMessage) and not last.is_error:
            return f"I looked: {text}. For how many people?"
        case "Booking" if isinstance(last, UserMessage) and "Two" in text:
            return call("finish_task", result={"day": "Monday", "people": 2})
        case "Booking" if isinstance(last, UserMessage) and "sunny" in text:
            return call("lookup", order="the weather")
        case "Booking":
            return "For which day?"
        case _:
            return f"{request.agent} has read {len(request.messages)} messages."


def _reply_of_desk(last: Message, text: str) -> Any:
    if isinstance(last, ToolMessage):
        return f"Desk says: {text}"
    match text.split():
        case ["look", *_]:
            return say("Let me see.", call("lookup", order="7"), call("lookup", order="8"))
        case ["refund", *_]:
            return call("transfer_to_refunds", order="7", reason="it is broken")
        case ["compare", *_]:
            return call("transfer_to_panel")
        case ["book", *_]:
            return call("transfer_to_booking")
        case ["ask", *_]:
            return call("expert", input="What is it worth?")
        case ["wait", *_]:
            return call("slow", order="7")
        case ["charge", *_]:
            return call("charge", order="7")
        case ["fail", *_]:
            raise ModelError("the provider is down")
        case _:
            return f"You said: {text[:40]}"


def this_turn_only(data: HandoffInputData) -> HandoffInputData:
    """Let the target read nothing from before the turn."""
    return data.clone(pre_handoff_items=())


def make_runner(store: Store | str, world: World) -> Runner[Any, Any]:
    """Make the runner of the team."""

    @tool(effect="read")
    async def lookup(order: str) -> str:
        """Look up an order."""
        return f"{order} is there"

    @tool(needs_approval=True, effect="once")
    async def refund(ctx: RunContext, order: str, euros: int) -> str:
        """Pay back the price of an order."""
        await world.act(f"refund {order}")
        ctx.values.set("refunded", {"order": order, "euros": euros})
        return f"{euros} EUR for order {order}"

    @tool
    async def slow(ctx: RunContext, order: str) -> str:
        """Prepare an order, then ship it."""
        box = await ctx.step("prepare", lambda: world.effects.append(f"prepare {order}") or "a box")
        await world.act(f"ship {order}")
        return f"shipped {order} in {box}"

    @tool(effect="once")
    async def charge(order: str) -> str:
        """Charge a card."""
        await world.act(f"charge {order}")
        return f"charged {order}"

    refunds = Agent("Refunds", description="Pays money back.", tools=[refund])
    panel = ParallelAgent("Panel", description="Compares.", sub_agents=[Agent("Left"), Agent("Right")])
    booking = Agent("Booking", description="Books tables.", tools=[lookup])
    expert = Agent("Expert", description="Knows prices.")
    desk = Agent(
        "Desk",
        instructions="Help.",
        tools=[lookup, slow, charge, expert.as_tool("expert", "Ask an expert.")],
        handoffs=[
            handoff(refunds, input_type=Reason, input_filter=this_turn_only),
            panel,
            handoff(booking, return_to="caller", until="finished", result_type=Table),
        ],
    )
    return Runner(desk, model=ScriptedModel([reply], cycle=True), store=store)


async def play(store: Store | str) -> None:
    """Leave the runs in a store: completed, suspended, failed, cancelled, crashed and forked ones, and threads."""
    world = World()
    runner = make_runner(store, world)
    await runner.run("look it up", run_id="lookup", owner="ann")
    await runner.run("refund it", run_id="refund", thread="ann", owner="ann")
    await runner.submit("look again", run_id="queued", thread="ann", owner="ann", when_busy="queue")
    await runner.run("refund it", run_id="answered")
    await runner.resume("answered", True)
    await runner.run("refund it", run_id="cancelled")
    await runner.runs.cancel("cancelled")
    await _crash(store, "crashed", "wait for it")
    await _crash(store, "charged", "charge it")
    with suppress(ModelError):
        await runner.run("fail now", run_id="failed")
    await runner.run("compare them", run_id="panel")
    await runner.run("ask about it", run_id="expert")
    for number, text in enumerate(("book a table", "Will it be sunny on Monday?", "Two of us."), 1):
        await runner.run(text, run_id=f"book-{number}", thread="bob", owner="bob")
    compacting = with_compaction(runner)
    for number in range(1, 4):
        await compacting.run(f"story {number} " + "and so on " * 12, run_id=f"long-{number}", thread="cat")
    await runner.runs.fork("lookup", at=4, run_id="forked")
    await runner.resume("forked")
    await runner.close()


def with_compaction(runner: Runner[Any, Any]) -> Runner[Any, Any]:
    """Return a runner of the same team that soon compacts the history."""
    return runner.clone(compaction=Compaction(at_tokens=60, keep_last=1, summarizer=summarize))


def summarize(ctx: object, messages: object) -> str:
    """Summarize a history."""
    return "The user told a story."


async def _crash(store: Store | str, run_id: str, text: str) -> None:
    """Leave a run as a process does that is stopped while a tool is at work."""
    world = World(is_stuck=True)
    runner = make_runner(store, world)
    await runner.submit(text, run_id=run_id)
    driving = asyncio.ensure_future(runner.runs.drive(run_id))
    await world.begun.wait()
    driving.cancel()
    with suppress(asyncio.CancelledError):
        await driving
    await runner.close()


def describe(events: Sequence[Event]) -> str:
    """Return how a log is read: a line for each event, then what agents read of it at its end."""
    read = [
        f"{entry.author or 'user'}: {msgspec.json.encode(entry.message).decode()}" for entry in history_from_log(events)
    ]
    return "\n".join([*transcript(events), "", *read, ""])
