"""What happened and what should happen: events, deltas, actions, and their JSON.

May import messages and errors. Values only: nothing here acts, waits or knows a run.
"""

from .actions import Action, BreakLoop, Exit, Transfer
from .base import RUN_ORIGIN, Delta, Event, Origin, ValueChanges
from .codec import (
    LOG_FORMAT,
    EventDecoder,
    decode_event,
    decode_lines,
    decode_log,
    encode_event,
    encode_header,
    encode_log,
)
from .deltas import CustomDelta, ProgressDelta, ReasoningDelta, TextDelta, ToolCallDelta
from .facts import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    InterruptAnswered,
    InterruptRaised,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
)

__all__ = [
    "LOG_FORMAT",
    "RUN_ORIGIN",
    "Action",
    "AgentFinished",
    "AgentResponded",
    "AgentStarted",
    "BreakLoop",
    "ControlTransferred",
    "CustomDelta",
    "Delta",
    "Event",
    "EventDecoder",
    "Exit",
    "InterruptAnswered",
    "InterruptRaised",
    "Origin",
    "ProgressDelta",
    "ReasoningDelta",
    "ResponseTruncated",
    "RunCancelled",
    "RunCompleted",
    "RunFailed",
    "RunResumed",
    "RunStarted",
    "RunSuspended",
    "StepCompleted",
    "TextDelta",
    "ToolCallDelta",
    "ToolReturned",
    "Transfer",
    "UnknownEvent",
    "UserMessageAdded",
    "ValueChanges",
    "decode_event",
    "decode_lines",
    "decode_log",
    "encode_event",
    "encode_header",
    "encode_log",
]
