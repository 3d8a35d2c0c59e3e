"""OpenAI's Realtime API over the websocket of its official SDK.

May import the protocol of realtime, `models` and everything below. Must not import the SDK before it is used. It only
encodes commands as client events, and decodes server events to signals.
"""

from .openai_realtime import OpenAIRealtimeModel

__all__ = ["OpenAIRealtimeModel"]
