"""Ways in and out for other people's standards: what a run does, told in the words that other systems read.

May import runner and what is below it; a standard's library is imported when its adapter is made. Must not drive runs
in a way of its own: an adapter reads a log, or calls a runner as anybody would.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .otel import OTelObserver

if TYPE_CHECKING:
    from .mcp import MCPToolset, mcp_app, mcp_server

# Their libraries are large: loaded when a name is first used.
_HOME_OF = {"MCPToolset": "mcp", "mcp_app": "mcp", "mcp_server": "mcp"}

__all__ = ["MCPToolset", "OTelObserver", "mcp_app", "mcp_server"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'baton.adapters' has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
