"""A scripted realtime model: realtime sessions in tests, without a provider, a socket or a clock.

May import `realtime` and everything below it, and the rest of `testing`.
"""

from .conversation import ConversationItem
from .scripted_realtime import ScriptedConnection, ScriptedRealtimeModel

__all__ = ["ConversationItem", "ScriptedConnection", "ScriptedRealtimeModel"]
