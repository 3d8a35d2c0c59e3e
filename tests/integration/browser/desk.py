"""A support desk with a scripted model, and the runs of it that Studio shows: `make studio` and the browser tests."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from batonkit import Agent, Limits, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.errors import BatonError, ModelError, SetupError
from batonkit.messages import ToolCall, Usage, text_of
from batonkit.models import ModelRequest, register_model
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, RealtimeSettings
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, ScriptedStream, call, say

PRICES = (2.5e-6, 10e-6)
SPEED = 1.0
"""The seconds that a model takes, times this."""


@dataclass(frozen=True)
class Customer:
    """The customer of a run: the desk's context."""

    level: str


class Ticket(BaseModel):
    """A case that triage hands over."""

    reason: Literal["refund", "late parcel", "broken"]
    priority: int = Field(ge=1, le=3)
    order: str


class Rating(BaseModel):
    """A customer's rating."""

    stars: int = Field(ge=1, le=5, title="Stars")
    comment: str = Field(default="", title="Comment")


@tool
async def find_order(order: str) -> str:
    """Look up an order.

    Args:
        order: The order's number.
    """
    await asyncio.sleep(0.12 * SPEED)
    return f'{{"order":"{order}","item":"Desk lamp","paid":"80.00 EUR","shipped":true}}'


@tool
async def track(parcel: str) -> str:
    """Ask the carrier where a parcel is.

    Args:
        parcel: The order's number.
    """
    await asyncio.sleep(0.3 * SPEED)
    return "Delivered yesterday at 14:02."


@tool
async def policy(topic: str) -> str:
    """Search the return policy.

    Args:
        topic: The topic.
    """
    await asyncio.sleep(0.06 * SPEED)
    return "Broken goods: refund within 30 days, no return needed below 100 EUR."


@tool(effect="once", needs_approval=True)
async def refund(order: str, amount: float) -> str:
    """Pay money back.

    Args:
        order: The order's number.
        amount: The amount in EUR.
    """
    await asyncio.sleep(0.2 * SPEED)
    return f"{amount:.2f} EUR paid back for {order}."


@tool(needs_approval=True)
async def extend_warranty(ctx: RunContext[Customer], order: str) -> str:
    """Extend the warranty of an order, by the customer's level.

    Args:
        ctx: The run's context.
        order: The order's number.
    """
    years = 3 if ctx.context.level == "gold" else 1
    ctx.values.set("warranty", {"order": order, "years": years})
    ctx.values.delete("draft")
    return f"The warranty of {order} is extended by {years} years."


@tool
async def ask_rating(ctx: RunContext) -> str:
    """Ask the customer for a rating."""
    rating = await ctx.interrupt("How satisfied are you?", schema=Rating.model_json_schema())
    return f"{rating['stars']} stars"


def file_ticket(ctx: RunContext[Any], ticket: Ticket) -> None:
    """Keep the case in the run's values.

    Args:
        ctx: The run's context.
        ticket: The case.
    """
    ctx.values.set("ticket", ticket.model_dump())


def case_of(ctx: RunContext[Any]) -> str:
    """Return instructions that name the case.

    Args:
        ctx: The run's context.
    """
    ticket = ctx.values.get("ticket", {})
    order, reason, priority = (ticket.get(name, "?") for name in ("order", "reason", "priority"))
    return f"You settle order {order}: {reason}, priority {priority}. Never promise what the policy forbids."


def make_desk() -> Agent[Any, Any]:
    """Return the root agent of the desk."""
    closer = Agent("Closer", description="Says goodbye.", instructions="Thank the customer.", tools=[ask_rating])
    refunds = Agent(
        "Refunds",
        description="Pays money back.",
        instructions=case_of,
        tools=[find_order, policy, refund, ask_rating],
        handoffs=[handoff(closer, history="answers")],
    )
    parcels = Agent("Parcels", description="Finds parcels.", instructions=case_of, tools=[find_order, track])
    fraud = Agent("Fraud", description="Looks for fraud.", instructions="Look for signs of fraud.")
    stock = Agent("Stock", description="Knows the stock.", instructions="Say what is in stock.")
    expert = Agent("Expert", description="Knows lamps.", instructions="Judge the case.", tools=[policy])
    warranty = Agent(
        "Warranty",
        description="Extends warranties.",
        instructions="Ask the expert first.",
        tools=[expert.as_tool("ask_expert"), extend_warranty],
    )
    checks = ParallelAgent("Checks", sub_agents=[fraud, stock], description="Checks a case from several sides at once.")
    cases: list[Any] = [handoff(agent, input_type=Ticket, on_handoff=file_ticket) for agent in (refunds, parcels)]
    return Agent(
        "Triage",
        description="Finds out what a customer wants.",
        instructions="Find out what it is about, then hand over. Ask at most one question.",
        handoffs=[*cases, checks, warranty, closer],
    )


_Made: TypeAlias = str | ToolCall | list[ToolCall]
_Step: TypeAlias = Callable[[ModelRequest], _Made]


