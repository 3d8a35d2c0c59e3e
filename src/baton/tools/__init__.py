"""Do something outside: the contract of a tool, and tools made of Python functions.

May import context and what is below it. Must not know models or agents.
"""

from .approval import Approval, approval_of
from .base import Telling, Tool, ToolOutcome
from .function import FunctionTool, tool
from .results import outcome_of
from .wrapping import unwrapped

__all__ = [
    "Approval",
    "FunctionTool",
    "Telling",
    "Tool",
    "ToolOutcome",
    "approval_of",
    "outcome_of",
    "tool",
    "unwrapped",
]
