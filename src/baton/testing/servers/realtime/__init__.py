"""OpenAI's Realtime API on this machine: a live conversation by script, and what can go wrong with it.

May import the rest of servers, and the settings of realtime. Must not import the `openai` package: what it would
accept is for the tests to show.
"""

from ...speech import silence, speech
from .conversation import Conversation, Item
from .faults import Cut, Delay, Drop, Fault, Ignore, Refuse, Repeat, Swap
from .line import Recorded
from .server import OpenAIRealtimeServer
from .session import Complaint, ServedSession

__all__ = [
    "Complaint",
    "Conversation",
    "Cut",
    "Delay",
    "Drop",
    "Fault",
    "Ignore",
    "Item",
    "OpenAIRealtimeServer",
    "Recorded",
    "Refuse",
    "Repeat",
    "ServedSession",
    "Swap",
    "silence",
    "speech",
]
