"""The HTTP API: start runs, stream their events, answer interrupts, cancel, list runs and read threads."""

from .app import api_app

__all__ = ["api_app"]
