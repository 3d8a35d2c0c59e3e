"""A real model without a key: llama.cpp in this process, three constrained decodes for an answer.

May import messages, errors and the protocol of models. Must not know any team, nor what its tools are about.
"""

from .model import LocalModel

__all__ = ["LocalModel"]
