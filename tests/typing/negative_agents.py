"""Programs that a type checker must reject: an error that is no longer reported fails the check."""

from dataclasses import dataclass

from baton import Agent, AgentHooks, RunContext, handoff, then_transfer, tool


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

handoff(desk, on_handoff=on_number, input_type=Reason)  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, on_handoff=on_plain, input_type=Reason)  # pyright: ignore[reportCallIssue, reportArgumentType]  # expected
handoff(desk, on_handoff=on_reason)  # pyright: ignore[reportArgumentType]  # expected
