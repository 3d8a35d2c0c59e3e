"""Tools: the protocol, tools made of Python functions, and wrappers for approval, timeouts and guardrails.

May import context and the packages below it; must not import models or agents.
"""

from .base_tool import Final, Tool, ToolCondition, ToolFunction, ToolResult, Toolset
from .function import FunctionTool, tool, with_tool_guardrails
from .once import ToolEffect
from .tool_guardrails import Guardrail, GuardrailVerdict, guardrail
from .wrappers import Approval, NeedsApproval

__all__ = [
    "Approval",
    "Final",
    "FunctionTool",
    "Guardrail",
    "GuardrailVerdict",
    "NeedsApproval",
    "Tool",
    "ToolCondition",
    "ToolEffect",
    "ToolFunction",
    "ToolResult",
    "Toolset",
    "guardrail",
    "tool",
    "with_tool_guardrails",
]
