"""Agent-to-agent: a team as a service that speaks A2A, and a service that speaks it as an agent of a team.

May import runner and what is below it, and the official SDK, which loading this package loads. A task is a run and a
context a thread: nothing is kept but logs in the runner's store.
"""

from ..http import JWT, ApiKey, Auth, Basic, Bearer, MutualTLS
from .push import anywhere, public_only
from .remote import RemoteAgent
from .server import A2AServer, serve_a2a

__all__ = [
    "JWT",
    "A2AServer",
    "ApiKey",
    "Auth",
    "Basic",
    "Bearer",
    "MutualTLS",
    "RemoteAgent",
    "anywhere",
    "public_only",
    "serve_a2a",
]
