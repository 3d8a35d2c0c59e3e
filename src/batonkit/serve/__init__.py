"""Serve a team over HTTP: the HTTP API, OpenAI's, AI SDK, AG-UI, A2A and MCP, with one set of authentication classes.

May import mcp, a2a, runs and the layers below. Starlette and the protocol SDKs are imported when an app is created.
"""

from typing import TYPE_CHECKING, Any

from .._lazy import lazy_exports
from ..errors import MissingExtraError

if TYPE_CHECKING:
    from .a2a.app import A2AApp, a2a_app
    from .a2a.push import allow_any_url, allow_public_urls
    from .agui.app import agui_app
    from .ai_sdk.app import ai_sdk_app
    from .api.app import api_app
    from .api.client_options import ClientOptions
    from .api.event_streams import EventStreams
    from .frontend_tools import FrontendTools, with_frontend_tools
    from .http.application import runner_lifespan
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
    from .http.http_errors import exception_handlers
    from .mcp import mcp_app, mcp_server
    from .openai.app import openai_app
    from .server import serve, serve_in_background

_AUTH = ("APIKeyAuth", "BasicAuth", "BearerAuth", "JWTAuth", "MutualTLSAuth")
_MODULES = {
    "a2a.app": ("A2AApp", "a2a_app"),
    "a2a.push": ("allow_any_url", "allow_public_urls"),
    "agui.app": ("agui_app",),
    "ai_sdk.app": ("ai_sdk_app",),
    "api.app": ("api_app",),
    "api.client_options": ("ClientOptions",),
    "api.event_streams": ("EventStreams",),
    "frontend_tools": ("FrontendTools", "with_frontend_tools"),
    "http.application": ("runner_lifespan",),
    "http.auth": (*_AUTH, "Auth", "AuthLike", "Principal", "TokenLike", "TokenVerifier"),
    "http.http_errors": ("exception_handlers",),
    "mcp": ("mcp_app", "mcp_server"),
    "openai.app": ("openai_app",),
    "server": ("serve", "serve_in_background"),
}

__all__ = [
    "A2AApp",
    "APIKeyAuth",
    "Auth",
    "AuthLike",
    "BasicAuth",
    "BearerAuth",
    "ClientOptions",
    "EventStreams",
    "FrontendTools",
    "JWTAuth",
    "MutualTLSAuth",
    "Principal",
    "TokenLike",
    "TokenVerifier",
    "a2a_app",
    "agui_app",
    "ai_sdk_app",
    "allow_any_url",
    "allow_public_urls",
    "api_app",
    "exception_handlers",
    "mcp_app",
    "mcp_server",
    "openai_app",
    "runner_lifespan",
    "serve",
    "serve_in_background",
    "with_frontend_tools",
]

_load, __dir__ = lazy_exports(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as missing:
        extra = next((module for module, names in _MODULES.items() if name in names), "").partition(".")[0]
        extra = extra if extra in ("a2a", "agui", "mcp") else "serving"
        raise MissingExtraError(f"batonkit.serve.{name}", extra, missing) from missing
