"""Runners of one planned team: one for text runs and one for realtime sessions."""

import json
from collections.abc import Callable
from typing import Any, cast

from tests.laws.plans import AgentPlan, ReplyPlan
from tests.laws.realtime_strategies import TeamSetup
from tests.laws.teams import AgentOptions, AnyAgent, Environment, build_agents, message_for

from batonkit import Agent, AgentHooks, Limits, RunContext, RunHooks, Runner
from batonkit.log import InterruptRaised, ToolReturned
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import ModelRequest, ModelResponse
from batonkit.realtime import RealtimeAgent, RealtimeModel, RealtimeRunner, RealtimeSettings
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel

NO_LIMITS = Limits(model_calls=None, transfers=None, idle_cycles=None)
Entry = tuple[Any, ...]


class HookRecorder(RunHooks):
    """Records the calls of hooks of the run and of agents that must be the same in text runs and sessions."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.entries.append(("run starts", agent.name))

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.entries.append(("run ends", agent.name, output))

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.entries.append(("agent starts", agent.name))

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.entries.append(("agent ends", agent.name, output))

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> None:
        self.entries.append(("model starts", agent.name, tuple(request.messages), request.instructions))

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: ModelResponse) -> None:
        self.entries.append(("model ends", agent.name, response.message))

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
        self.entries.append(("tool", call.id, "starts", agent.name, call))

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> None:
        self.entries.append(("tool", call.id, "ends", agent.name, result.content, result.is_error))

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self.entries.append(("handoff", from_agent.name, to_agent.name))


class AgentHookRecorder(AgentHooks):
    """Records the calls of the hooks of one agent."""

    def __init__(self, recorder: HookRecorder) -> None:
        self._entries = recorder.entries

    def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self._entries.append(("agent starts", agent.name, "own"))

    def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self._entries.append(("agent ends", agent.name, output, "own"))

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
        self._entries.append(("tool", call.id, "starts", "own", agent.name))

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self._entries.append(("handoff", source.name, agent.name, "own"))


def make_text_runner(
    setup: TeamSetup, environment: Environment, model: ScriptedModel, recorder: HookRecorder
) -> Runner[Any, Any]:
    """Create a text runner; messages of other agents are not rewritten, as in a session."""

    def make_agent(plan: AgentPlan, options: AgentOptions) -> AnyAgent:
        hooks, accepts = AgentHookRecorder(recorder), _accepts(setup, plan)
        return Agent(plan.name, **options, hooks=hooks, accepts=accepts, max_turns=plan.max_turns)

    root, *others = build_agents(setup.team, environment, make_agent)
    return Runner(
        root,
        extra_agents=others,
        model=model,
        history="verbatim",
        handoff_rules=HandoffRules(multiple_transfers=setup.multiple, max_corrections=setup.corrections),
        limits=NO_LIMITS,
        hooks=recorder,
    )


def make_realtime_runner(
    setup: TeamSetup,
    environment: Environment,
    model: RealtimeModel,
    *,
    recorder: HookRecorder | None = None,
    **runner_options: Any,
) -> RealtimeRunner[Any]:
    """Create a realtime runner."""

    def make_agent(plan: AgentPlan, options: AgentOptions) -> AnyAgent:
        hooks = None if recorder is None else AgentHookRecorder(recorder)
        return RealtimeAgent(plan.name, **options, hooks=hooks, accepts=_accepts(setup, plan))

    root, *others = build_agents(setup.team, environment, make_agent)
    return RealtimeRunner(
        root,
        extra_agents=others,
        model=model,
        settings=RealtimeSettings(),
        handoff_rules=HandoffRules(multiple_transfers=setup.multiple, max_corrections=setup.corrections),
        limits=NO_LIMITS,
        hooks=recorder,
        **runner_options,
    )


def _accepts(setup: TeamSetup, plan: AgentPlan) -> Callable[[RunContext[Any], Any], bool | str] | None:
    declined = setup.declined_by(plan.name)
    if declined == "nothing":
        return None

    def accepts(ctx: RunContext[Any], payload: Any) -> bool | str:
        is_declined = declined == "everything" or (isinstance(payload, dict) and payload == {"word": "tea"})
        return f"{plan.name} is busy" if is_declined else True

    return accepts


def realtime_message_for(reply: ReplyPlan, setup: TeamSetup, agent: str, *, number: int) -> AssistantMessage:
    """Create the message of a reply by this agent as a realtime provider sends it: all arguments are JSON."""
    message = message_for(reply, setup.team, setup.team[agent], number=number)
    calls = [each if _is_json(each.arguments) else ToolCall(each.id, each.name, "[]") for each in message.tool_calls]
    return AssistantMessage(message.content, tuple(calls))


def answer_for(interrupt: InterruptRaised) -> object:
    """Return the answer to an interrupt; it is always the same."""
    payload = cast("dict[str, Any]", interrupt.payload)
    if type(interrupt.payload) is not dict:
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
