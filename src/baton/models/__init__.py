"""Speak to a language model: the protocol, how chunks become an answer, and models around models.

May import messages and errors. No provider SDK is imported before a model of that provider is used.
"""

from .assembly import assemble_response, collect_response
from .base import (
    Chunk,
    CompleteResponse,
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from .registry import MODEL_ENV_VAR, register_model, resolve_model
from .retry import FallbackModel, RetryModel

__all__ = [
    "MODEL_ENV_VAR",
    "Chunk",
    "CompleteResponse",
    "FallbackModel",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "OutputSchema",
    "PartChunk",
    "ReasoningChunk",
    "RetryModel",
    "TextChunk",
    "ToolCallChunk",
    "assemble_response",
    "collect_response",
    "register_model",
    "resolve_model",
]
