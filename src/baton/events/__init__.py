"""What happened and what should happen: events, deltas, actions, and their JSON.

May import messages and errors. Values only: nothing here acts, waits or knows a run.
"""

from .actions import Action, BreakLoop, Exit, Transfer
from .base import NOBODY, Changes, Delta, Event, Origin
from .codec import FORMAT, EventReader, decode_event, decode_lines, decode_log, encode_event, encode_head, encode_log
from .deltas import Custom, Progress, ReasoningDelta, TextDelta, ToolCallDelta
from .facts import (
    Answered,
    Asked,
    Cancelled,
    Completed,
    CutShort,
    Failed,
    Finished,
    Heard,
    Resumed,
    RunStarted,
    Said,
    Started,
    Stepped,
    Suspended,
    ToolReturned,
    Transferred,
    Unknown,
)

__all__ = [
    "FORMAT",
    "NOBODY",
    "Action",
    "Answered",
    "Asked",
    "BreakLoop",
    "Cancelled",
    "Changes",
    "Completed",
    "Custom",
    "CutShort",
    "Delta",
    "Event",
    "EventReader",
    "Exit",
    "Failed",
    "Finished",
    "Heard",
    "Origin",
    "Progress",
    "ReasoningDelta",
    "Resumed",
    "RunStarted",
    "Said",
    "Started",
    "Stepped",
    "Suspended",
    "TextDelta",
    "ToolCallDelta",
    "ToolReturned",
    "Transfer",
    "Transferred",
    "Unknown",
    "decode_event",
    "decode_lines",
    "decode_log",
    "encode_event",
    "encode_head",
    "encode_log",
]
