"""What one activation or one tool call is given: the run's log, values, limits, and the ways to act only once.

May import log, events, messages and errors. Must not know models, tools, agents or stores.
"""

from .history import HistoryEntry
from .run_context import RunContext
from .run_state import Limits
from .values import Values

__all__ = [
    "HistoryEntry",
    "Limits",
    "RunContext",
    "Values",
]
