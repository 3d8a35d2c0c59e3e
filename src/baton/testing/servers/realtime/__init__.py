"""OpenAI's Realtime API on this machine: a live conversation by script, and what can go wrong with it.

May import the rest of servers, and the settings of realtime. Must not import the `openai` package: what it would
accept is for the tests to show.
"""

from ...speech import silence, speech
from .conversation import ServedConversation, ServedItem
from .faults import CutConnection, DelayEvent, DropEvent, Fault, IgnoreCommand, RefuseCommand, RepeatEvent, SwapEvents
from .line import RecordedEvent
from .server import OpenAIRealtimeServer
from .session import ClientViolation, ServedSession

__all__ = [
    "ClientViolation",
    "CutConnection",
    "DelayEvent",
    "DropEvent",
    "Fault",
    "IgnoreCommand",
    "OpenAIRealtimeServer",
    "RecordedEvent",
    "RefuseCommand",
    "RepeatEvent",
    "ServedConversation",
    "ServedItem",
    "ServedSession",
    "SwapEvents",
    "silence",
    "speech",
]
