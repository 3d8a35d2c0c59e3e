"""An HTTP API of our own over one runner: start runs, hear them, answer, cancel, list, read threads.

May import adapters and what is below them. Drives nothing itself: it asks a hub, as any program could.
"""

from ..adapters.http import JWT, ApiKey, Auth, AuthLike, Basic, Bearer, Caller, MutualTLS, Token, Verifier
from .app import api_app
from .serving import serve, serving

__all__ = [
    "JWT",
    "ApiKey",
    "Auth",
    "AuthLike",
    "Basic",
    "Bearer",
    "Caller",
    "MutualTLS",
    "Token",
    "Verifier",
    "api_app",
    "serve",
    "serving",
]
