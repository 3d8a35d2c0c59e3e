"""Claude over Anthropic's own SDK: `"anthropic:claude-opus-5-5"`, or AnthropicModel(…).

May import the files of models, and the SDK where it is used. Must not import it when this is loaded.
"""

from .model import AnthropicModel

__all__ = ["AnthropicModel"]
