"""Live conversations: voice or text over one open connection, in which the agent that has the floor can change.

May import runner and everything below it. Must not import a provider's SDK before it is asked for, and must not have
a way of its own to carry out calls or transfers: those are `agents` and `flow`.
"""

from ..handoffs import handoff as realtime_handoff
from .agent import RealtimeAgent
from .base import RealtimeConnection, RealtimeModel
from .events import (
    AudioDelta,
    AudioDone,
    GuardrailStopped,
    PlaybackInterrupted,
    Reconnected,
    Reconnecting,
    SessionTrouble,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
)
from .openai import OpenAIRealtimeModel
from .playback import Playback
from .registry import resolve_realtime
from .runner import RealtimeRunner
from .session import RealtimeSession
from .settings import Manners, SessionSettings, TurnDetection

__all__ = [
    "AudioDelta",
    "AudioDone",
    "GuardrailStopped",
    "Manners",
    "OpenAIRealtimeModel",
    "Playback",
    "PlaybackInterrupted",
    "RealtimeAgent",
    "RealtimeConnection",
    "RealtimeModel",
    "RealtimeRunner",
    "RealtimeSession",
    "Reconnected",
    "Reconnecting",
    "SessionSettings",
    "SessionTrouble",
    "SpeechStarted",
    "SpeechStopped",
    "TranscriptDelta",
    "TurnDetection",
    "realtime_handoff",
    "resolve_realtime",
]
