"""Agents: the one that asks a model, and the contract for your own.

May import handoffs, models, tools and what is below them. An agent says what should happen (an action); it must not
know which other agents there are, nor carry anything out itself.
"""

from .agent import Agent
from .agent_tool import AgentReport, AgentTool
from .base import AgentContext, BaseAgent, Flow, MultipleTransfers, Outcome, Projection, RunOptions
from .custom import agent
from .deadlines import in_time
from .guardrails import guarded
from .hooks import HOOK_STEP, AgentHooks, RunHooks, Told, tell, told_of
from .then_transfer import then_transfer
from .together import settled
from .toolbox import EXIT_TOOL
from .wrapping import AgentWrapper

__all__ = [
    "EXIT_TOOL",
    "HOOK_STEP",
    "Agent",
    "AgentContext",
    "AgentHooks",
    "AgentReport",
    "AgentTool",
    "AgentWrapper",
    "BaseAgent",
    "Flow",
    "MultipleTransfers",
    "Outcome",
    "Projection",
    "RunHooks",
    "RunOptions",
    "Told",
    "agent",
    "guarded",
    "in_time",
    "settled",
    "tell",
    "then_transfer",
    "told_of",
]
