"""Programs that a type checker must accept: agents, tools, handoffs and wrappers with a typed context."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam

from batonkit import (
    Agent,
    AgentContext,
    AgentHooks,
    AgentOptions,
    BaseAgent,
    ModelSettings,
    RunContext,
    Runner,
    Tool,
    guardrail,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import AgentToolResult, Stop, StopAt, with_guardrails
from batonkit.log import HistoryEntry, ToolReturned
from batonkit.messages import Message, UserMessage
from batonkit.tools import Final, with_tool_guardrails


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


# A team answers with what its agents answer with: the types of all targets, however they are reached.
@dataclass
class Trip:
    """The answer of a planner."""

    city: str


planner = Agent("Planner", output_type=Trip)
counter = Agent[Deps, int]("Counter", output_type=int)


def to_planner(city: str) -> Agent[Any, Trip]:
    """Hand over, as programs for Swarm do."""
    return planner


assert_type(Agent("T", handoffs=[planner]), Agent[Any, Trip | str])
assert_type(Agent("T", handoffs=[planner, "Elsewhere"]), Agent[Any, Trip | str])
assert_type(Agent("T", handoffs=[handoff(planner), handoff("Elsewhere")]), Agent[Any, Trip | str])
assert_type(Agent("T", handoffs=[handoff(planner, input_type=Reason)]), Agent[Any, Trip | str])
assert_type(Agent("T", sub_agents=[planner], handoffs=[counter]), Agent[Deps, Trip | int | str])
assert_type(Agent("T", sub_agents=[planner], output_type=int), Agent[Any, Trip | int])
assert_type(Agent("T", tools=[to_planner, plain]), Agent[Any, Trip | str])
assert_type(Agent("T", handoffs=[Agent("Between", handoffs=[planner])]), Agent[Any, Trip | str])
assert_type(Agent("T", handoffs=["Elsewhere"], sub_agents=[Agent("Child")]), Agent[Any, str])
assert_type(Runner(Agent("T", handoffs=[planner])).run_sync("hi").output, Trip | str)
assert_type(Runner(Agent("T", handoffs=["Planner"]), extra_agents=[planner]).run_sync("hi").output, str | Trip)
Agent[Deps, str | Trip]("Triage", handoffs=[planner, handoff(planner)], tools=[who])
several: list[BaseAgent[Any, Any]] = [planner, counter]
assert_type(Agent("T", handoffs=several), Agent[Any, Any])

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
        handoff(desk, return_to="caller", until="finished"),
        handoff(desk, return_to="Elsewhere", until="finished", result_type=Reason),
        handoff(desk, return_to="caller", until="finished", result_type=list[int] | None, on_handoff=on_plain),
        handoff(desk, return_to="caller", until="finished", result_type=int, input_type=Reason, on_handoff=on_reason),
        handoff(desk, return_to="caller", until="answered"),
    ],
)

# Wrappers keep the type parameters.
assert_type(then_transfer(desk, to="Triage"), BaseAgent[Deps, str])
guarded: BaseAgent[Deps, int | str] = with_guardrails(Agent[Deps, int | str]("G"), output_guardrails=[check])
as_tool: Tool[Deps] = desk.as_tool()
guarded_tool: Tool[Deps] = with_tool_guardrails(who, input_guardrails=[check])


# Guardrails with the agent's context, as arguments.
def check_input(ctx: RunContext[Deps], messages: Sequence[Message]) -> bool:
    """Read the context."""
    return bool(ctx.context.user)


@guardrail(parallel=True)
async def check_beside(ctx: RunContext[Any], messages: Any) -> bool:
    """Run beside the model."""
    return True


assert_type(Agent("G", input_guardrails=[check_input], output_guardrails=[check]), Agent[Deps, str])
Agent[Deps]("G", input_guardrails=[check_input, check_beside])


@tool(input_guardrails=[check], output_guardrails=[check])
def guarded_who(ctx: RunContext[Deps]) -> str:
    """Return the user's name."""
    return ctx.context.user


