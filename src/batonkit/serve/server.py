"""Serve an ASGI app with uvicorn; unauthenticated apps are served on loopback addresses only."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from math import ceil
from types import FrameType
from typing import TYPE_CHECKING, Any

from .._checks import require_extra
from ..errors import AddressError, SetupError
from .http.application import SHUTDOWN, Shutdown
from .http.auth import is_local

if TYPE_CHECKING:
    import uvicorn

_DEFAULTS: dict[str, Any] = {"log_level": "warning"}


def serve(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_anonymous: bool = False,
    drain: float = 10.0,
    **options: Any,
) -> None:
    """Serve an ASGI app until the process is stopped by SIGTERM or Ctrl-C.

    A stopped server takes no more runs and ends event streams at once with a hint to reconnect. Turns in flight may
    finish; then the runs are released, so that another server continues them.

    Args:
        app: The app, or its import string for uvicorn's options `reload` and `workers`; `drain` is then 10.
        host: The address to listen on.
        port: The port to listen on.
        allow_anonymous: Accept a `host` that other machines can reach. Pass True if the app authenticates its
            callers, or if anonymous access is intended.
        drain: Seconds for turns in flight to finish.
        options: Further options of uvicorn.

    Raises:
        SetupError: uvicorn is not installed, or `host` is not a loopback address and `allow_anonymous` is False.
        AddressError: The address is invalid or in use.
    """
    check_server(host, allow_anonymous=allow_anonymous)
    if isinstance(app, str) or not options.keys().isdisjoint(("fd", "uds")):
        import uvicorn

        # With an import string, uvicorn can reload the app or start several processes.
        uvicorn.run(app, host=host, port=port, **{**_DEFAULTS, **options})
        return
    with listen(host, port) as sockets:
        run_server(app, sockets, drain=drain, **options)


@asynccontextmanager
async def serve_in_background(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_anonymous: bool = False,
    drain: float = 10.0,
    **options: Any,
) -> AsyncGenerator[str]:
    """Serve an ASGI app in this event loop while a block runs; yields the app's URL.

    Args:
        app: The app.
        host: The address to listen on.
        port: The port to listen on; 0 selects a free port.
        allow_anonymous: Accept a `host` that other machines can reach, as for `serve`.
        drain: Seconds for turns in flight to finish at the end of the block.
        options: Further options of uvicorn.

    Raises:
        SetupError: uvicorn is not installed, or `host` is not a loopback address and `allow_anonymous` is False.
        AddressError: The address is invalid or in use.
    """
    check_server(host, allow_anonymous=allow_anonymous)
    with listen(host, port) as sockets:
        server = _make_server(app, drain, None, None, options)
        task = asyncio.create_task(server.serve(sockets))
        try:
            while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for readiness
                await asyncio.sleep(0.005)
            yield url_of(host, sockets)
        finally:
            server.should_exit = True
            await task


def run_server(
    app: Any,
    sockets: list[socket.socket],
    *,
    drain: float,
    on_start: Callable[[], Awaitable[None]] | None = None,
    on_ready: Callable[[], None] | None = None,
    **options: Any,
) -> None:
    """Serve an ASGI app on sockets until the process is stopped."""
    server = _make_server(app, drain, on_start, on_ready, options)
    with suppress(KeyboardInterrupt):
        server.run(sockets)


def _make_server(
    app: Any,
    drain: float,
    on_start: Callable[[], Awaitable[None]] | None,
    on_ready: Callable[[], None] | None,
    options: dict[str, Any],
) -> "uvicorn.Server":
    """Return a uvicorn server that tells the app when it begins to shut down."""
    import uvicorn

    class Server(uvicorn.Server):
        hurry: Callable[[], Any] | None = None

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            if self.force_exit and self.hurry is not None:
                self.hurry()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            if on_start is not None:
                await on_start()
            await super().startup(sockets)
            if on_ready is not None and self.started:
                on_ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            shutdown: Shutdown | None = self.lifespan.state.get(SHUTDOWN)
            if shutdown is None:
                await super().shutdown(sockets)
                return
            loop = asyncio.get_running_loop()
            self.hurry = lambda: asyncio.run_coroutine_threadsafe(shutdown.hurry(), loop)
            draining = loop.create_task(shutdown.run(drain))
            await super().shutdown(sockets)
            # A server that is told to stop twice does not shut the app down, but the runs must be released.
            await draining

    # Requests that wait for a run end with it; the rest have a second more.
    defaults: dict[str, Any] = {**_DEFAULTS, "timeout_graceful_shutdown": ceil(drain) + 1}
    return Server(uvicorn.Config(app, **defaults | options))


@contextmanager
def listen(host: str, port: int) -> Generator[list[socket.socket]]:
    """Yield sockets that listen on all addresses of a host; they are closed with the block.

    Raises:
        AddressError: The host is unknown, or the address is in use or not allowed.
    """
    sockets: list[socket.socket] = []
    with ExitStack() as stack:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found[:1] if port == 0 else found):
                # asyncio sets TCP_NODELAY only on sockets whose protocol is given explicitly.
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                sockets.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(2048)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            is_used = getattr(error, "errno", None) == errno.EADDRINUSE
            hint = "choose another port, or stop the program that uses it" if is_used else "choose another address"
            raise AddressError(f"cannot listen on `{host}`, port {port}: {reason}; {hint}") from None
        yield sockets


def url_of(host: str, sockets: list[socket.socket]) -> str:
    """Return the URL of a server."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"


def check_server(host: str, *, allow_anonymous: bool) -> None:
    """Raise unless uvicorn is installed and a host may be served.

    Raises:
        SetupError: uvicorn is not installed, or `host` is not a loopback address and `allow_anonymous` is False.
    """
    require_extra("serving an app", "serving", "uvicorn")
    if not allow_anonymous and not is_local(host):
        raise SetupError(
            f"host `{host}` can be reached from other machines; if the app has auth=… or anonymous access is intended, "
            "pass allow_anonymous=True"
        )
