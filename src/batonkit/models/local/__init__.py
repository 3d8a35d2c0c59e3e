"""An embedded model that needs no API key: llama.cpp in this process.

It may import messages, errors and models.
"""

from .local_model import LocalModel

__all__ = ["LocalModel"]
