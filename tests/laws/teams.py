"""Build agents, a runner and a model from plans; the agents' tools record their effects outside of any run."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypedDict

from pydantic import BaseModel
from tests.laws.plans import (
    DEFAULT_WORD,
    AgentPlan,
    CallKind,
    CallPlan,
    EdgePlan,
    ReplyPlan,
    RunPlan,
    TeamPlan,
    ToolPlan,
)

from batonkit import (
    Agent,
    BaseAgent,
    Limits,
    RunContext,
    Runner,
    ToolError,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import Compaction, HistoryPolicy, Stop, StopAt, ToolUseBehavior
from batonkit.log import ToolReturned
from batonkit.messages import AssistantMessage, Image, Message, Reasoning, Text, ToolCall, Usage, is_empty
from batonkit.middleware import Middleware
from batonkit.models import Chunk, ModelRequest, ModelResponse, ReasoningChunk, TextChunk, ToolCallChunk
from batonkit.runs import HandoffRules, HistoryOptions
from batonkit.stores import Store
from batonkit.tools import Final

AnyAgent: TypeAlias = BaseAgent[Any, Any]
Decide: TypeAlias = Callable[[ModelRequest], AssistantMessage | Awaitable[AssistantMessage]]


class EffectSource(NamedTuple):
    """The agent, tool, call and run that caused an effect."""

    run_id: str
    call_id: str
    agent: str
    tool: str
    word: str


class Environment:
    """State outside of the runs: the effects of tools, how often each happened, and gates that tools wait at."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        """The number of times each effect happened, by idempotency key."""
        self.effect_sources: dict[str, EffectSource] = {}
        """The source of each effect, by idempotency key."""
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.has_open_gates = False
        self.agents_by_name: dict[str, AnyAgent] = {}
        self.callbacks: list[tuple[str, str, str]] = []
        """One entry per `on_handoff` call: the call id, the agent and the input word."""

    def record_effect(self, ctx: RunContext[Any], tool_name: str, word: str) -> None:
        """Record that an effect happened."""
        assert ctx.tool_call is not None
        source = EffectSource(ctx.run_id, ctx.tool_call.id, ctx.agent, tool_name, word)
        assert self.effect_sources.setdefault(ctx.idempotency_key, source) == source, (
            "two calls share an idempotency key"
        )
        self.effects[ctx.idempotency_key] += 1

    def effects_of(self, run_id: str, call_id: str) -> list[tuple[str, str, str]]:
        """Return the agent, tool and word of each effect of this call, once per time it happened."""
        return [
            (source.agent, source.tool, source.word)
            for key, source in self.effect_sources.items()
            if (source.run_id, source.call_id) == (run_id, call_id)
            for _ in range(self.effects[key])
        ]

    async def wait_at_gate(self, key: str) -> None:
        """Return when the gate with this key is opened."""
        if not self.has_open_gates:
            self.gates[key] = asyncio.get_running_loop().create_future()
            try:
                await self.gates[key]
            finally:
                del self.gates[key]

    async def perform(self, plan: ToolPlan, ctx: RunContext[Any], word: str) -> Any:
        """Execute a tool of this kind."""
        answers = await self._before_effect(plan, ctx, word)
        self.record_effect(ctx, plan.name, word)
        if plan.kind == "writing" and ctx.tool_call is not None:
            ctx.values.set(f"{plan.name}:{ctx.tool_call.id}", word)
            await asyncio.sleep(0)
        if plan.kind == "failing":
            raise ValueError(f"{plan.name} broke {word}")
        if plan.kind == "refusing":
            raise ToolError(f"{plan.name} will not {word}")
        if plan.kind == "raising":
            raise RuntimeError(f"{plan.name} gave up {word}")
        if plan.kind == "handing":
            return self.agents_by_name[plan.target]
        if plan.kind == "parts":
            return [Text(f"{plan.name} did {word}"), Image(url="https://example.org/a.png")]
        return f"{plan.name} did {word}" if answers is None else f"{plan.name} heard {answers}"

    async def _before_effect(self, plan: ToolPlan, ctx: RunContext[Any], word: str) -> str | None:
        match plan.kind:
            case "slow":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            case "gated":
                await self.wait_at_gate(ctx.idempotency_key)
            case "asking":
                answers = [await ctx.interrupt({"word": word})]
                if word == "twice":
                    answers.append(await ctx.interrupt("sure?"))
                return json.dumps(answers)
            case "stepping":

                async def step() -> str:
                    self.effects[f"{ctx.idempotency_key}/step:work"] += 1
                    return word.upper()

                worked = await ctx.step("work", step)
                return json.dumps([worked, await ctx.interrupt("and now?")])
            case _:
                pass
        return None


class AgentOptions(TypedDict):
    """Constructor options that text agents and realtime agents share."""

    description: str
    tools: list[Any]
    sub_agents: list[AnyAgent]
    handoffs: list[Any]
    exit_tool: bool
    disallow_transfer_to_parent: bool
    concurrent_tools: bool
    max_parallel_tools: int | None


def _behavior(plan: AgentPlan, environment: Environment) -> ToolUseBehavior:
    def decide(ctx: RunContext[Any], results: Sequence[ToolReturned]) -> Stop | None:
        environment.effects[f"{ctx.idempotency_key}/step:tool_use_behavior"] += 1
        return Stop(f"{len(results)} results") if len(results) % 2 else None

    if plan.behavior == "stop_at":
        return StopAt([plan.tools[0].name])
    return decide if plan.behavior == "function" else plan.behavior


def text_agent(environment: Environment, plan: AgentPlan, options: AgentOptions) -> AnyAgent:
    """Build the text agent of this plan."""
    agent: AnyAgent = Agent(
        plan.name,
        **options,
        history=plan.history,
        max_turns=plan.max_turns,
        on_max_turns=plan.on_limit,
        output_key=plan.output_key,
        tool_use_behavior=_behavior(plan, environment),
    )
    return agent if plan.then is None else then_transfer(agent, to=plan.then)


def build_agents(
    team: TeamPlan,
    environment: Environment,
    make: Callable[[AgentPlan, AgentOptions], AnyAgent] | None = None,
) -> list[AnyAgent]:
    """Build the agents of the plan, the root first; text agents by default."""
    make = make or partial(text_agent, environment)
    made: dict[str, AnyAgent] = {}
    assigned: list[Callable[[dict[str, AnyAgent]], None]] = []
    for plan in reversed(team.agents):
        options = AgentOptions(
            description=f"Does {plan.name}.",
            tools=[_tool(each, environment, assigned) for each in plan.tools],
            sub_agents=[made[child] for child in plan.children],
            handoffs=[_edge(edge, made, environment) for edge in plan.edges],
            exit_tool=plan.has_exit,
            disallow_transfer_to_parent=plan.stays_from_parent,
            concurrent_tools=plan.is_parallel,
            max_parallel_tools=plan.max_parallel,
        )
        made[plan.name] = make(plan, options)
    for assign in assigned:
        assign(made)
    environment.agents_by_name = made
    return [made[plan.name] for plan in team.agents]


def runner_for(
    team: TeamPlan,
    run: RunPlan,
    environment: Environment,
    model: "PlannedModel",
    middleware: Sequence[Middleware] = (),
) -> Runner[Any, Any]:
    """Build the team's agents and a runner for them."""
    root, *others = build_agents(team, environment)
    return runner_with(root, others, run, model, middleware=middleware)


