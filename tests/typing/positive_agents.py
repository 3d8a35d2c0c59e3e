"""Programs that a type checker must accept: agents, tools, handoffs and wrappers with a typed context."""

from dataclasses import dataclass
from typing import Any, assert_type

from baton import (
    Agent,
    AgentContext,
    AgentHooks,
    BaseAgent,
    RunContext,
    Runner,
    Tool,
    handoff,
    then_transfer,
    tool,
)
from baton.agents import AgentToolResult, with_guardrails
from baton.tools import with_tool_guardrails


@dataclass
class Deps:
    """The context of the program."""

    user: str


@dataclass
class Reason:
    """The input of a handoff."""

    text: str


@tool
def who(ctx: RunContext[Deps]) -> str:
    """Return the user's name."""
    return ctx.context.user


@tool(timeout=3)
async def lookup(ctx: RunContext[Deps], order: int) -> str:
    """Look up an order."""
    return f"{ctx.context.user}: {order}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def plain(city: str) -> str:
    """Return the weather."""
    return city


class Hooks(AgentHooks[Deps]):
    """Hooks for agents with this context."""

    async def on_start(self, ctx: RunContext[Deps], agent: Any) -> None:
        assert_type(ctx.context, Deps)


def check(ctx: RunContext[Any], value: Any) -> bool:
    """Accept everything."""
    return True


# Tools with the agent's context, and tools without context.
desk = Agent[Deps]("Desk", tools=[who, lookup, add, plain], hooks=Hooks())
assert_type(desk, Agent[Deps, str])
Agent[int]("Counter", tools=[add, plain])
assert_type(add(1, 2), int)

# The context type is inferred from tools and instructions.
assert_type(Agent("A", tools=[who, plain]), Agent[Deps, str])
assert_type(Agent("A"), Agent[Any, str])

# Handoffs to agents with the same context, or with any.
Agent[Deps]("Triage", handoffs=[desk, Agent("Any"), "Elsewhere"], sub_agents=[Agent[Deps]("Child")])

# Instructions may be a lambda.
Agent[Deps]("A", instructions=lambda ctx: f"Help {ctx.context.user.title()}.")
Agent("A", instructions=lambda ctx: f"The run is {ctx.run_id}.")

# Unions as output types.
number = Agent("N", output_type=int | str)
assert_type(number, Agent[Any, int | str])
assert_type(Runner(number), Runner[Any, int | str])
assert_type(Agent("L", output_type=list[int] | None), Agent[Any, list[int] | None])


# The input of a handoff.
def on_reason(ctx: RunContext[Deps], reason: Reason) -> None:
    """Take the input."""


async def on_plain(ctx: RunContext[Deps]) -> None:
    """Take no input."""


Agent[Deps](
    "Triage",
    handoffs=[
        handoff(desk, on_handoff=on_reason, input_type=Reason),
        handoff(desk, on_handoff=on_plain),
        handoff(desk, on_handoff=lambda ctx, reason: print(ctx.context, reason.text), input_type=Reason),
        handoff("Elsewhere", is_enabled=lambda ctx, agent: True),
    ],
)

# Wrappers keep the type parameters.
assert_type(then_transfer(desk, to="Triage"), BaseAgent[Deps, str])
guarded: BaseAgent[Deps, int | str] = with_guardrails(Agent[Deps, int | str]("G"), output_guardrails=[check])
as_tool: Tool[Deps] = desk.as_tool()
guarded_tool: Tool[Deps] = with_tool_guardrails(who, input_guardrails=[check])
Agent[Deps]("Boss", tools=[as_tool, guarded_tool, desk.as_tool("desk")])


def shout(result: AgentToolResult[str]) -> str:
    """Make the result of the call."""
    return result.output.upper()


desk.as_tool(output_extractor=shout)


class Own(BaseAgent[Deps, int]):
    """An agent without a model."""

    async def run(self, ctx: AgentContext[Deps]) -> None:
        """Return the length of the user's name."""
        assert_type(ctx.context, Deps)
        ctx.output = len(ctx.messages())
