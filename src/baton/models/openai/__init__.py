"""Models of OpenAI, and of the servers that speak its language: one for each prefix of a `provider:model` string.

May import messages, errors and the protocol of models. Must not import aiohttp or OpenAI's client before it is used.
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
    """A model of OpenAI, over Chat Completions."""
    return OpenAIModel(model)


def openai_responses(model: str) -> OpenAIModel:
    """A model of OpenAI, over Responses."""
    return OpenAIModel(model, api="responses")


def azure(model: str) -> OpenAIModel:
    """A deployment of Azure OpenAI."""
    return OpenAIModel(model, provider="azure")


def ark(model: str) -> OpenAIModel:
    """A model or endpoint of Volcengine Ark."""
    return OpenAIModel(model, provider="ark")


def deepseek(model: str) -> OpenAIModel:
    """A model of DeepSeek."""
    return OpenAIModel(model, provider="deepseek")


def lmstudio(model: str) -> OpenAIModel:
    """A model that LM Studio serves on this machine."""
    return OpenAIModel(model, provider="lmstudio")


def ollama(model: str) -> OpenAIModel:
    """A model that Ollama serves, here or at OLLAMA_HOST."""
    return OpenAIModel(model, provider="ollama")


def qwen(model: str) -> OpenAIModel:
    """A model of Qwen, over DashScope."""
    return OpenAIModel(model, provider="qwen")


def vllm(model: str) -> OpenAIModel:
    """A model that vLLM serves on this machine."""
    return OpenAIModel(model, provider="vllm")
