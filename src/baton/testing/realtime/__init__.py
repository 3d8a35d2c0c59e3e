"""A realtime model that plays a script: live conversations for tests, without a provider, a socket or a clock."""

from .connection import ScriptedConnection
from .conversation import Item
from .model import ScriptedRealtimeModel
from .speech import speech_like

__all__ = ["Item", "ScriptedConnection", "ScriptedRealtimeModel", "speech_like"]