def runner_with(
    root: AnyAgent,
    others: Sequence[AnyAgent],
    run: RunPlan,
    model: "PlannedModel",
    projection: HistoryPolicy | None = None,
    middleware: Sequence[Middleware] = (),
    compaction: Compaction | None = None,
    store: Store | None = None,
) -> Runner[Any, Any]:
    """Create a runner for existing agents, as after a restart."""
    return Runner(
        root,
        store=store,
        extra_agents=others,
        model=model,
        history=HistoryOptions(projection or run.history, run.show_transfers),
        compaction=compaction,
        handoff_rules=HandoffRules(multiple_transfers=run.multiple, max_corrections=run.corrections),
        middleware=middleware,
        limits=Limits(transfers=run.most_transfers, model_calls=run.most_model_calls, idle_cycles=run.round_trips),
    )


class HandoffInput(BaseModel):
    """The input that some handoffs require."""

    word: str


def _edge(plan: EdgePlan, made: dict[str, AnyAgent], environment: Environment) -> Any:
    def on_handoff(ctx: RunContext[Any]) -> None:
        environment.effects[f"{ctx.idempotency_key}/step:on_handoff"] += 1
        environment.callbacks.append(((ctx.tool_call.id if ctx.tool_call else ""), ctx.agent, ""))

    async def on_handoff_with_input(ctx: RunContext[Any], given: HandoffInput) -> None:
        assert given.word
        on_handoff(ctx)
        environment.callbacks[-1] = (*environment.callbacks[-1][:2], given.word)

    untyped: Any = handoff
    return untyped(
        plan.target if plan.by_name else made[plan.target],
        tool_name_override=plan.tool,
        return_to=plan.returns,
        history=plan.history,
        is_enabled=plan.is_enabled,
        needs_approval=plan.needs_approval,
        input_type=HandoffInput if plan.has_input else None,
        on_handoff=(on_handoff_with_input if plan.has_input else on_handoff) if plan.calls_back else None,
    )


