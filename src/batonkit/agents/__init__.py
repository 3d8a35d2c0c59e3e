"""Agents: `Agent`, which calls a model, and `BaseAgent` for your own.

May import handoffs, models, tools and the packages below them. An agent returns an action; it does not know which other
agents exist, and does not carry out transfers itself.
"""

from .agent_context import AgentContext, HistoryPolicy, MultipleTransfers
from .agent_options import AgentOptions
from .agent_tool import AgentToolResult
from .base_agent import BaseAgent, agent
from .compaction import Compaction
from .definition import EXIT_TOOL
from .guardrails import with_guardrails
from .hooks import AgentHooks, RunHooks
from .model_agent import Agent
from .tool_use import Stop, StopAt, ToolUseBehavior
from .wrappers import AgentWrapper, then_transfer

__all__ = [
    "EXIT_TOOL",
    "Agent",
    "AgentContext",
    "AgentHooks",
    "AgentOptions",
    "AgentToolResult",
    "AgentWrapper",
    "BaseAgent",
    "Compaction",
    "HistoryPolicy",
    "MultipleTransfers",
    "RunHooks",
    "Stop",
    "StopAt",
    "ToolUseBehavior",
    "agent",
    "then_transfer",
    "with_guardrails",
]
