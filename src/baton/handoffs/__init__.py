"""Edges between agents: what a handoff is, what it is called, and the tools through which a model asks for one.

May import models, tools and what is below them. Must not know what an agent does, only its name and description.
"""

from .base import Handoff, HandoffInputData, HandoffInputFilter, HandoffTarget, ReturnTo, handoff
from .input import HandoffInputParser
from .naming import default_tool_name, tool_name_for
from .routes import TRANSFER_TOOL, Route, Routes, TransferRefusal, handoff_route, tree_route
from .wording import PromptLanguage

__all__ = [
    "TRANSFER_TOOL",
    "Handoff",
    "HandoffInputData",
    "HandoffInputFilter",
    "HandoffInputParser",
    "HandoffTarget",
    "PromptLanguage",
    "ReturnTo",
    "Route",
    "Routes",
    "TransferRefusal",
    "default_tool_name",
    "handoff",
    "handoff_route",
    "tool_name_for",
    "tree_route",
]