def _tool(plan: ToolPlan, environment: Environment, assigned: list[Callable[[dict[str, AnyAgent]], None]]) -> Any:
    target: AnyAgent | None = None

    async def work(ctx: RunContext[Any], word: str = DEFAULT_WORD) -> Any:
        return await environment.perform(plan, ctx, word)

    async def stream(ctx: RunContext[Any], word: str = DEFAULT_WORD) -> AsyncIterator[Any]:
        yield "beginning"
        yield Final(await environment.perform(plan, ctx, word))

    async def return_agent(ctx: RunContext[Any], word: str = DEFAULT_WORD) -> Any:
        await environment.perform(plan, ctx, word)
        return target

    def assign(made: dict[str, AnyAgent]) -> None:
        nonlocal target
        target = made[plan.target]

    if plan.kind == "handing" and not plan.is_looked_up:
        assigned.append(assign)
        return tool(return_agent, name=plan.name, is_enabled=plan.is_enabled)
    return tool(
        stream if plan.kind == "streaming" else work,
        name=plan.name,
        effect="once" if plan.is_once else "idempotent",
        return_directly=plan.kind == "direct",
        needs_approval=plan.kind == "approved",
        on_error="raise" if plan.kind == "raising" else "return",
        is_enabled=plan.is_enabled if plan.kind != "ok" else lambda ctx, agent: plan.is_enabled,
    )


class PlannedModel:
    """A model whose responses the test decides, whole or streamed. It records its requests.

    The usage of a response carries the number of its request, counted from 1; an empty one has none, because its usage
    would be added to that of the next.
    """

    name = "planned"

    def __init__(self, decide: Decide, *, stream: bool = False) -> None:
        self.decide = decide
        self.stream = stream
        self.requests: list[ModelRequest] = []
        self.seen: list[tuple[Message, ...]] = []
        """The messages of each request at the time it was made."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Return the response that was decided."""
        self.requests.append(request)
        self.seen.append(tuple(request.messages))
        number = len(self.requests)
        message = self.decide(request)
        if not isinstance(message, AssistantMessage):
            message = await message
        says_nothing = not message.tool_calls and is_empty(AssistantMessage(message.content))
        usage = None if says_nothing else Usage(input_tokens=number)
        if not self.stream:
            yield ModelResponse(message, usage, "stop", self.name)
            return
        for chunk in _chunks(message):
            yield chunk
        whole = None if isinstance(message.content, str) else message
        yield ModelResponse(whole, usage, "stop", self.name)


def _chunks(message: AssistantMessage) -> list[Chunk]:
    chunks: list[Chunk] = [ReasoningChunk(block.text, block) for block in message.reasoning]
    if isinstance(message.content, str):
        content = message.content
        chunks += [TextChunk(content[start : start + 3]) for start in range(0, len(content), 3)]
    for index, call in enumerate(message.tool_calls):
        middle = len(call.arguments) // 2
        chunks.append(ToolCallChunk(index, call.id, call.name, call.arguments[:middle]))
        chunks.append(ToolCallChunk(index, arguments=call.arguments[middle:]))
    return chunks


def message_for(reply: ReplyPlan, team: TeamPlan, agent: AgentPlan, *, number: int) -> AssistantMessage:
    """Build an agent's message from a planned reply; `number` makes the ids of its calls unique."""
    calls = tuple(
        _call(call, team, agent, fresh_id=f"call-{number}-{position}") for position, call in enumerate(reply.calls)
    )
    reasoning = (Reasoning(reply.reasoning),) if reply.reasoning else ()
    return AssistantMessage(reply.content, calls, reasoning)


def _available_kind(plan: CallPlan, team: TeamPlan, agent: AgentPlan) -> CallKind:
    """Return the planned kind of call, or another kind if the agent has nothing of that kind."""
    offers: dict[CallKind, Sequence[object]] = {
        "tool": agent.tools,
        "edge": agent.edges,
        "tree": team.tree_of(agent.name),
    }
    if plan.kind not in offers or offers[plan.kind]:
        return plan.kind
    others: list[CallKind] = [kind for kind, offer in offers.items() if offer]
    return others[0] if others else plan.kind


def _call(plan: CallPlan, team: TeamPlan, agent: AgentPlan, *, fresh_id: str) -> ToolCall:
    id = fresh_id if plan.id is None else plan.id
    match _available_kind(plan, team, agent):
        case "tool" if agent.tools:
            return ToolCall(id, agent.tools[plan.pick % len(agent.tools)].name, plan.arguments)
        case "edge" if agent.edges:
            return ToolCall(id, agent.edges[plan.pick % len(agent.edges)].tool, plan.arguments)
        case "tree" | "unknown agent":
            tree = team.tree_of(agent.name)
            is_known = tree and plan.kind != "unknown agent"
            target = tree[plan.pick % len(tree)] if is_known else ("Unknown", agent.name, "")[plan.pick % 3]
            return ToolCall(id, "transfer_to_agent", json.dumps({"agent_name": target}))
        case "tree garbage":
            return ToolCall(id, "transfer_to_agent", ("", "{", '{"agent_name": 1}', '"A"')[plan.pick % 4])
        case "exit":
            return ToolCall(id, "exit", json.dumps({"final_result": f"the end {plan.pick}"}))
        case "exit garbage":
            return ToolCall(id, "exit", ("", "[]", '{"final_result": null}')[plan.pick % 3])
        case _:
            return ToolCall(id, ("nothing", "transfer_to_unknown", "exit2", "no such tool!")[plan.pick % 4], "{}")
