"""Handoffs: edges between agents, the tools through which a model asks for them, and input filters.

May import models, tools and the packages below them; of an agent it knows only the name and description.
"""

from .declaration import (
    Handoff,
    HandoffInputData,
    HandoffInputFilter,
    HandoffTarget,
    PromptLanguage,
    ReturnTo,
    Until,
    default_tool_name,
    handoff,
    tool_name_for,
)
from .routes import RECOMMENDED_PROMPT_PREFIX, TRANSFER_TOOL, prompt_with_handoff_instructions

__all__ = [
    "RECOMMENDED_PROMPT_PREFIX",
    "TRANSFER_TOOL",
    "Handoff",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffTarget",
    "PromptLanguage",
    "ReturnTo",
    "Until",
    "default_tool_name",
    "handoff",
    "prompt_with_handoff_instructions",
    "tool_name_for",
]
