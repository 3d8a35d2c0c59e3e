"""Baton at its default settings, log on; only the limits that would stop a run of 200 handoffs are raised."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any

from batonkit import Agent, BaseAgent, Handoff, Limits, LoopAgent, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.handoffs import HandoffInputData
from batonkit.log import TextDelta
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, text_of
from batonkit.middleware import NextModelCall, model_middleware
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse, TextChunk
from benchmarks.contender import RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, Outcome, Reply, Workload

LIMITS = Limits(transfers=10_000, model_calls=100_000, idle_cycles=None)
MAX_TURNS = 10_000


class StubModel:
    name = "stub"

    def __init__(self, script: Script) -> None:
        self.script = script

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        if self.script.workload.shape == "branches":
            return self.overlapping(len(request.messages))
        reply = self.reply_to(request)
        if reply.deltas:
            return self.streamed(reply)
        # Built again for every call, as an adapter for a real provider has to. Ready, because the bare loop's model
        # does not wait for anything either.
        calls = tuple([ToolCall(call.id, call.name, call.arguments) for call in reply.calls])
        return CompleteResponse(ModelResponse(AssistantMessage(reply.text, calls)))

    async def overlapping(self, history_length: int) -> AsyncIterator[Chunk]:
        reply = await self.script.overlapping(history_length)
        yield ModelResponse(AssistantMessage(reply.text))

    async def streamed(self, reply: Reply) -> AsyncIterator[Chunk]:
        for delta in reply.deltas:
            yield TextChunk(delta)

    def reply_to(self, request: ModelRequest) -> Reply:
        messages = request.messages
        if not self.script.reads_results:
            return self.script.next(len(messages))
        last = messages[-1]
        return self.script.after(text_of(last.content) if isinstance(last, ToolMessage) else "", len(messages))


@model_middleware
async def pass_through(ctx: RunContext, request: ModelRequest, next: NextModelCall) -> ModelResponse:
    return await next(request)


@dataclass
class Reason:
    reason: str
    priority: int


def noted(ctx: RunContext, reason: Reason) -> None:
    """A callback that does nothing: its price is the calling and the recording."""


def this_turn_only(data: HandoffInputData) -> HandoffInputData:
    return data.clone(pre_handoff_items=())


def typed(agent: Agent) -> Handoff:
    return handoff(agent, input_type=Reason, on_handoff=noted, input_filter=this_turn_only)


def build_agents(workload: Workload, script: Script) -> Agent:
    """The root of a tree in which each agent is the parent of the next: control can go down and up again."""
    tools = [tool(script.step_tool())] if workload.shape in ("tool_loop", "parallel_tools") else []
    below: list[Agent] = []
    for name in reversed(workload.agents):
        if workload.shape in ("own_tool", "typed"):
            edges = [typed(agent) if workload.shape == "typed" else handoff(agent) for agent in below]
            below = [Agent(name, description=f"Agent {name}.", instructions=INSTRUCTIONS, handoffs=edges)]
            continue
        agent = Agent(
            name,
            description=f"Agent {name}.",
            instructions=INSTRUCTIONS,
            tools=tools,
            sub_agents=below,
            max_turns=MAX_TURNS,
        )
        below = [agent]
    return below[0]


def build_workflow(workload: Workload) -> BaseAgent[Any, Any] | None:
    """The root, if the workload is about agents inside an agent."""
    agents = [Agent(name, instructions=INSTRUCTIONS, max_turns=MAX_TURNS) for name in workload.agents]
    match workload.shape:
        case "branches":
            return ParallelAgent("All", sub_agents=agents)
        case "loop":
            return LoopAgent("Loop", sub_agents=agents, max_iterations=workload.units)
        case "agent_tool":
            return agents[0].clone(tools=[agents[1].as_tool()])
        case _:
            return None


def prepare(workload: Workload, script: Script) -> RunOnce:
    root = build_workflow(workload) or build_agents(workload, script)
    middleware = [pass_through] if workload.has_middleware else []
    runner = Runner(root, model=StubModel(script), limits=LIMITS, middleware=middleware)

    async def run_once() -> Outcome:
        result = await runner.run(QUESTION)
        output: Any = result.output
        return Outcome(output if isinstance(output, str) else "".join(output.values()), result.agent)

    async def stream_once() -> Outcome:
        pieces: list[str] = []
        async with runner.stream(QUESTION) as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    pieces.append(event.text)  # noqa: PERF401 - every contender consumes its stream the same way.
        return Outcome("".join(pieces), run.result.agent, len(pieces))

    return stream_once if workload.shape == "stream" else run_once
