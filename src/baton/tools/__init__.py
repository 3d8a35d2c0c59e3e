"""Do something outside: the contract of a tool, and tools made of Python functions.

May import context and what is below it. Must not know models or agents.
"""

from .approval import Approval, approval_of
from .base import Telling, Tool, ToolOutcome
from .function import FunctionTool, tool
from .guardrails import guarded_tool
from .results import outcome_of
from .verdicts import Guardrail, Verdict, guardrail
from .wrapping import unwrapped

__all__ = [
    "Approval",
    "FunctionTool",
    "Guardrail",
    "Telling",
    "Tool",
    "ToolOutcome",
    "Verdict",
    "approval_of",
    "guarded_tool",
    "guardrail",
    "outcome_of",
    "tool",
    "unwrapped",
]
