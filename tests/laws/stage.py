"""Plans made real: agents whose tools keep a ledger outside of any run, and a model that says what a plan says."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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

from baton import Agent, BaseAgent, Limits, RunContext, Runner, ToolError, handoff, then_transfer, tool
from baton.agents import HistoryPolicy
from baton.messages import AssistantMessage, Image, Message, Reasoning, Text, ToolCall, Usage
from baton.models import Chunk, ModelRequest, ModelResponse, ReasoningChunk, TextChunk, ToolCallChunk

AnyAgent: TypeAlias = BaseAgent[Any, Any]
Decide: TypeAlias = Callable[[ModelRequest], AssistantMessage | Awaitable[AssistantMessage]]


class Doer(NamedTuple):
    """Who did something, and because of which call of which run."""

    run_id: str
    call_id: str
    agent: str
    tool: str
    word: str


class Stage:
    """What is outside of the runs: what tools really did, how often, and the gates some of them wait at."""

    def __init__(self) -> None:
        self.deeds: Counter[str] = Counter()
        """How often each effect was carried out, by idempotency key."""
        self.doers: dict[str, Doer] = {}
        """For whom each effect was carried out."""
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.has_open_gates = False
        self.register: dict[str, AnyAgent] = {}
        self.callbacks: list[tuple[str, str, str]] = []
        """Every `on_handoff`: the call, whose it was, and the word that came with it."""

    def note(self, ctx: RunContext[Any], tool_name: str, word: str) -> None:
        """An effect happened."""
        assert ctx.tool_call is not None
        doer = Doer(ctx.run_id, ctx.tool_call.id, ctx.agent, tool_name, word)
        assert self.doers.setdefault(ctx.idempotency_key, doer) == doer, "two calls share an idempotency key"
        self.deeds[ctx.idempotency_key] += 1

    def deeds_of(self, run_id: str, call_id: str) -> list[tuple[str, str, str]]:
        """Agent, tool and word of everything done for this call, as often as it was done."""
        return [
            (doer.agent, doer.tool, doer.word)
            for key, doer in self.doers.items()
            if (doer.run_id, doer.call_id) == (run_id, call_id)
            for _ in range(self.deeds[key])
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
        """Do what a tool of this kind does."""
        heard = await self._before_the_effect(plan, ctx, word)
        self.note(ctx, plan.name, word)
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
            return self.register[plan.target]
        if plan.kind == "parts":
            return [Text(f"{plan.name} did {word}"), Image(url="https://example.org/a.png")]
        return f"{plan.name} did {word}" if heard is None else f"{plan.name} heard {heard}"

    async def _before_the_effect(self, plan: ToolPlan, ctx: RunContext[Any], word: str) -> str | None:
        match plan.kind:
            case "slow":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            case "gated":
                await self.wait_at_gate(ctx.idempotency_key)
            case "asking":
                heard = [await ctx.interrupt({"word": word})]
                if word == "twice":
                    heard.append(await ctx.interrupt("sure?"))
                return json.dumps(heard)
            case "stepping":

                async def step() -> str:
                    self.deeds[f"{ctx.idempotency_key}/step:work"] += 1
                    return word.upper()

                worked = await ctx.step("work", step)
                return json.dumps([worked, await ctx.interrupt("and now?")])
            case _:
                pass
        return None


class Parts(TypedDict):
    """What every agent of a plan is made of, whatever kind of agent it is."""

    description: str
    tools: list[Any]
    sub_agents: list[AnyAgent]
    handoffs: list[Any]
    exit_tool: bool
    disallow_transfer_to_parent: bool
    concurrent_tools: bool


def text_agent(plan: AgentPlan, parts: Parts) -> AnyAgent:
    """The agent of this plan that is asked turn by turn."""
    agent: AnyAgent = Agent(
        plan.name,
        **parts,
        history=plan.history,
        max_turns=plan.max_turns,
        on_max_turns=plan.on_limit,
        output_key=plan.output_key,
    )
    return agent if plan.then is None else then_transfer(agent, to=plan.then)


def cast_of(team: TeamPlan, stage: Stage, make: Callable[[AgentPlan, Parts], AnyAgent] = text_agent) -> list[AnyAgent]:
    """The agents of the plan, the root first."""
    made: dict[str, AnyAgent] = {}
    assigned: list[Callable[[dict[str, AnyAgent]], None]] = []
    for plan in reversed(team.agents):
        parts = Parts(
            description=f"Does {plan.name}.",
            tools=[_tool(each, stage, assigned) for each in plan.tools],
            sub_agents=[made[child] for child in plan.children],
            handoffs=[_edge(edge, made, stage) for edge in plan.edges],
            exit_tool=plan.has_exit,
            disallow_transfer_to_parent=plan.stays_from_parent,
            concurrent_tools=plan.is_parallel,
        )
        made[plan.name] = make(plan, parts)
    for assign in assigned:
        assign(made)
    stage.register = made
    return [made[plan.name] for plan in team.agents]


def runner_for(team: TeamPlan, run: RunPlan, stage: Stage, voice: "Voice") -> Runner[Any, Any]:
    """A runner that runs the team as planned."""
    root, *others = cast_of(team, stage)
    return runner_with(root, others, run, voice)


def runner_with(
    root: AnyAgent, others: Sequence[AnyAgent], run: RunPlan, voice: "Voice", projection: HistoryPolicy | None = None
) -> Runner[Any, Any]:
    """Another runner for agents that are there already, as after a restart."""
    return Runner(
        root,
        extra_agents=others,
        model=voice,
        history=projection or run.history,
        show_transfers=run.show_transfers,
        multiple_transfers=run.multiple,
        max_corrections=run.corrections,
        limits=Limits(transfers=run.most_transfers, model_calls=run.most_model_calls, idle_cycles=run.round_trips),
    )


class Note(BaseModel):
    """What a model must give with some handoffs."""

    word: str


def _edge(plan: EdgePlan, made: dict[str, AnyAgent], stage: Stage) -> Any:
    def called_back(ctx: RunContext[Any]) -> None:
        stage.deeds[f"{ctx.idempotency_key}/step:on_handoff"] += 1
        stage.callbacks.append(((ctx.tool_call.id if ctx.tool_call else ""), ctx.agent, ""))

    async def called_back_with_input(ctx: RunContext[Any], note: Note) -> None:
        assert note.word
        called_back(ctx)
        stage.callbacks[-1] = (*stage.callbacks[-1][:2], note.word)

    untyped: Any = handoff
    return untyped(
        plan.target if plan.by_name else made[plan.target],
        tool_name_override=plan.tool,
        return_to=plan.returns,
        history=plan.history,
        is_enabled=plan.is_enabled,
        needs_approval=plan.needs_approval,
        input_type=Note if plan.has_input else None,
        on_handoff=(called_back_with_input if plan.has_input else called_back) if plan.calls_back else None,
    )


def _tool(plan: ToolPlan, stage: Stage, assigned: list[Callable[[dict[str, AnyAgent]], None]]) -> Any:
    target: AnyAgent | None = None

    async def work(ctx: RunContext[Any], word: str = DEFAULT_WORD) -> Any:
        return await stage.perform(plan, ctx, word)

    async def hand_over(ctx: RunContext[Any], word: str = DEFAULT_WORD) -> Any:
        await stage.perform(plan, ctx, word)
        return target

    def assign(made: dict[str, AnyAgent]) -> None:
        nonlocal target
        target = made[plan.target]

    if plan.kind == "handing" and not plan.is_looked_up:
        assigned.append(assign)
        return tool(hand_over, name=plan.name)
    return tool(
        work,
        name=plan.name,
        effect="once" if plan.is_once else "idempotent",
        return_directly=plan.kind == "direct",
        needs_approval=plan.kind == "approved",
        on_error="raise" if plan.kind == "raising" else "return",
    )


class Voice:
    """A model that says what it is told to, whole or in pieces, and remembers what it was asked.

    The usage of an answer carries the number of its request, counted from 1.
    """

    name = "voice"

    def __init__(self, decide: Decide, *, in_pieces: bool = False) -> None:
        self.decide = decide
        self.in_pieces = in_pieces
        self.requests: list[ModelRequest] = []
        self.seen: list[tuple[Message, ...]] = []
        """The messages of each request, as they were when it was made."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Say what is decided."""
        self.requests.append(request)
        self.seen.append(tuple(request.messages))
        usage = Usage(input_tokens=len(self.requests))
        message = self.decide(request)
        if not isinstance(message, AssistantMessage):
            message = await message
        if not self.in_pieces:
            yield ModelResponse(message, usage, "stop", self.name)
            return
        for chunk in _pieces(message):
            yield chunk
        whole = None if isinstance(message.content, str) else message
        yield ModelResponse(whole, usage, "stop", self.name)


