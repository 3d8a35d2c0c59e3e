"""A local server of OpenAI's Realtime API, with scripted responses and faults.

It is the websocket transport of `batonkit.testing.realtime`. Must not import the `openai` package, so that the tests
show what its client accepts.
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
from tests.servers.realtime.server import OpenAIRealtimeServer
from tests.servers.realtime.session import ClientViolation, ServedSession

from batonkit.testing.realtime.audio import silence, speech

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
    "ServedSession",
    "SwapEvents",
    "silence",
    "speech",
]
