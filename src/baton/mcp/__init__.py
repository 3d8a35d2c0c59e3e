"""Use the tools of MCP servers in agents.

May import runner and the layers below. The `mcp` library is imported when a name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auth import AuthorizationCode, ClientCredentials
    from .oauth import FileTokenStore, MemoryTokenStore, TokenStore
    from .toolset import MCPToolset

_MODULES = {
    "AuthorizationCode": "auth",
    "ClientCredentials": "auth",
    "FileTokenStore": "oauth",
    "MemoryTokenStore": "oauth",
    "TokenStore": "oauth",
    "MCPToolset": "toolset",
}

__all__ = ["AuthorizationCode", "ClientCredentials", "FileTokenStore", "MCPToolset", "MemoryTokenStore", "TokenStore"]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
