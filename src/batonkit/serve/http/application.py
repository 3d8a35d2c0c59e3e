"""Assembly of an HTTP app: its runner, its lifespan and its CORS middleware. Importable without Starlette."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..._checks import check_arguments, check_callback, check_positive
from ..._propagation import remote_parent
from ...agents import BaseAgent
from ...errors import RunNotFoundError, SetupError
from ...runs import BackgroundRunner, ContextFactory, Runner
from ...stores import Store, resolve_store

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

    from .guard import RequestGuard

AppTarget: TypeAlias = BaseAgent[Any, Any] | Runner[Any, Any] | BackgroundRunner
"""An object that an app can serve; pass one `BackgroundRunner` to several apps to share its runs."""

ACCESS_LOGGER = logging.getLogger("baton.access")
_TRACE = (b"traceparent", b"tracestate")
_ALLOWED_HEADERS = (
    *("Authorization", "Content-Type", "Accept", "Last-Event-ID", "Idempotency-Key", "A2A-Version", "A2A-Extensions"),
    *("MCP-Protocol-Version", "Mcp-Session-Id", "Traceparent", "Tracestate"),
)


def to_background_runner(
    target: AppTarget,
    what: str,
    context_factory: ContextFactory | None = None,
    *,
    store: Store | str | PathLike[str] | None = None,
    lease_seconds: float | None = None,
) -> BackgroundRunner:
    """Return the background runner that an app serves.

    Raises:
        SetupError: The runner has no store, or an option is given for a target that has its own.
    """
    if isinstance(target, BaseAgent):
        opened = resolve_store(store or "memory:", lease_seconds=lease_seconds)
        return BackgroundRunner(Runner(target, store=opened, context_factory=context_factory))
    target = with_context_factory(target, what, context_factory)
    if store is not None:
        raise SetupError(f"{what}(runner, store=…): a runner has its own store; pass it there: Runner(…, store=…)")
    background = target if isinstance(target, BackgroundRunner) else BackgroundRunner(target)
    background.runner._require_store(what)
    return background


def with_context_factory(
    target: Runner[Any, Any] | BackgroundRunner, what: str, context_factory: ContextFactory | None
) -> Runner[Any, Any] | BackgroundRunner:
    """Return the runner that an app serves, with the app's way to create contexts.

    Raises:
        SetupError: The target is a background runner, which other apps may share.
    """
    if context_factory is None:
        return target
    check_callback(f"{what}(context_factory=…)", context_factory, "record")
    if isinstance(target, BackgroundRunner):
        raise SetupError(
            f"{what}(background, context_factory=…): a background runner uses the factory of its runner; "
            "pass it there: Runner(…, context_factory=…)"
        )
    return target.clone(context_factory=context_factory)


@dataclass(eq=False)
class Endpoints:
    """The endpoints of one app that streams events."""

    background: BackgroundRunner
    guard: "RequestGuard"
    heartbeat: float
    show_errors: bool
    cancel_on_disconnect: bool = True

    def __post_init__(self) -> None:
        self.store = self.background.runner._require_store("serving")
        self._cancelling: dict[str, asyncio.Task[None]] = {}
        """Running tasks by run, also because the event loop keeps only weak references."""

    def abandon(self, run_id: str) -> None:
        """Cancel a run whose client has disconnected, if this app does so."""
        if self.cancel_on_disconnect:
            # The task of the request is being cancelled and can await nothing.
            task = self._cancelling[run_id] = asyncio.create_task(self._cancel(run_id))
            task.add_done_callback(lambda _: self._cancelling.pop(run_id, None))

    async def wait_for_cancel(self, run_id: str) -> None:
        """Wait until an abandoned run has stopped; return at once for others."""
        if (task := self._cancelling.get(run_id)) is not None:
            await asyncio.wait([task])

    async def _cancel(self, run_id: str) -> None:
        # A message that has steered another run is part of that one.
        with suppress(RunNotFoundError):
            await self.background.cancel(run_id)


SHUTDOWN = "baton.shutdown"
"""The key of the ASGI state that holds the app's `Shutdown`."""


class SupportsDrain(Protocol):
    """An object that drives runs, such as a `BackgroundRunner`."""

    async def drain(self, seconds: float = 10.0) -> None:
        """Take no more runs, let turns in flight finish, and stop driving."""
        ...

    async def release_all(self) -> None:
        """Stop driving now."""
        ...


