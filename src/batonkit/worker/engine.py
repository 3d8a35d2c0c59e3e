"""The protocol of engines: what they tell workers, and what workers answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from ..runs import Runner
from ..runs.stored.recovery import FailedAttempts
from ..stores import RunRecord, RunStatus
from .limits import Concurrency


class Outcome(Struct, frozen=True):
    """The result of one attempt to drive a run, for the engine that delivered it."""

    status: RunStatus | None = None
    """The run's status; None if there is no such run, or the store could not tell."""
    wake_at: float = 0.0
    """The time at which the run is to be driven next, by the store's clock; 0 if it waits for something else."""
    retry_in: float | None = None
    """Seconds after which to deliver the run again although nothing has changed; None if that is not necessary."""
    is_elsewhere: bool = False
    """True if another worker drives the run, or this worker already did when the run was delivered."""


class RunDriver(Protocol):
    """A worker, as an engine sees it."""

    runner: Runner[Any, Any]
    """The runner of the team."""
    concurrency: int
    """The number of runs that it drives at once."""
    limits: Concurrency
    """Its limits; none if the engine does not have them."""
    teams: Sequence[str] | None
    """The teams whose runs it drives, as `RunRecord.team` has them; None for all."""
    failures: FailedAttempts
    """The runs that it could not drive, and when to try them again."""

    @property
    def free(self) -> int:
        """The number of runs that it could take now."""
        ...

    @property
    def driven(self) -> Mapping[str, int]:
        """The number of runs of each owner that it drives now."""
        ...

    def accepts(self, record: RunRecord) -> bool:
        """Return whether the worker would drive a run now.

        Args:
            record: The run.
        """
        ...

    async def drive(self, run_id: str, *, owner: str = "", attempt: str | None = None) -> Outcome:
        """Drive a run until it stops or the worker is drained.

        It never raises for a run that cannot be driven.

        Args:
            run_id: The run.
            owner: The owner of the run, if the engine knows it; limits need it.
            attempt: A name for this delivery. An engine that delivers a run again under the same name knows that the
                earlier delivery is dead, so its lease is taken at once.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """Tells workers which runs to drive. It holds no state of runs: the log of a run does.

    An engine delivers every run that the store has as runnable at least once, to one of the workers that have its team,
    also after the worker that drove it died. Duplicates do no harm.
    """

    name: str
    """The name on the command line, such as `local`."""
    has_limits: bool
    """True if it delivers runs only as far as the limits of the workers allow."""

    async def serve(self, driver: RunDriver) -> None:
        """Deliver runs to a worker until `stop` is called, and wait for these deliveries.

        Failures of the store or the engine's own server are retried, not raised.

        Args:
            driver: The worker.
        """

    async def stop(self) -> None:
        """Deliver no more runs to the worker; those delivered already continue."""

    def problem(self) -> str:
        """Return why the engine cannot deliver runs at the moment; "" if it can."""
        ...
