"""A realtime model that plays a script: live conversations for tests, without a provider, a socket or a clock."""

from .connection import ScriptedConnection
from .conversation import ConversationItem
from .model import ScriptedRealtimeModel

__all__ = ["ConversationItem", "ScriptedConnection", "ScriptedRealtimeModel"]
