"""Gemini over Google's own SDK: `"google:gemini-3.8-flash"`, or GoogleModel(…).

May import the files of models, and the SDK where it is used. Must not import it when this is loaded.
"""

from .model import GoogleModel

__all__ = ["GoogleModel"]
