"""Handoffs: edges between agents, the tools through which a model asks for them, and input filters.

May import models, tools and the packages below them; of an agent it knows only the name and description.
"""

from .base import (
    Handoff,
    HandoffInputData,
    HandoffInputFilter,
    HandoffTarget,
    ReturnTo,
    default_tool_name,
    handoff,
    tool_name_for,
)
from .routes import TRANSFER_TOOL, PromptLanguage

__all__ = [
    "TRANSFER_TOOL",
    "Handoff",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffTarget",
    "PromptLanguage",
    "ReturnTo",
    "default_tool_name",
    "handoff",
    "tool_name_for",
]
