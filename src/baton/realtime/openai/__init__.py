"""OpenAI's Realtime API, over a websocket of its official SDK.

May import the contract of realtime, models and everything below. Must not import the SDK before it is used, and must
not know what a conversation is about: it turns commands into events, and events into signals.
"""

from .model import OpenAIRealtimeModel

__all__ = ["OpenAIRealtimeModel"]
