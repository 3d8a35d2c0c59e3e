"""Agents: the one that asks a model, and the contract for your own.

May import handoffs, models, tools and what is below them. An agent says what should happen (an action); it must not
know which other agents there are, nor carry anything out itself.
"""

from .agent_tool import AgentToolResult
from .base import AgentContext, BaseAgent, HistoryPolicy, MultipleTransfers, agent
from .definition import EXIT_TOOL
from .guardrails import with_guardrails
from .hooks import AgentHooks, RunHooks
from .model_agent import Agent
from .wrappers import AgentWrapper, then_transfer

__all__ = [
    "EXIT_TOOL",
    "Agent",
    "AgentContext",
    "AgentHooks",
    "AgentToolResult",
    "AgentWrapper",
    "BaseAgent",
    "HistoryPolicy",
    "MultipleTransfers",
    "RunHooks",
    "agent",
    "then_transfer",
    "with_guardrails",
]
