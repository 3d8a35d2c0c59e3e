"""Claude over Anthropic's SDK: `"anthropic:claude-opus-5-5"`, or AnthropicModel(…).

It may import the modules of models. The SDK is imported on first use.
"""

from .anthropic_model import AnthropicModel

__all__ = ["AnthropicModel"]
