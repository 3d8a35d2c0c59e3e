"""An HTTP API of our own over one runner: start runs, hear them, answer, cancel, list, read threads.

May import adapters and what is below them. Drives nothing itself: it asks a hub, as any program could.
"""

from ..adapters.http import (
    APIKeyAuth,
    Auth,
    AuthLike,
    BasicAuth,
    BearerAuth,
    JWTAuth,
    MutualTLSAuth,
    Principal,
    TokenLike,
    TokenVerifier,
)
from .app import api_app
from .serving import serve, serve_in_background

__all__ = [
    "APIKeyAuth",
    "Auth",
    "AuthLike",
    "BasicAuth",
    "BearerAuth",
    "JWTAuth",
    "MutualTLSAuth",
    "Principal",
    "TokenLike",
    "TokenVerifier",
    "api_app",
    "serve",
    "serve_in_background",
]
