"""OpenAI's Realtime API on this machine: a live conversation by script, and what can go wrong with it.

May import the rest of servers, and the settings of realtime. Must not import the `openai` package: what it would
accept is for the tests to show.
"""

from tests.servers.realtime.connection import (
    CutConnection,
    DelayEvent,
    DropEvent,
    Fault,
    IgnoreCommand,
    RecordedEvent,
    RefuseCommand,
    RepeatEvent,
    SwapEvents,
)
from tests.servers.realtime.conversation import ServedConversation, ServedItem
from tests.servers.realtime.server import OpenAIRealtimeServer
from tests.servers.realtime.session import ClientViolation, ServedSession

from baton.testing.audio import silence, speech

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
