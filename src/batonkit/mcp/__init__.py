"""Use the tools of MCP servers in agents.

May import runs and the layers below. The `mcp` library is imported when a name is first used.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from .auth import AuthorizationCode, ClientCredentials
    from .oauth import FileTokenStore, MemoryTokenStore, TokenStore
    from .toolset import MCPToolset

_MODULES = {
    "auth": ("AuthorizationCode", "ClientCredentials"),
    "oauth": ("FileTokenStore", "MemoryTokenStore", "TokenStore"),
    "toolset": ("MCPToolset",),
}

__all__ = ["AuthorizationCode", "ClientCredentials", "FileTokenStore", "MCPToolset", "MemoryTokenStore", "TokenStore"]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
