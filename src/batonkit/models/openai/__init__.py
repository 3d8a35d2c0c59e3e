"""Models of OpenAI and of compatible servers: one factory for each prefix of a `provider:model` string.

It may import messages, errors and models. aiohttp and OpenAI's client are imported on first use.
"""

from functools import partial

from .endpoint import APIKey, StructuredOutputMode
from .openai_model import OpenAIAPI, OpenAIModel

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


openai = OpenAIModel
"""Create a model of OpenAI that uses Chat Completions."""
openai_responses = partial(OpenAIModel, api="responses")
"""Create a model of OpenAI that uses Responses."""
azure = partial(OpenAIModel, provider="azure")
"""Create a model for a deployment of Azure OpenAI."""
ark = partial(OpenAIModel, provider="ark")
"""Create a model for a model or an endpoint of Volcengine Ark."""
deepseek = partial(OpenAIModel, provider="deepseek")
"""Create a model of DeepSeek."""
lmstudio = partial(OpenAIModel, provider="lmstudio")
"""Create a model that LM Studio serves on this machine."""
ollama = partial(OpenAIModel, provider="ollama")
"""Create a model that Ollama serves on this machine or at OLLAMA_HOST."""
qwen = partial(OpenAIModel, provider="qwen")
"""Create a model of Qwen, served by DashScope."""
vllm = partial(OpenAIModel, provider="vllm")
"""Create a model that vLLM serves on this machine."""
