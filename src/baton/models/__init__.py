"""Speak to a language model: the protocol, how chunks become an answer, and models around models.

May import messages and errors. No provider SDK is imported before a model of that provider is used.
"""

from .base import (
    CallChunk,
    Chunk,
    Model,
    ModelRequest,
    ModelSettings,
    OutputSchema,
    PartChunk,
    Ready,
    ReasoningChunk,
    Response,
    TextChunk,
)
from .collect import assembled, collect
from .failover import Failover
from .registry import DEFAULT_VARIABLE, register, resolve
from .retry import Retry

__all__ = [
    "DEFAULT_VARIABLE",
    "CallChunk",
    "Chunk",
    "Failover",
    "Model",
    "ModelRequest",
    "ModelSettings",
    "OutputSchema",
    "PartChunk",
    "Ready",
    "ReasoningChunk",
    "Response",
    "Retry",
    "TextChunk",
    "assembled",
    "collect",
    "register",
    "resolve",
]