# History functions: with and without context, sync and async.
async def read_awaited(ctx: RunContext[Any], entries: Sequence[HistoryEntry]) -> list[Message]:
    """Select messages."""
    return [entry.message for entry in entries]


def read_dicts(entries: Sequence[HistoryEntry]) -> list[dict[str, str]]:
    """Write a message as a dict."""
    return [{"role": "user", "content": f"{len(entries)}"}]


Agent[Deps]("H", tools=[guarded_who], history=read_awaited)
Agent("H", history=read_dicts)
Agent("H", history=lambda entries: [entry.message for entry in entries])
Runner(desk, history=read_awaited)
desk.as_tool(history=read_awaited)


async def run_on_dicts(runner: Runner[Deps, str]) -> None:
    """Pass messages in the formats of providers."""
    openai_messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
    claude_messages: list[MessageParam] = [{"role": "user", "content": "hi"}]
    result = await runner.run(openai_messages, context=Deps("Ann"))
    await runner.run([*claude_messages, UserMessage("hi")])
    assert_type(result.to_openai(), list[dict[str, Any]])
    await runner.run([*result.to_responses(), {"role": "user", "content": "more"}])


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


# Streaming tools: the parameters are those of the function, and calling the tool returns its items.
@tool(timeout=3)
async def search(ctx: RunContext[Deps], query: str) -> AsyncIterator[str | Final[int]]:
    """Search."""
    yield f"{ctx.context.user} searches for {query}"
    yield Final(3)


Agent[Deps]("Searcher", tools=[search], max_parallel_tools=2)
assert_type(Final(3), Final[int])
assert_type(Final(3).value, int)


# Conditions of tools, of agents as tools, and what follows after tools.
async def is_known(ctx: RunContext[Any], agent: Any) -> bool:
    """Return whether the user is known."""
    return bool(ctx.values.get("known"))


def enough(ctx: RunContext[Deps], results: Sequence[ToolReturned]) -> Stop | None:
    """Stop after a result."""
    return Stop(ctx.context.user) if results else None


async def decide(ctx: RunContext[Deps], results: Sequence[ToolReturned]) -> Stop | None:
    """Ask the model again."""
    return None


@tool(is_enabled=is_known)
def refund(amount: int) -> str:
    """Refund."""
    return str(amount)


Agent[Deps]("A", tools=[refund, desk.as_tool(is_enabled=is_known)], tool_use_behavior=enough)
Agent[Deps]("A", tools=[refund], tool_use_behavior=decide)
Agent("A", tools=[refund], tool_use_behavior=StopAt(["refund"]))
Agent("A", tools=[refund], tool_use_behavior="stop_on_first")


async def options_of_a_run(runner: Runner[Deps, str]) -> None:
    """Set options of one run."""
    options = {"Desk": AgentOptions(model="openai:gpt-5", instructions="Be brief.", tools=["who"])}
    settings = ModelSettings(temperature=0.1)
    await runner.run("hi", model="openai:gpt-5", model_settings=settings, agent_options=options)
    await runner.submit("hi", agent_options={"Desk": AgentOptions(max_turns=3)})
    runner.stream("hi", agent_options=options)
    await runner.resume("r", True, model="openai:gpt-5", agent_options=options)


async def ask_and_record(ctx: RunContext[Any]) -> None:
    """A class gives its type; other types that pydantic can validate are accepted."""
    assert_type(await ctx.interrupt("Why?", schema=Reason), Reason)
    assert_type(await ctx.interrupt("When?", schema=Literal["morning", "evening"]), Any)
    assert_type(await ctx.interrupt("How many?", schema=int | None), Any)
    assert_type(await ctx.interrupt("How many?", schema={"type": "integer"}), Any)
    assert_type(await ctx.interrupt("Well?"), Any)
    assert_type(await ctx.step("count", lambda: 1), int)
    assert_type(await ctx.step("reason", lambda: {"text": "late"}, result_type=Reason), Reason)
    assert_type(await ctx.step("maybe", lambda: None, result_type=int | None), Any)
