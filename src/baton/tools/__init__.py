"""Do something outside: the contract of a tool, and tools made of Python functions.

May import context and what is below it. Must not know models or agents.
"""

from .approval import Approval, Approved, NeedsApproval, approval_of
from .base import Telling, Tool, ToolOutcome, ToolSource
from .checking import as_object
from .function import FunctionTool, tool
from .guardrails import guarded_tool
from .once import Effect, effect_of
from .results import outcome_of
from .verdicts import Guardrail, Verdict, guardrail
from .wrapping import unwrapped

__all__ = [
    "Approval",
    "Approved",
    "Effect",
    "FunctionTool",
    "Guardrail",
    "NeedsApproval",
    "Telling",
    "Tool",
    "ToolOutcome",
    "ToolSource",
    "Verdict",
    "approval_of",
    "as_object",
    "effect_of",
    "guarded_tool",
    "guardrail",
    "outcome_of",
    "tool",
    "unwrapped",
]
