"""What one activation or one tool call is given: the run's log, values, limits, and the ways to act only once.

May import log, events, messages and errors. Must not know models, tools, agents or stores.
"""

from .history import WHOLE, Entry, History, View, Window
from .limits import Limits, Meter
from .run import Closable, Live, Run, Signals
from .run_context import RunContext, Suspend, is_to_await
from .values import Values, WatchedValues, as_json_value

__all__ = [
    "WHOLE",
    "Closable",
    "Entry",
    "History",
    "Limits",
    "Live",
    "Meter",
    "Run",
    "RunContext",
    "Signals",
    "Suspend",
    "Values",
    "View",
    "WatchedValues",
    "Window",
    "as_json_value",
    "is_to_await",
]
