"""What adapters that are spoken to over HTTP share: who calls, how much is read, trouble told, server-sent events.

May import runner and what is below it; all files but `auth` and `callers` import Starlette when they are loaded.
Knows no protocol: each of them puts its own words on it.
"""

from .auth import JWT, ApiKey, Auth, AuthLike, Basic, Bearer, MutualTLS
from .callers import Caller, Token, Verifier

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
]
