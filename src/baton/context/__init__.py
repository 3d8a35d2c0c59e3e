"""What one activation or one tool call is given: the run's log, values, limits, and the ways to act only once.

May import log, events, messages and errors. Must not know models, tools, agents or stores.
"""

from .history import WHOLE_MESSAGE, History, HistoryEntry, HistoryView, MessageWindow
from .limits import Limits, UsageMeter
from .run import AsyncCloseable, LiveConversation, RunState, StopSignal
from .run_context import RunContext, SuspendRun, needs_await
from .values import TrackedValues, Values, to_json_value

__all__ = [
    "WHOLE_MESSAGE",
    "AsyncCloseable",
    "History",
    "HistoryEntry",
    "HistoryView",
    "Limits",
    "LiveConversation",
    "MessageWindow",
    "RunContext",
    "RunState",
    "StopSignal",
    "SuspendRun",
    "TrackedValues",
    "UsageMeter",
    "Values",
    "needs_await",
    "to_json_value",
]
