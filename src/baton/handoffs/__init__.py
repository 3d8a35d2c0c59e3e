"""Edges between agents: what a handoff is, what it is called, and the tools through which a model asks for one.

May import models, tools and what is below them. Must not know what an agent does, only its name and description.
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
