"""Baton: agents that pass control to one another. Everything here is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents import Agent, AgentContext, AgentHooks, BaseAgent, RunHooks, agent, then_transfer, with_guardrails
    from .context import Limits, RunContext, Values
    from .errors import BatonError, ModelError, RunError, SetupError, ToolError
    from .events import BreakLoop, Exit, Transfer
    from .handoffs import Handoff, HandoffInputData, handoff
    from .models import FallbackModel, Model, ModelSettings, RetryModel
    from .patterns import deep_agent, make_executor, make_planner, make_replanner, plan_execute, supervisor
    from .runner import Runner, RunResult, RunStream
    from .tools import Approval, GuardrailVerdict, Tool, guardrail, tool, with_tool_guardrails
    from .workflows import LoopAgent, ParallelAgent, SequentialAgent, break_loop_tool

_HOMES = {
    "agents": (
        "Agent",
        "AgentContext",
        "AgentHooks",
        "BaseAgent",
        "RunHooks",
        "agent",
        "with_guardrails",
        "then_transfer",
    ),
    "context": ("Limits", "RunContext", "Values"),
    "errors": ("BatonError", "ModelError", "RunError", "SetupError", "ToolError"),
    "events": ("BreakLoop", "Exit", "Transfer"),
    "handoffs": ("Handoff", "HandoffInputData", "handoff"),
    "models": ("FallbackModel", "Model", "ModelSettings", "RetryModel"),
    "patterns": ("deep_agent", "make_executor", "make_planner", "make_replanner", "plan_execute", "supervisor"),
    "runner": ("RunStream", "RunResult", "Runner"),
    "workflows": ("LoopAgent", "ParallelAgent", "SequentialAgent", "break_loop_tool"),
    "tools": ("Approval", "Tool", "GuardrailVerdict", "with_tool_guardrails", "guardrail", "tool"),
}
_HOME_OF = {name: room for room, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AgentContext",
    "AgentHooks",
    "Approval",
    "BaseAgent",
    "BatonError",
    "BreakLoop",
    "Exit",
    "FallbackModel",
    "GuardrailVerdict",
    "Handoff",
    "HandoffInputData",
    "Limits",
    "LoopAgent",
    "Model",
    "ModelError",
    "ModelSettings",
    "ParallelAgent",
    "RetryModel",
    "RunContext",
    "RunError",
    "RunHooks",
    "RunResult",
    "RunStream",
    "Runner",
    "SequentialAgent",
    "SetupError",
    "Tool",
    "ToolError",
    "Transfer",
    "Values",
    "agent",
    "break_loop_tool",
    "deep_agent",
    "guardrail",
    "handoff",
    "make_executor",
    "make_planner",
    "make_replanner",
    "plan_execute",
    "supervisor",
    "then_transfer",
    "tool",
    "with_guardrails",
    "with_tool_guardrails",
]


def __getattr__(name: str) -> Any:
    room = _HOME_OF.get(name)
    if room is None:
        raise AttributeError(f"module 'baton' has no attribute {name!r}")
    value = getattr(import_module(f".{room}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
