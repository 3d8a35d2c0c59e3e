"""Do something outside: the contract of a tool, and tools made of Python functions.

May import context and what is below it. Must not know models or agents.
"""

from .base import Tool, ToolResult, Toolset
from .function import FunctionTool, tool, with_tool_guardrails
from .guardrails import Guardrail, GuardrailVerdict, guardrail
from .wrappers import Approval, NeedsApproval, ToolEffect

__all__ = [
    "Approval",
    "FunctionTool",
    "Guardrail",
    "GuardrailVerdict",
    "NeedsApproval",
    "Tool",
    "ToolEffect",
    "ToolResult",
    "Toolset",
    "guardrail",
    "tool",
    "with_tool_guardrails",
]
