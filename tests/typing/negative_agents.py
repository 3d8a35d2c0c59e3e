"""Programs that a type checker must reject: an error that is no longer reported fails the check."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from batonkit import Agent, AgentHooks, AgentOptions, RunContext, Runner, handoff, then_transfer, tool
from batonkit.agents import Stop, StopAt
from batonkit.log import ToolReturned
from batonkit.messages import Message
from batonkit.tools import Final


@dataclass
class Deps:
    """The context that the tools need."""

    user: str


class Other:
    """Another context."""


@dataclass
class Reason:
    """The input of a handoff."""

    text: str


@tool
def who(ctx: RunContext[Deps]) -> str:
    """Return the user's name."""
    return ctx.context.user


def on_reason(ctx: RunContext[Deps], reason: Reason) -> None:
    """Take the input."""


def on_number(ctx: RunContext[Deps], number: int) -> None:
    """Take another input."""


def check_input(ctx: RunContext[Deps], messages: Sequence[Message]) -> bool:
    """Read the context."""
    return bool(ctx.context.user)


def on_plain(ctx: RunContext[Deps]) -> None:
    """Take no input."""


desk = Agent[Deps]("Desk", tools=[who])

Agent[Other]("A", tools=[who])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", tools=[desk.as_tool()])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", hooks=AgentHooks[Deps]())  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", handoffs=[desk])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", sub_agents=[desk])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", handoffs=[then_transfer(desk, to="B")])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", handoffs=[handoff(desk, on_handoff=on_plain)])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", instructions=lambda ctx: f"{ctx.context.user}")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # expected

trip = Agent("Trip", output_type=Reason)
Agent[Deps]("A", handoffs=[trip])  # pyright: ignore[reportArgumentType]  # expected
Agent[Deps, str]("A", handoffs=[handoff(trip)])  # pyright: ignore[reportArgumentType]  # expected
Agent[Deps, str]("A", sub_agents=[trip])  # pyright: ignore[reportArgumentType]  # expected
Agent[Deps, int]("A")  # pyright: ignore[reportArgumentType]  # expected
Runner(Agent("A", handoffs=[trip])).run_sync("hi").output.upper()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # expected

Agent[Other]("A", input_guardrails=[check_input])  # pyright: ignore[reportArgumentType]  # expected
Agent("A", history=list)  # pyright: ignore[reportArgumentType]  # expected

handoff(desk, on_handoff=on_number, input_type=Reason)  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, on_handoff=on_plain, input_type=Reason)  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, on_handoff=on_reason)  # pyright: ignore[reportArgumentType]  # expected

handoff(desk, until="finished")  # pyright: ignore[reportArgumentType]  # expected
handoff(desk, return_to="caller", result_type=int)  # pyright: ignore[reportCallIssue]  # expected
handoff(desk, return_to="caller", until="done")  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, return_to=None, until="finished")  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, return_to="caller", until="answered", result_type=int)  # pyright: ignore[reportArgumentType]  # expected


@tool
async def search(ctx: RunContext[Deps], query: str) -> AsyncIterator[str | Final[int]]:
    """Search."""
    yield Final("three")  # pyright: ignore[reportReturnType]  # expected


def enough(ctx: RunContext[Deps], results: Sequence[ToolReturned]) -> Stop:
    """Stop."""
    return Stop(ctx.context.user)


def of_one(ctx: RunContext[Deps]) -> bool:
    """Take too few arguments."""
    return True


Agent[Other]("A", tools=[search])  # pyright: ignore[reportArgumentType]  # expected
Agent[Other]("A", tool_use_behavior=enough)  # pyright: ignore[reportArgumentType]  # expected
Agent("A", tool_use_behavior="stop_at")  # pyright: ignore[reportArgumentType]  # expected
StopAt([1])  # pyright: ignore[reportArgumentType]  # expected
Agent("A", max_parallel_tools="2")  # pyright: ignore[reportArgumentType]  # expected
tool(is_enabled=of_one)  # pyright: ignore[reportArgumentType]  # expected
desk.as_tool(is_enabled=of_one)  # pyright: ignore[reportArgumentType]  # expected
AgentOptions(max_turns="3")  # pyright: ignore[reportArgumentType]  # expected
AgentOptions(tools=[3])  # pyright: ignore[reportArgumentType]  # expected
Runner(desk).run_sync("hi", agent_options={"Desk": {"model": "openai:gpt-5"}})  # pyright: ignore[reportArgumentType]  # expected
Runner(desk).run_sync("hi", agent_options=[AgentOptions()])  # pyright: ignore[reportArgumentType]  # expected
