"""A store that measures its calls."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any, cast

from ..errors import RunConflictError
from ..stores import Store
from .metrics import Metrics

_METHODS = tuple(name for name, method in vars(Store).items() if iscoroutinefunction(method))
"""The methods of a store, all of which are awaited."""


class MeasuredStore:
    """A wrapper of a store that measures its calls and counts lost leases."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._kind = type(store).__name__
        for name in _METHODS:
            setattr(self, name, self._measured(name, getattr(store, name)))

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - read-only: it cannot change
        # Code that asks for the kind of the store gets that of the wrapped one.
        return type(self._store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __repr__(self) -> str:
        return repr(self._store)

    def _measured(self, name: str, method: Callable[..., Awaitable[Any]]) -> Any:
        metrics = self._metrics
        kind = self._kind

        async def measured(*args: Any, **kwargs: Any) -> Any:
            started = perf_counter()
            error = ""
            try:
                returned = await method(*args, **kwargs)
            except BaseException as raised:
                error = type(raised).__name__
                if name == "append" and isinstance(raised, RunConflictError):
                    metrics.lease_lost(kind, name, 1)
                raise
            finally:
                metrics.store(name, kind, perf_counter() - started, error)
            if name == "renew":
                leases = args[0] if args else kwargs["leases"]
                metrics.lease_lost(kind, name, len(leases) - len(returned))
            return returned

        return measured


def measured_store(store: Store, metrics: Metrics) -> Store:
    """Return a store that measures its calls."""
    return cast("Store", MeasuredStore(store, metrics))
