"""The context of an activation or a tool call: the run's values, limits, history and recorded steps.

May import log, events, messages and errors. Must not know models, tools, agents or stores.
"""

from ..events import Default
from .entries import HistoryEntry
from .run_context import RunContext
from .run_state import Limits
from .values import Values

__all__ = ["Default", "HistoryEntry", "Limits", "RunContext", "Values"]
