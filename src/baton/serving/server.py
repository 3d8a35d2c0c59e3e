"""Serving an app on a socket: on this machine only, unless callers must show who they are."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..errors import SetupError


def serve(
    app: Any, *, host: str = "127.0.0.1", port: int = 8000, allow_anonymous: bool = False, **options: Any
) -> None:
    """Serve an ASGI app until the process is told to stop. `options` are uvicorn's.

    Unless `is_guarded`, which says that callers must show who they are or that anyone may call, only this machine can
    reach it: another `host` is refused.
    """
    uvicorn = _uvicorn_for(host, is_guarded=allow_anonymous)
    uvicorn.run(app, host=host, port=port, **{**_USUAL, **options})


@asynccontextmanager
async def serve_in_background(
    app: Any, *, host: str = "127.0.0.1", port: int = 0, is_guarded: bool = False, **options: Any
) -> AsyncGenerator[str]:
    """The same while a block lasts, beside whatever else runs in this event loop; gives the address.

    Port 0 is any port that is free.
    """
    uvicorn = _uvicorn_for(host, is_guarded=is_guarded)
    with _listening(host, port) as listening:
        server = uvicorn.Server(uvicorn.Config(app, **{**_USUAL, **options}))
        task = asyncio.create_task(server.serve([listening]))
        try:
            while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn tells nobody when it is ready
                await asyncio.sleep(0.005)
            place = f"[{host}]" if ":" in host else host
            yield f"http://{place}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


_USUAL: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5}


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. It is named as TCP: only then does asyncio send what there is without waiting for more."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    return listening


def _uvicorn_for(host: str, *, is_guarded: bool) -> Any:
    try:
        import uvicorn
    except ImportError:
        raise SetupError("serving an app needs uvicorn: pip install 'baton-adk[serving]'") from None
    from .http.guard import is_local

    if not is_guarded and not is_local(host):
        raise SetupError(
            f"host `{host}` can be reached from other machines, and nobody is asked who they are; "
            "give the app auth=…, or say that anyone may call"
        )
    return uvicorn
