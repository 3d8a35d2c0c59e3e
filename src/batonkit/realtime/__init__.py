"""Realtime sessions: voice or text conversations with a team over one open model connection.

May import `runs` and everything below it. Must not import a provider's SDK before it is used, and must not execute
tool calls or transfers itself: `agents` and `team` do that.
"""

from ..handoffs import handoff as realtime_handoff
from .deltas import (
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
from .realtime_agent import RealtimeAgent
from .realtime_runner import RealtimeRunner, resolve_realtime_model
from .session import RealtimeSession
from .speech import PlaybackTracker
from .voice_settings import RealtimeSettings, SessionConfig, TurnDetection

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
