"""Serve a team as an A2A service. A task is a run and a context is a thread; no other state is kept.

May import a2a, serve.http, runs and the layers below, and the official A2A SDK, which this package loads.
"""

from ...errors import MissingExtraError

try:
    from .app import A2AApp, a2a_app
    from .push import allow_any_url, allow_public_urls
except ModuleNotFoundError as missing:
    raise MissingExtraError("batonkit.serve.a2a", "a2a", missing) from missing

__all__ = ["A2AApp", "a2a_app", "allow_any_url", "allow_public_urls"]
