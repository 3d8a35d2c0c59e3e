"""The model protocol, retries and fallbacks, and one package for each provider.

May import messages and errors. A provider's SDK is imported when a model of that provider is first used.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from .assembly import assemble_response, collect_response
from .formats import to_anthropic, to_openai, to_responses
from .model import (
    Chunk,
    CompleteResponse,
    Model,
    ModelRequest,
    ModelResponse,
    OutputSchema,
    PartChunk,
    PromptCaching,
    ReasoningChunk,
    RestartChunk,
    TextChunk,
    ToolCallChunk,
)
from .prices import GenAIPrices, ModelPrice, Prices, PriceTable
from .registry import MODEL_ENV_VAR, register_model, resolve_model
from .settings import ModelSettings

if TYPE_CHECKING:
    from .retry import FallbackModel, RetryModel

_MODULES = {"retry": ("FallbackModel", "RetryModel")}

__all__ = [
    "MODEL_ENV_VAR",
    "Chunk",
    "CompleteResponse",
    "FallbackModel",
    "GenAIPrices",
    "Model",
    "ModelPrice",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "OutputSchema",
    "PartChunk",
    "PriceTable",
    "Prices",
    "PromptCaching",
    "ReasoningChunk",
    "RestartChunk",
    "RetryModel",
    "TextChunk",
    "ToolCallChunk",
    "assemble_response",
    "collect_response",
    "register_model",
    "resolve_model",
    "to_anthropic",
    "to_openai",
    "to_responses",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
