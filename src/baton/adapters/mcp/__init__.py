"""The Model Context Protocol, both ways: a server's tools for an agent, and a team as a server.

What is here loads the `mcp` library when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth import AuthorizationCode, ClientCredentials
    from .serving import mcp_app, mcp_server
    from .source import MCPToolset
    from .tokens import FileTokenStore, MemoryTokenStore, TokenStore

_HOME_OF = {
    "AuthorizationCode": "auth",
    "ClientCredentials": "auth",
    "FileTokenStore": "tokens",
    "MCPToolset": "source",
    "MemoryTokenStore": "tokens",
    "TokenStore": "tokens",
    "mcp_app": "serving",
    "mcp_server": "serving",
}

__all__ = [
    "AuthorizationCode",
    "ClientCredentials",
    "FileTokenStore",
    "MCPToolset",
    "MemoryTokenStore",
    "TokenStore",
    "mcp_app",
    "mcp_server",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'baton.adapters.mcp' has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
