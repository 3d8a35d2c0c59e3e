"""Agent-to-agent: a team as a service that speaks A2A, and a service that speaks it as an agent of a team.

May import runner and what is below it, and the official SDK, which loading this package loads. A task is a run and a
context a thread: nothing is kept but logs in the runner's store.
"""

from ..http import APIKeyAuth, Auth, BasicAuth, BearerAuth, JWTAuth, MutualTLSAuth
from .push import allow_any_url, allow_public_urls
from .remote import RemoteAgent
from .server import A2AApp, a2a_app

__all__ = [
    "A2AApp",
    "APIKeyAuth",
    "Auth",
    "BasicAuth",
    "BearerAuth",
    "JWTAuth",
    "MutualTLSAuth",
    "RemoteAgent",
    "a2a_app",
    "allow_any_url",
    "allow_public_urls",
]
