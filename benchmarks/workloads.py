"""The workloads: each one fixes the model's answers, the result they lead to, and the unit that is priced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Shape = Literal[
    "single_turn",
    "tool_loop",
    "chain",
    "ping_pong",
    "own_tool",
    "typed",
    "stream",
    "parallel_tools",
    "branches",
    "loop",
    "agent_tool",
]

TRANSFER_PREFIX = "transfer_to_"
TRANSFER_TOOL = f"{TRANSFER_PREFIX}agent"
QUESTION = "How far is it?"
INSTRUCTIONS = "Answer briefly. Use the tool when you need it."
FINAL_TEXT = "done"


class Call(NamedTuple):
    id: str
    name: str
    arguments: str


class Reply(NamedTuple):
    """One answer of the scripted model; `target` is the agent a transfer names, for libraries with a tool per agent."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    target: str | None = None
    deltas: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The report of a contender after one run; compared with `Workload.expected`."""

    text: str
    agent: str
    deltas: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    shape: Shape
    unit: str
    units: int
    """The number of units of all copies of the run."""
    agents: tuple[str, ...]
    replies: tuple[Reply, ...]
    expected: Outcome
    copies: int = 1
    """The number of runs in flight at once."""
    least_read: int = 0
    """The number of messages that the last model call reads at least; 0: one for each reply."""
    has_middleware: bool = False
    """True if Baton's model calls pass through a middleware that does nothing."""
    is_for_peers: bool = True
    """True if other libraries are measured with it; otherwise it compares Baton with itself."""


def single_turn() -> Workload:
    replies = (Reply(FINAL_TEXT),)
    return Workload("single_turn", "single turn", "single_turn", "run", 1, ("A0",), replies, Outcome(FINAL_TEXT, "A0"))


def tool_loop(name: str, title: str, *, tool_calls: int = 10, copies: int = 1) -> Workload:
    steps = (Reply(calls=(_step(position),)) for position in range(tool_calls))
    replies = (*steps, Reply(FINAL_TEXT))
    unit, units = ("model call", len(replies)) if copies == 1 else ("run", copies)
    return Workload(name, title, "tool_loop", unit, units, ("A0",), replies, Outcome(FINAL_TEXT, "A0"), copies)


def with_middleware() -> Workload:
    """The tool loop again, with a middleware around each model call that only calls `next`."""
    plain = tool_loop("tool_loop_middleware", "tool loop, one pass-through middleware")
    return replace(plain, has_middleware=True, is_for_peers=False)


def chain(handoffs: int) -> Workload:
    agents = tuple(f"A{number}" for number in range(handoffs + 1))
    replies = (*(_transfer(number, agent) for number, agent in enumerate(agents[1:])), Reply(FINAL_TEXT))
    title = f"chain of {handoffs} handoffs, {len(agents)} agents"
    outcome = Outcome(FINAL_TEXT, agents[-1])
    return Workload("handoff_chain", title, "chain", "handoff", handoffs, agents, replies, outcome)


def ping_pong(handoffs: int) -> Workload:
    agents = ("A0", "A1")
    replies = (*(_transfer(number, agents[(number + 1) % 2]) for number in range(handoffs)), Reply(FINAL_TEXT))
    title = f"ping-pong, {handoffs} handoffs, 2 agents"
    outcome = Outcome(FINAL_TEXT, agents[handoffs % 2])
    return Workload(f"ping_pong_{handoffs}", title, "ping_pong", "handoff", handoffs, agents, replies, outcome)


def own_tool(handoffs: int, *, typed: bool) -> Workload:
    """The chain again, with a tool for each target; typed: with checked input, a callback and a filter on each edge."""
    agents = tuple(f"A{number}" for number in range(handoffs + 1))
    arguments = '{"reason": "too far", "priority": 1}' if typed else "{}"
    asked = (
        Call(f"call_{number}", f"transfer_to_{agent.lower()}", arguments) for number, agent in enumerate(agents[1:], 1)
    )
    replies = (*(Reply(calls=(call,)) for call in asked), Reply(FINAL_TEXT))
    name, what = ("handoff_typed", "typed, filtered") if typed else ("handoff_plain", "plain")
    title = f"{handoffs} {what} handoffs, a tool each"
    outcome = Outcome(FINAL_TEXT, agents[-1])
    shape: Shape = "typed" if typed else "own_tool"
    # The filter leaves the input and the turn that hands off: a call and its result.
    least_read = 3 if typed else 0
    return Workload(
        name,
        title,
        shape,
        "handoff",
        handoffs,
        agents,
        replies,
        outcome,
        least_read=least_read,
        is_for_peers=False,
    )


def stream(deltas: int) -> Workload:
    pieces = tuple(f"w{number} " for number in range(deltas))
    text = "".join(pieces)
    title = f"stream of {deltas:,} text deltas"
    replies = (Reply(text, deltas=pieces),)
    return Workload("stream", title, "stream", "delta", deltas, ("A0",), replies, Outcome(text, "A0", deltas))


def parallel_tools(calls: int) -> Workload:
    replies = (Reply(calls=tuple(_step(number) for number in range(calls))), Reply(FINAL_TEXT))
    title = f"{calls} parallel tool calls in one turn"
    outcome = Outcome(FINAL_TEXT, "A0")
    return Workload("parallel_tools", title, "parallel_tools", "tool", calls, ("A0",), replies, outcome)


def branches(count: int) -> Workload:
    agents = tuple(f"A{number}" for number in range(count))
    replies = tuple(Reply(FINAL_TEXT) for _ in agents)
    outcome = Outcome(FINAL_TEXT * count, "All")
    title = f"{count} agents at once, joined"
    return Workload(
        "branches", title, "branches", "agent", count, agents, replies, outcome, least_read=1, is_for_peers=False
    )


def loop(iterations: int) -> Workload:
    name, title = f"loop_{iterations}", f"loop of {iterations:,} iterations"
    replies = tuple(Reply(FINAL_TEXT) for _ in range(iterations))
    outcome = Outcome(FINAL_TEXT, "Loop")
    return Workload(name, title, "loop", "iteration", iterations, ("A0",), replies, outcome, is_for_peers=False)


def agent_tool(calls: int) -> Workload:
    asked = (Reply(calls=(Call(f"call_{number}", "a1", '{"request": "How far?"}'),)) for number in range(calls))
    replies = (*(reply for call in asked for reply in (call, Reply("far"))), Reply(FINAL_TEXT))
    outcome = Outcome(FINAL_TEXT, "A0")
    return Workload(
        "agent_tool",
        f"{calls} calls of an agent as a tool",
        "agent_tool",
        "call",
        calls,
        ("A0", "A1"),
        replies,
        outcome,
        least_read=2 * calls + 1,
        is_for_peers=False,
    )


def _step(position: int) -> Call:
    return Call(f"call_{position}", "step", f'{{"n": {position}}}')


def _transfer(number: int, target: str) -> Reply:
    call = Call(f"call_{number}", TRANSFER_TOOL, f'{{"agent_name": "{target}"}}')
    return Reply(calls=(call,), target=target)


WORKLOADS: tuple[Workload, ...] = (
    single_turn(),
    tool_loop("tool_loop", "tool loop, 10 tool calls"),
    with_middleware(),
    chain(10),
    ping_pong(10),
    ping_pong(50),
    ping_pong(200),
    own_tool(10, typed=False),
    own_tool(10, typed=True),
    stream(2_000),
    tool_loop("concurrent", "1,000 concurrent tool loops", copies=1_000),
    parallel_tools(8),
    branches(8),
    loop(100),
    loop(1_000),
    agent_tool(10),
)