def _timed(step: _Step) -> Callable[[ModelRequest], Awaitable[Any]]:
    async def respond(request: ModelRequest) -> Any:
        await asyncio.sleep(SPEED * (0.15 + (len(request.messages) * 37 % 50) / 100))
        made = step(request)
        size = sum(len(text_of(message.content)) // 4 + 8 for message in request.messages)
        sent = len(request.instructions) // 4 + size + 60 * len(request.tools)
        calls: list[ToolCall] = made if isinstance(made, list) else [] if isinstance(made, str) else [made]
        output = 24 * len(calls) + (len(made) // 4 if isinstance(made, str) else 0) + 6
        usage = Usage(sent, output, cost=sent * PRICES[0] + output * PRICES[1])
        if isinstance(made, str):
            return ScriptedStream(*[f"{word} " for word in made.split(" ")[:-1]], made.split(" ")[-1], usage=usage)
        return say("", *calls, usage=usage)

    return respond


def _words(request: ModelRequest) -> str:
    return " ".join(text_of(message.content) for message in request.messages)


def _order(words: str) -> str:
    return next((word.strip(".,!?") for word in words.split() if word[:2] in ("A-", "B-", "C-", "D-")), "A-1")


def _triage(request: ModelRequest, *, is_careful: bool = False) -> _Made:
    words = _words(request)
    order = _order(words)
    if "Thanks" in words:
        return call("transfer_to_closer")
    if "warranty" in words:
        return call("transfer_to_warranty")
    if "check" in words:
        return call("transfer_to_checks")
    is_careful = is_careful or "wants a refund" in request.instructions
    if is_careful and "refund" in words.lower():
        return call("transfer_to_refunds", reason="refund", priority=1, order=order)
    # A mistake for newcomers to find: a customer who mentions a parcel is always sent to Parcels.
    if "parcel" in words.lower():
        return call("transfer_to_parcels", reason="late parcel", priority=2, order=order)
    if "refund" in words.lower() or "money" in words:
        is_second = "Not transferred" in words or "C-9" in words
        return call("transfer_to_refunds", reason="refund", priority=1 if is_second else 9, order=order)
    return "Hello! Tell me the number of your order and what went wrong."


def _refunds(request: ModelRequest) -> _Made:
    words = _words(request)
    order = _order(words)
    if "C-9" in words:
        raise ModelError("the provider is overloaded (status 529); try again later")
    if "paid back" in words or "rejected" in words:
        return (
            "The money is on its way, and thank you for the rating." if "stars" in words else call("transfer_to_closer")
        )
    if "shipped" in words:
        paid = call("refund", order=order, amount=80)
        return [paid, call("ask_rating")] if "my rating" in words else paid
    return [call("find_order", order=order), call("policy", topic="broken goods")]


def _parcels(request: ModelRequest) -> _Made:
    words = _words(request)
    if "Delivered" in words:
        return "Your parcel was delivered yesterday at 14:02. Is there anything else?"
    return [call("find_order", order=_order(words)), call("track", parcel=_order(words))]


def _warranty(request: ModelRequest) -> _Made:
    words = _words(request)
    if "is extended" in words:
        return "Good news: your warranty is extended."
    if "covers it" in words:
        return call("extend_warranty", order=_order(words))
    return call("ask_expert", request=f"Is the lamp of {_order(words)} covered?")


def _expert(request: ModelRequest) -> _Made:
    if "Broken goods" in _words(request):
        return "A loose cable is a fault of the maker, so the warranty covers it."
    return call("policy", topic="cables")


def _closer(request: ModelRequest) -> _Made:
    words = _words(request)
    if "stars" in words:
        return "Thank you for the rating. Have a lovely day!"
    if "rating" in words:
        return call("ask_rating")
    return "Your 80.00 EUR are on their way back. Sorry for the broken lamp, and thank you for telling us."


def make_model(name: str = "desk-model", *, is_careful: bool = False) -> ScriptedModel:
    """Return the model of the desk; it decides by the words it reads, so any conversation works.

    Args:
        name: The model's name.
        is_careful: True for a model that does not make Triage's mistake.
    """
    steps: dict[str, list[Any]] = {
        "Triage": [_timed(partial(_triage, is_careful=is_careful))],
        "Refunds": [_timed(_refunds)],
        "Parcels": [_timed(_parcels)],
        "Closer": [_timed(_closer)],
        "Warranty": [_timed(_warranty)],
        "Expert": [_timed(_expert)],
        "Fraud": [_timed(lambda _: "No signs of fraud.")],
        "Stock": [_timed(lambda _: "Three lamps are in stock.")],
    }
    return ScriptedModel(steps, cycle=True, name=name)


def _named_model(name: str) -> ScriptedModel:
    """Return the model that `desk:careful` names."""
    if name != "careful":
        raise SetupError(f"the desk has no model `desk:{name}`; it has `desk:careful`")
    return make_model("desk:careful", is_careful=True)


register_model("desk", _named_model)


def make_runner(store: Any, root: Agent | None = None) -> Runner[Any, Any]:
    """Return a runner of the desk.

    Args:
        store: The store.
        root: The root agent of another team; the desk by default.
    """
    return Runner(
        root or make_desk(), model=make_model(), store=store, context_factory=lambda record: Customer("silver")
    )


def runner() -> Runner[Any, Any]:
    """Return the runner that `baton studio tests/integration/browser/desk.py:runner` serves."""
    return make_runner("studio.db")


WRONG = "My parcel arrived and the lamp in it is broken. Please refund order D-3."


async def seed(store: Path, *, rounds: int = 850) -> None:
    """Fill a store with runs of all kinds.

    Args:
        store: The file of the store; it must not exist.
        rounds: The rounds of the long run; 850 make more than 10,000 events.
    """
    async with make_runner(store) as desk_runner:
        run = desk_runner.run
        if rounds:
            await _seed_long(store, rounds)
        await asyncio.gather(
            _seed_live(store),
            run("Where is my parcel? Order B-204.", run_id="late", thread="customer-40"),
            run("Thanks, all good!", run_id="thanks", thread="customer-41"),
            run("Please check order A-9 from all sides.", run_id="parallel", thread="customer-43"),
            run(WRONG, run_id="wrong", thread="customer-46"),
            _fail(desk_runner),
        )
        asked = "Order A-17 came broken, and I want my money back today!"
        await run(asked, run_id="broken", thread="customer-44")
        await desk_runner.resume("broken", True)
        edit = {"1/m2": {"tool_calls": [{"name": "transfer_to_parcels", "arguments": _PARCEL}]}}
        fork = await desk_runner.runs.fork("broken", edit=edit, run_id="forked")
        await desk_runner.resume(fork)
        customer, draft = Customer("gold"), {"draft": "a longer warranty"}
        asked_warranty = "Can I have a longer warranty for A-5? Its cable is loose."
        await run(asked_warranty, run_id="warranty", thread="customer-49", context=customer, values=draft)
        await desk_runner.resume("warranty", True, context=customer)
        await run("Thanks! Here is my rating.", run_id="rating", thread="customer-47")
        await run(asked, run_id="open", thread="customer-45")


_PARCEL = {"reason": "late parcel", "priority": 1, "order": "A-17"}


async def _fail(desk_runner: Runner[Any, Any]) -> None:
    with suppress(BatonError):
        await desk_runner.run("Refund order C-9, please.", run_id="failed", thread="customer-42")


async def _seed_long(store: Path, rounds: int) -> None:
    refunds = Agent("Refunds", description="Pays money back.", tools=[policy_now], handoffs=["Triage"])
    triage = Agent("Triage", description="Finds out what it is about.", handoffs=[refunds])
    usage = Usage(900, 30, cost=0.0026)
    topics = count(1)

    def look_up(request: ModelRequest) -> Any:
        return say("", call("policy_now", topic=f"topic {next(topics)}"), usage=usage)

    steps: dict[str, list[Any]] = {
        "Triage": [say("", call("transfer_to_refunds"), usage=usage)],
        "Refunds": [look_up, say("", call("transfer_to_triage"), usage=usage)],
    }
    model = ScriptedModel(steps, cycle=True, name="desk-model")
    limits = Limits(transfers=10**6, model_calls=rounds * 3, seconds=600)
    async with Runner(triage, model=model, store=store, limits=limits) as long_runner:
        with suppress(BatonError):
            await long_runner.run("Round and round it goes", run_id="long", thread="customer-39")


async def _seed_live(store: Path) -> None:
    """Add a live conversation, in which the user interrupts an agent."""
    billing = RealtimeAgent("Billing", description="Explains invoices.", instructions="Explain the invoice.")
    hotline = RealtimeAgent("Hotline", instructions="Find out what it is about.", handoffs=[billing])
    moment = say("One moment, I hand you over to our colleagues.", call("transfer_to_billing"), usage=Usage(220, 40))

    async def look_up(request: ModelRequest) -> Any:
        await asyncio.sleep(2)
        return say("Invoice 5512 is of the third of March, for two lamps and one shade.", usage=Usage(310, 60))

    steps: dict[str, list[Any]] = {
        "Hotline": [moment],
        "Billing": [look_up, say("Yes, it was paid yesterday.", usage=Usage(360, 30))],
    }
    model = ScriptedRealtimeModel(steps, ms_per_word=150, name="scripted-realtime:desk")
    runner = RealtimeRunner(hotline, model=model, settings=RealtimeSettings(), store=store)
    async with runner.connect(run_id="live", thread="customer-48") as session:
        reading = asyncio.create_task(_read_all(session))
        connection = await model.connection()
        for wait, words in ((0.9, "Hello, I have a question about an invoice."), (0.6, "Is it paid already?")):
            connection.user_begins()
            await asyncio.sleep(wait)
            connection.user_ceases(words)
            await asyncio.sleep(3.4)
    await reading


async def _read_all(session: RealtimeSession) -> None:
    async for _ in session:
        pass


@tool
async def policy_now(topic: str) -> str:
    """Search the return policy.

    Args:
        topic: The topic.
    """
    return f"found {topic}"


if __name__ == "__main__":
    asyncio.run(seed(Path(sys.argv[1])))
