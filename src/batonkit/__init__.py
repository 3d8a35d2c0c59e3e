"""Build systems of agents that hand control to one another.

Names are loaded on first use, so `import batonkit` imports no model provider, database driver or web framework.
"""

from typing import TYPE_CHECKING

from ._lazy import lazy_exports
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .agents import (
        Agent,
        AgentContext,
        AgentHooks,
        AgentOptions,
        BaseAgent,
        RunHooks,
        agent,
        then_transfer,
    )
    from .context import Limits, RunContext
    from .errors import BatonError, ModelError, RunError, SetupError, ToolError
    from .handoffs import Handoff, HandoffInputData, handoff
    from .log import Exit, Transfer
    from .middleware import Middleware
    from .models import FallbackModel, Model, ModelSettings, RetryModel
    from .runs import Runner, RunResult, RunStream
    from .testing import transcript
    from .tools import Approval, GuardrailVerdict, Tool, ToolResult, guardrail, tool
    from .workflows import LoopAgent, ParallelAgent, SequentialAgent, deep_agent, plan_execute, supervisor

_PACKAGES = {
    "agents": (
        "Agent",
        "AgentContext",
        "AgentHooks",
        "AgentOptions",
        "BaseAgent",
        "RunHooks",
        "agent",
        "then_transfer",
    ),
    "context": ("Limits", "RunContext"),
    "errors": ("BatonError", "ModelError", "RunError", "SetupError", "ToolError"),
    "log": ("Exit", "Transfer"),
    "handoffs": ("Handoff", "HandoffInputData", "handoff"),
    "middleware": ("Middleware",),
    "models": ("FallbackModel", "Model", "ModelSettings", "RetryModel"),
    "runs": ("RunResult", "RunStream", "Runner"),
    "testing": ("transcript",),
    "tools": ("Approval", "GuardrailVerdict", "Tool", "ToolResult", "guardrail", "tool"),
    "workflows": ("LoopAgent", "ParallelAgent", "SequentialAgent", "deep_agent", "plan_execute", "supervisor"),
}

__all__ = [
    "Agent",
    "AgentContext",
    "AgentHooks",
    "AgentOptions",
    "Approval",
    "BaseAgent",
    "BatonError",
    "Exit",
    "FallbackModel",
    "GuardrailVerdict",
    "Handoff",
    "HandoffInputData",
    "Limits",
    "LoopAgent",
    "Middleware",
    "Model",
    "ModelError",
    "ModelSettings",
    "ParallelAgent",
    "RetryModel",
    "RunContext",
    "RunError",
    "RunHooks",
    "RunResult",
    "RunStream",
    "Runner",
    "SequentialAgent",
    "SetupError",
    "Tool",
    "ToolError",
    "ToolResult",
    "Transfer",
    "agent",
    "deep_agent",
    "guardrail",
    "handoff",
    "plan_execute",
    "supervisor",
    "then_transfer",
    "tool",
    "transcript",
]

__getattr__, __dir__ = lazy_exports(__name__, _PACKAGES)
