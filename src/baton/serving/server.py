"""Serve an ASGI app with uvicorn; unauthenticated apps are served on loopback addresses only."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..errors import SetupError

_DEFAULTS: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5}


def serve(
    app: Any, *, host: str = "127.0.0.1", port: int = 8000, allow_anonymous: bool = False, **options: Any
) -> None:
    """Serve an ASGI app until the process is stopped.

    Args:
        app: The app.
        host: The address to listen on.
        port: The port to listen on.
        allow_anonymous: Accept a `host` that other machines can reach. Pass True if the app authenticates its
            callers, or if anonymous access is intended.
        options: Further options of uvicorn.

    Raises:
        SetupError: uvicorn is not installed, or `host` is not a loopback address and `allow_anonymous` is False.
    """
    uvicorn = _import_uvicorn(host, allow_anonymous=allow_anonymous)
    uvicorn.run(app, host=host, port=port, **{**_DEFAULTS, **options})


@asynccontextmanager
async def serve_in_background(
    app: Any, *, host: str = "127.0.0.1", port: int = 0, allow_anonymous: bool = False, **options: Any
) -> AsyncGenerator[str]:
    """Serve an ASGI app in this event loop while a block runs; yields the app's URL.

    Args:
        app: The app.
        host: The address to listen on.
        port: The port to listen on; 0 selects a free port.
        allow_anonymous: Accept a `host` that other machines can reach, as for `serve`.
        options: Further options of uvicorn.

    Raises:
        SetupError: uvicorn is not installed, or `host` is not a loopback address and `allow_anonymous` is False.
    """
    uvicorn = _import_uvicorn(host, allow_anonymous=allow_anonymous)
    with _listen(host, port) as listener:
        server = uvicorn.Server(uvicorn.Config(app, **{**_DEFAULTS, **options}))
        task = asyncio.create_task(server.serve([listener]))
        try:
            while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for readiness
                await asyncio.sleep(0.005)
            url_host = f"[{host}]" if ":" in host else host
            yield f"http://{url_host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def _listen(host: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets whose protocol is given explicitly.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


def _import_uvicorn(host: str, *, allow_anonymous: bool) -> Any:
    try:
        import uvicorn
    except ImportError:
        raise SetupError("serving an app needs uvicorn: pip install 'baton-adk[serving]'") from None
    from .http.guard import is_local

    if not allow_anonymous and not is_local(host):
        raise SetupError(
            f"host `{host}` can be reached from other machines; if the app has auth=… or anonymous access is intended, "
            "pass allow_anonymous=True"
        )
    return uvicorn
