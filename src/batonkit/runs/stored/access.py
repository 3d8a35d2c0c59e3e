"""A runner's access to its stored runs: those in its store, or in its own memory if it has none."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from ...errors import RunExistsError
from ...log import Event
from ...stores import FullStore
from ...stores.store import DEFAULT_LEASE_SECONDS
from ...team.follow import FlowConfig, TeamFlow
from ..observers import Observer, measure_store
from ..result import StoppedStatus

# What stored runs need is loaded at the first of them: a process starts faster without it.
if TYPE_CHECKING:
    from .repository import RunRepository


class StoreAccess:
    """Opens the stored runs of a runner at their first use."""

    def __init__(
        self,
        store: FullStore | None,
        config: FlowConfig,
        fingerprint: Mapping[str, str],
        observers: Sequence[Observer],
    ) -> None:
        self.store = store
        """The store that the runner was given; None if its stopped runs stay in its own memory."""
        self._config = config
        self._fingerprint = fingerprint
        self._observers = observers

    @cached_property
    def repository(self) -> "RunRepository":
        """The stored runs."""
        from ...stores import MemoryStore
        from .repository import RunRepository

        store = self.store or MemoryStore()
        return RunRepository(
            measure_store(store, self._observers),
            self._config,
            self._fingerprint,
            ttl=getattr(store, "lease_seconds", DEFAULT_LEASE_SECONDS),
            observers=self._observers,
            is_own_memory=self.store is None,
        )

    def with_config(self, config: FlowConfig, observers: Sequence[Observer]) -> "StoreAccess":
        """Return an access to the same runs that drives them with another configuration."""
        twin = copy(self)
        twin._config = config
        twin._observers = observers
        twin.repository = self.repository.with_config(config, observers)
        return twin

    async def check_unused(self, run_id: str) -> None:
        """Raise RunExistsError if a stored run has this id."""
        if "repository" in vars(self) and await self.repository.store.record(run_id) is not None:
            raise RunExistsError(run_id)

    async def keep(self, flow: TeamFlow, status: StoppedStatus) -> None:
        """Store a run that stopped before its end."""
        await self.repository.keep(flow, status)

    async def cancel_suspended(self, flow: TeamFlow) -> Sequence[Event]:
        """Cancel a suspended run; return its events since."""
        return await self.repository.cancel_suspended(flow)

    async def close(self) -> None:
        """Close the store; it opens again when it is needed."""
        if "repository" in vars(self):
            await self.repository.relay.close()
            await self.repository.store.close()
