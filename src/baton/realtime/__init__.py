"""Live conversations: voice or text over one open connection, in which the agent that has the floor can change.

May import runner and everything below it. Must not import a provider's SDK before it is asked for, and must not have
a way of its own to carry out calls or transfers: those are `agents` and `flow`.
"""

from ..handoffs import handoff as realtime_handoff
from .agent import RealtimeAgent
from .events import (
    AudioCompleted,
    AudioDelta,
    GuardrailTripped,
    PlaybackInterrupted,
    SessionErrorReported,
    SessionReconnected,
    SessionReconnecting,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
)
from .openai import OpenAIRealtimeModel
from .protocol import RealtimeConnection, RealtimeModel
from .runner import RealtimeRunner, resolve_realtime_model
from .session import RealtimeSession
from .settings import RealtimeSettings, SessionConfig, TurnDetection
from .speech import PlaybackTracker

__all__ = [
    "AudioCompleted",
    "AudioDelta",
    "GuardrailTripped",
    "OpenAIRealtimeModel",
    "PlaybackInterrupted",
    "PlaybackTracker",
    "RealtimeAgent",
    "RealtimeConnection",
    "RealtimeModel",
    "RealtimeRunner",
    "RealtimeSession",
    "RealtimeSettings",
    "SessionConfig",
    "SessionErrorReported",
    "SessionReconnected",
    "SessionReconnecting",
    "SpeechStarted",
    "SpeechStopped",
    "TranscriptDelta",
    "TurnDetection",
    "realtime_handoff",
    "resolve_realtime_model",
]
