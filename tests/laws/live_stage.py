"""A desk made real twice: as agents that are asked in writing, and as agents of a live conversation."""

import json
from collections.abc import Callable
from typing import Any, cast

from tests.laws.live_strategies import Desk
from tests.laws.plans import AgentPlan, ReplyPlan
from tests.laws.teams import AgentOptions, AnyAgent, Environment, build_agents, message_for

from baton import Agent, AgentHooks, Limits, RunContext, RunHooks, Runner
from baton.events import InterruptRaised, ToolReturned
from baton.messages import AssistantMessage, ToolCall
from baton.models import ModelRequest, ModelResponse
from baton.realtime import RealtimeAgent, RealtimeModel, RealtimeRunner, RealtimeSettings
from baton.testing import ScriptedModel

NO_LIMITS = Limits(model_calls=None, transfers=None, idle_cycles=None)
Line = tuple[Any, ...]


class Ledger(RunHooks):
    """Writes down every call of a hook, the run's and the agents' own, as far as text and live must agree on it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.lines.append(("run starts", agent.name))

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.lines.append(("run ends", agent.name, output))

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.lines.append(("agent starts", agent.name))

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.lines.append(("agent ends", agent.name, output))

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> None:
        self.lines.append(("is asked", agent.name, tuple(request.messages), request.instructions))

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: ModelResponse) -> None:
        self.lines.append(("has answered", agent.name, response.message))

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
        self.lines.append(("tool", call.id, "starts", agent.name, call))

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> None:
        self.lines.append(("tool", call.id, "ends", agent.name, result.content, result.is_error))

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self.lines.append(("handoff", from_agent.name, to_agent.name))


class OwnLedger(AgentHooks):
    """The same for one agent."""

    def __init__(self, ledger: Ledger) -> None:
        self._lines = ledger.lines

    def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self._lines.append(("agent starts", agent.name, "own"))

    def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self._lines.append(("agent ends", agent.name, output, "own"))

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
        self._lines.append(("tool", call.id, "starts", "own", agent.name))

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self._lines.append(("handoff", source.name, agent.name, "own"))


def text_runner(desk: Desk, stage: Environment, model: ScriptedModel, ledger: Ledger) -> Runner[Any, Any]:
    """The desk in writing; nothing of what was said is rewritten, as in a live conversation."""

    def make(plan: AgentPlan, parts: AgentOptions) -> AnyAgent:
        hooks, accepts = OwnLedger(ledger), _accepts(desk, plan)
        return Agent(plan.name, **parts, hooks=hooks, accepts=accepts, max_turns=plan.max_turns)

    root, *others = build_agents(desk.team, stage, make)
    return Runner(
        root,
        extra_agents=others,
        model=model,
        history="verbatim",
        multiple_transfers=desk.multiple,
        max_corrections=desk.corrections,
        limits=NO_LIMITS,
        hooks=ledger,
    )


def live_runner(
    desk: Desk, stage: Environment, model: RealtimeModel, *, ledger: Ledger | None = None, **options: Any
) -> RealtimeRunner[Any]:
    """The desk as a live conversation."""

    def make(plan: AgentPlan, parts: AgentOptions) -> AnyAgent:
        hooks = None if ledger is None else OwnLedger(ledger)
        return RealtimeAgent(plan.name, **parts, hooks=hooks, accepts=_accepts(desk, plan))

    root, *others = build_agents(desk.team, stage, make)
    return RealtimeRunner(
        root,
        extra_agents=others,
        model=model,
        settings=RealtimeSettings(),
        multiple_transfers=desk.multiple,
        max_corrections=desk.corrections,
        limits=NO_LIMITS,
        hooks=ledger,
        **options,
    )


def _accepts(desk: Desk, plan: AgentPlan) -> Callable[[RunContext[Any], Any], bool | str] | None:
    what = desk.declined_by(plan.name)
    if what == "nothing":
        return None

    def accepts(ctx: RunContext[Any], payload: Any) -> bool | str:
        is_declined = what == "everything" or (isinstance(payload, dict) and payload == {"word": "tea"})
        return f"{plan.name} is busy" if is_declined else True

    return accepts


def said_by(reply: ReplyPlan, desk: Desk, agent: str, *, number: int) -> AssistantMessage:
    """The reply in the mouth of this agent, as a realtime provider would send it: all arguments are JSON."""
    message = message_for(reply, desk.team, desk.team[agent], number=number)
    calls = [each if _is_json(each.arguments) else ToolCall(each.id, each.name, "[]") for each in message.tool_calls]
    return AssistantMessage(message.content, tuple(calls))


def answer_to(asked: InterruptRaised) -> object:
    """What the outside answers: the same whenever and wherever it is asked."""
    payload = cast("dict[str, Any]", asked.payload)
    if type(asked.payload) is not dict:
        return "yes"
    if payload.get("kind") == "unknown_outcome":
        return {"result": "it was done"}
    return True if "kind" in payload else {"said": payload.get("word")}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