def _pieces(message: AssistantMessage) -> list[Chunk]:
    chunks: list[Chunk] = [ReasoningChunk(block.text, block) for block in message.reasoning]
    if isinstance(message.content, str):
        content = message.content
        chunks += [TextChunk(content[start : start + 3]) for start in range(0, len(content), 3)]
    for index, call in enumerate(message.tool_calls):
        middle = len(call.arguments) // 2
        chunks.append(ToolCallChunk(index, call.id, call.name, call.arguments[:middle]))
        chunks.append(ToolCallChunk(index, arguments=call.arguments[middle:]))
    return chunks


def spoken(reply: ReplyPlan, team: TeamPlan, agent: AgentPlan, *, number: int) -> AssistantMessage:
    """The reply in the mouth of this agent; `number` keeps the ids of its calls apart from those of others."""
    calls = tuple(
        _call(call, team, agent, fresh_id=f"call-{number}-{position}") for position, call in enumerate(reply.calls)
    )
    reasoning = (Reasoning(reply.reasoning),) if reply.reasoning else ()
    return AssistantMessage(reply.content, calls, reasoning)


def _possible(plan: CallPlan, team: TeamPlan, agent: AgentPlan) -> CallKind:
    """What the plan wants, or the next best thing if the agent has nothing of that kind."""
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
    match _possible(plan, team, agent):
        case "tool" if agent.tools:
            return ToolCall(id, agent.tools[plan.pick % len(agent.tools)].name, plan.arguments)
        case "edge" if agent.edges:
            return ToolCall(id, agent.edges[plan.pick % len(agent.edges)].tool, plan.arguments)
        case "tree" | "stranger":
            tree = team.tree_of(agent.name)
            known = tree and plan.kind != "stranger"
            wish = tree[plan.pick % len(tree)] if known else ("Nobody", agent.name, "")[plan.pick % 3]
            return ToolCall(id, "transfer_to_agent", json.dumps({"agent_name": wish}))
        case "tree garbage":
            return ToolCall(id, "transfer_to_agent", ("", "{", '{"agent_name": 1}', '"A"')[plan.pick % 4])
        case "exit":
            return ToolCall(id, "exit", json.dumps({"final_result": f"the end {plan.pick}"}))
        case "exit garbage":
            return ToolCall(id, "exit", ("", "[]", '{"final_result": null}')[plan.pick % 3])
        case _:
            return ToolCall(id, ("nothing", "transfer_to_nobody", "exit2", "no such tool!")[plan.pick % 4], "{}")