class Shutdown:
    """The shutdown of an app, known to its server and to its responses."""

    def __init__(self, runs: SupportsDrain) -> None:
        self.has_started = False
        """True once the server has begun to shut down."""
        self._runs = runs
        self._streams: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def interrupts_stream(self) -> AsyncGenerator[None]:
        """Raise TimeoutError in the block as soon as the server begins to shut down."""
        async with asyncio.timeout(0 if self.has_started else None) as stream:
            self._streams.add(stream)
            try:
                yield
            finally:
                self._streams.discard(stream)

    async def run(self, seconds: float) -> None:
        """End the event streams now, and drain the app's runs."""
        self.has_started = True
        for stream in self._streams:
            stream.reschedule(0)
        await self._runs.drain(seconds)

    async def hurry(self) -> None:
        """Wait no longer for the turns in flight."""
        await self._runs.release_all()


@check_arguments
def runner_lifespan(
    background: BackgroundRunner, *, drain: float = 10.0
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan for an app of your own.

    Pass it to Starlette or FastAPI: `FastAPI(lifespan=runner_lifespan(background))`. While the app is served, it takes
    over runs whose worker has died. At shutdown it takes no more runs, lets turns in flight finish, and leaves its runs
    to other processes. With `batonkit.serve.serve`, event streams end at once.

    Args:
        background: The runner that drives the app's runs.
        drain: Seconds for the turns in flight.

    Raises:
        SetupError: An argument is invalid; a `Runner` becomes a `BackgroundRunner(runner)` first.
    """
    check_positive("runner_lifespan(drain=…)", drain)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[dict[str, Any]]:
        background._reopen()
        background.start_recovery()
        try:
            yield {SHUTDOWN: Shutdown(background)}
        finally:
            # `batonkit.serve.serve` has drained already.
            await background.drain(drain)

    return lifespan


class _AllRuns:
    """The runs of several background runners."""

    def __init__(self, runners: Sequence[BackgroundRunner]) -> None:
        self._runners = runners

    async def drain(self, seconds: float = 10.0) -> None:
        await asyncio.gather(*[runner.drain(seconds) for runner in self._runners])

    async def release_all(self) -> None:
        await asyncio.gather(*[runner.release_all() for runner in self._runners])


def make_app(
    routes: "Sequence[BaseRoute]",
    *backgrounds: BackgroundRunner,
    close: Callable[[], Awaitable[None]] | None = None,
    cors_origins: Sequence[str] = (),
    handlers: "Mapping[Any, ExceptionHandler] | None" = None,
) -> "Starlette":
    """Return a Starlette app that recovers abandoned runs and drains its own at shutdown."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            for background in backgrounds:
                await stack.enter_async_context(runner_lifespan(background)(app))
            yield {SHUTDOWN: Shutdown(_AllRuns(backgrounds))}
        if close is not None:
            await close()

    middleware = [Middleware(TraceContextMiddleware), *cors_middleware(cors_origins)]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers=handlers)


class TraceContextMiddleware:
    """ASGI middleware that lets runs continue the trace of the client."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        headers = scope["headers"] if scope["type"] == "http" else ()
        trace = {name.decode("ascii"): value.decode("latin-1") for name, value in headers if name in _TRACE}
        with remote_parent(trace):
            await self._app(scope, receive, send)


class AccessLog:
    """ASGI middleware that logs each response with its client, method, path, status and time."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = monotonic()
        status = "-"

        async def record(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, record)
        finally:
            client = scope.get("client") or ("-",)
            path = scope.get("raw_path") or scope["path"].encode()
            # Queries may contain keys. The path is as the client sent it, so control characters are encoded.
            text = path.partition(b"?")[0].decode("ascii", "backslashreplace")
            milliseconds = (monotonic() - started) * 1000
            ACCESS_LOGGER.info("%s %s %s %s %.0f ms", client[0], scope["method"], text, status, milliseconds)


def cors_middleware(origins: Sequence[str]) -> "list[Middleware]":
    """Return the CORS middleware for some origins, or no middleware without origins."""
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware

    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=[*origins],
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=[*_ALLOWED_HEADERS],
            expose_headers=["Location", "Mcp-Session-Id"],
        )
    ]
