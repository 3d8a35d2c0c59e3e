"""A realtime model that plays a script: live conversations for tests, without a provider, a socket or a clock."""

from .conversation import ConversationItem
from .model import ScriptedConnection, ScriptedRealtimeModel

__all__ = ["ConversationItem", "ScriptedConnection", "ScriptedRealtimeModel"]
