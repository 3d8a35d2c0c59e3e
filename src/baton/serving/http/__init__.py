"""Parts shared by all HTTP apps: authentication, request checks, error responses and server-sent events.

May import runner and the layers below. Only `auth` and `app` can be imported without Starlette.
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
