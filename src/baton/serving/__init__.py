"""Serve a team over HTTP: the HTTP API, AG-UI, A2A and MCP, with one set of authentication classes.

May import mcp, a2a, runner and the layers below. Starlette and the protocol SDKs are imported when an app is created.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .a2a.app import A2AApp, a2a_app
    from .a2a.push import allow_any_url, allow_public_urls
    from .agui.app import agui_app
    from .agui.frontend import FrontendTools, with_frontend_tools
    from .api.app import api_app
    from .http.auth import (
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
    from .mcp import mcp_app, mcp_server
    from .server import serve, serve_in_background

_MODULES = {
    "APIKeyAuth": "http.auth",
    "Auth": "http.auth",
    "AuthLike": "http.auth",
    "BasicAuth": "http.auth",
    "BearerAuth": "http.auth",
    "JWTAuth": "http.auth",
    "MutualTLSAuth": "http.auth",
    "Principal": "http.auth",
    "TokenLike": "http.auth",
    "TokenVerifier": "http.auth",
    "api_app": "api.app",
    "agui_app": "agui.app",
    "FrontendTools": "agui.frontend",
    "with_frontend_tools": "agui.frontend",
    "A2AApp": "a2a.app",
    "a2a_app": "a2a.app",
    "allow_any_url": "a2a.push",
    "allow_public_urls": "a2a.push",
    "mcp_app": "mcp",
    "mcp_server": "mcp",
    "serve": "server",
    "serve_in_background": "server",
}

__all__ = [
    "A2AApp",
    "APIKeyAuth",
    "Auth",
    "AuthLike",
    "BasicAuth",
    "BearerAuth",
    "FrontendTools",
    "JWTAuth",
    "MutualTLSAuth",
    "Principal",
    "TokenLike",
    "TokenVerifier",
    "a2a_app",
    "agui_app",
    "allow_any_url",
    "allow_public_urls",
    "api_app",
    "mcp_app",
    "mcp_server",
    "serve",
    "serve_in_background",
    "with_frontend_tools",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
