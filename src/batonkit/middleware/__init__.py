"""Middleware: code around model calls, tool calls and activations, and ready-made middleware.

May import agents and what is below them. Ready-made middleware is loaded on first use.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from ..agents.middleware import (
    Middleware,
    NextActivation,
    NextModelCall,
    NextToolCall,
    model_middleware,
    tool_middleware,
)

if TYPE_CHECKING:
    from .caching import Cache, PromptCache
    from .corrections import RequireAnnouncedHandoff, ValidateOutput
    from .pii import RedactPII
    from .rate_limit import RateLimit
    from .tool_results import ClearToolResults

_MODULES = {
    "caching": ("Cache", "PromptCache"),
    "corrections": ("RequireAnnouncedHandoff", "ValidateOutput"),
    "pii": ("RedactPII",),
    "rate_limit": ("RateLimit",),
    "tool_results": ("ClearToolResults",),
}

__all__ = [
    "Cache",
    "ClearToolResults",
    "Middleware",
    "NextActivation",
    "NextModelCall",
    "NextToolCall",
    "PromptCache",
    "RateLimit",
    "RedactPII",
    "RequireAnnouncedHandoff",
    "ValidateOutput",
    "model_middleware",
    "tool_middleware",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
