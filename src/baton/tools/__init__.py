"""Do something outside: the contract of a tool, and tools made of Python functions.

May import context and what is below it. Must not know models or agents.
"""

from .approval import Approval, ApprovalTool, NeedsApproval, parse_approval
from .base import SupportsToolResult, Tool, ToolResult, Toolset
from .checking import parse_json_object
from .function import FunctionTool, tool
from .guardrails import with_tool_guardrails
from .once import ToolEffect, tool_effect
from .results import to_tool_result
from .verdicts import Guardrail, GuardrailVerdict, guardrail
from .wrapping import unwrap_tool

__all__ = [
    "Approval",
    "ApprovalTool",
    "FunctionTool",
    "Guardrail",
    "GuardrailVerdict",
    "NeedsApproval",
    "SupportsToolResult",
    "Tool",
    "ToolEffect",
    "ToolResult",
    "Toolset",
    "guardrail",
    "parse_approval",
    "parse_json_object",
    "to_tool_result",
    "tool",
    "tool_effect",
    "unwrap_tool",
    "with_tool_guardrails",
]
