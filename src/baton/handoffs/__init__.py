"""Edges between agents: what a handoff is, what it is called, and the tools through which a model asks for one.

May import models, tools and what is below them. Must not know what an agent does, only its name and description.
"""

from .base import Addressee, Handoff, HandoffInputData, InputFilter, Returns, handoff
from .input import InputReader
from .naming import default_tool_name, tool_name_for
from .routes import TRANSFER_TOOL, Refusal, Route, Routes, handoff_route, tree_route
from .wording import Language

__all__ = [
    "TRANSFER_TOOL",
    "Addressee",
    "Handoff",
    "HandoffInputData",
    "InputFilter",
    "InputReader",
    "Language",
    "Refusal",
    "Returns",
    "Route",
    "Routes",
    "default_tool_name",
    "handoff",
    "handoff_route",
    "tool_name_for",
    "tree_route",
]
