"""Assembly of an HTTP app: its runner, its lifespan and its CORS middleware. Importable without Starlette."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from ...agents import BaseAgent
from ...errors import SetupError
from ...runner import BackgroundRunner, Runner
from ...stores import Store

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import BaseRoute

AppTarget: TypeAlias = BaseAgent[Any, Any] | Runner[Any, Any] | BackgroundRunner
"""An object that an app can serve; pass one `BackgroundRunner` to several apps to share its runs."""

ContextFactory: TypeAlias = Callable[[str], Any]
"""Creates the context object of a run from the name of its owner."""

_ALLOWED_HEADERS = (
    *("Authorization", "Content-Type", "Accept", "Last-Event-ID", "A2A-Version", "A2A-Extensions"),
    *("MCP-Protocol-Version", "Mcp-Session-Id"),
)


def to_background_runner(
    target: AppTarget, what: str, *, store: Store | str | PathLike[str] | None = None, lease_seconds: float = 30.0
) -> BackgroundRunner:
    """Return the background runner that an app serves.

    Args:
        target: An agent gets a runner of its own; without `store`, its runs are kept in memory.
        what: The app's factory, for error messages.
        store: The store of an agent's runner.
        lease_seconds: The lease of an agent's runner.

    Raises:
        SetupError: The runner has no store, or `store` is given for a target that has its own.
    """
    if isinstance(target, BaseAgent):
        return BackgroundRunner(Runner(target, store=store or "memory:", lease_seconds=lease_seconds))
    if store is not None:
        raise SetupError(f"{what}(runner, store=…): a runner has its own store; pass it there: Runner(…, store=…)")
    background = target if isinstance(target, BackgroundRunner) else BackgroundRunner(target)
    background.runner._require_store(what)
    return background


def make_context(factory: ContextFactory | None, owner: str) -> Any:
    """Return the context object for a run of an owner; None without a factory.

    Args:
        factory: The app's `context_factory`.
        owner: The owner of the run.
    """
    return None if factory is None else factory(owner)


def make_app(
    background: BackgroundRunner,
    routes: "Sequence[BaseRoute]",
    *,
    cors_origins: Sequence[str],
    context_factory: ContextFactory | None,
    exception_handlers: dict[Any, Any] | None = None,
) -> "Starlette":
    """Return a Starlette app that recovers abandoned runs and releases its own at shutdown.

    Args:
        background: The runner that drives the app's runs.
        routes: The app's routes.
        cors_origins: Origins whose pages may call the app.
        context_factory: Creates the context objects of recovered runs.
        exception_handlers: Starlette's exception handlers.
    """
    from starlette.applications import Starlette

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        background.start_recovery(context_factory)
        yield
        await background.release_all()

    return Starlette(
        routes=routes,
        middleware=cors_middleware(cors_origins),
        lifespan=lifespan,
        exception_handlers=exception_handlers or {},
    )


def cors_middleware(origins: Sequence[str]) -> "list[Middleware]":
    """Return the CORS middleware for some origins, or no middleware without origins.

    Args:
        origins: Origins whose pages may call the app.
    """
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
