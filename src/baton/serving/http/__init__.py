"""What adapters that are spoken to over HTTP share: who calls, how much is read, trouble told, server-sent events.

May import runner and what is below it; all files but `auth` and `callers` import Starlette when they are loaded.
Knows no protocol: each of them puts its own words on it.
"""

from .auth import (
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
]
