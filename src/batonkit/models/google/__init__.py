"""Gemini over Google's SDK: `"google:gemini-3.8-flash"`, or GoogleModel(…).

It may import the modules of models. The SDK is imported on first use.
"""

from .google_model import GoogleModel

__all__ = ["GoogleModel"]
