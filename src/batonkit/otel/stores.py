"""A store that measures its calls."""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, cast

from ..errors import RunConflictError
from ..stores import FullStore, Store, SupportsInbox, SupportsNotes, SupportsRetention
from ..stores.parts import innermost_store, methods_of
from .metrics import Metrics

_METHODS = [name for part in (Store, SupportsInbox, SupportsNotes, SupportsRetention) for name in methods_of(part)]


class MeasuredStore:
    """A wrapper of a store that measures its calls and counts lost leases."""

    def __init__(self, store: FullStore, metrics: Metrics) -> None:
        self.inner = store
        """The store that keeps the runs."""
        self._metrics = metrics
        self._kind = type(innermost_store(store)).__name__
        for name in _METHODS:
            setattr(self, name, self._measured(name, getattr(store, name)))

    def __repr__(self) -> str:
        return f"MeasuredStore({self.inner!r})"

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


def measured_store(store: FullStore, metrics: Metrics) -> FullStore:
    """Return a store that measures its calls."""
    return cast("FullStore", MeasuredStore(store, metrics))
