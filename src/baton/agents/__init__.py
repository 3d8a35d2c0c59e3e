"""Agents: the one that asks a model, and the contract for your own.

May import handoffs, models, tools and what is below them. An agent says what should happen (an action); it must not
know which other agents there are, nor carry anything out itself.
"""

from .agent import Agent
from .agent_tool import AgentTool, AgentToolResult
from .base import AgentContext, BaseAgent, Flow, FlowOutcome, HistoryPolicy, MultipleTransfers, RunConfig
from .custom import agent
from .deadlines import run_with_deadline
from .guardrails import with_guardrails
from .hooks import HOOK_STEP, AgentHooks, HookDispatcher, RunHooks, dispatch, dispatcher_for
from .then_transfer import then_transfer
from .together import maybe_await
from .toolbox import EXIT_TOOL
from .wrapping import AgentWrapper

__all__ = [
    "EXIT_TOOL",
    "HOOK_STEP",
    "Agent",
    "AgentContext",
    "AgentHooks",
    "AgentTool",
    "AgentToolResult",
    "AgentWrapper",
    "BaseAgent",
    "Flow",
    "FlowOutcome",
    "HistoryPolicy",
    "HookDispatcher",
    "MultipleTransfers",
    "RunConfig",
    "RunHooks",
    "agent",
    "dispatch",
    "dispatcher_for",
    "maybe_await",
    "run_with_deadline",
    "then_transfer",
    "with_guardrails",
]
