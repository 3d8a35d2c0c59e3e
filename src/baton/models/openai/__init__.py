"""Models of OpenAI and of compatible servers: one function for each prefix of a `provider:model` string.

It may import messages, errors and models. aiohttp and OpenAI's client are imported on first use.
"""

from .endpoint import APIKey, StructuredOutputMode
from .model import OpenAIAPI, OpenAIModel

__all__ = [
    "APIKey",
    "OpenAIAPI",
    "OpenAIModel",
    "StructuredOutputMode",
    "ark",
    "azure",
    "deepseek",
    "lmstudio",
    "ollama",
    "openai",
    "openai_responses",
    "qwen",
    "vllm",
]


def openai(model: str) -> OpenAIModel:
    """Create a model of OpenAI that uses Chat Completions."""
    return OpenAIModel(model)


def openai_responses(model: str) -> OpenAIModel:
    """Create a model of OpenAI that uses Responses."""
    return OpenAIModel(model, api="responses")


def azure(model: str) -> OpenAIModel:
    """Create a model for a deployment of Azure OpenAI."""
    return OpenAIModel(model, provider="azure")


def ark(model: str) -> OpenAIModel:
    """Create a model for a model or an endpoint of Volcengine Ark."""
    return OpenAIModel(model, provider="ark")


def deepseek(model: str) -> OpenAIModel:
    """Create a model of DeepSeek."""
    return OpenAIModel(model, provider="deepseek")


def lmstudio(model: str) -> OpenAIModel:
    """Create a model that LM Studio serves on this machine."""
    return OpenAIModel(model, provider="lmstudio")


def ollama(model: str) -> OpenAIModel:
    """Create a model that Ollama serves on this machine or at OLLAMA_HOST."""
    return OpenAIModel(model, provider="ollama")


def qwen(model: str) -> OpenAIModel:
    """Create a model of Qwen, served by DashScope."""
    return OpenAIModel(model, provider="qwen")


def vllm(model: str) -> OpenAIModel:
    """Create a model that vLLM serves on this machine."""
    return OpenAIModel(model, provider="vllm")
