"""Who takes a run up, keeps what happens in it while it lasts, and puts it away when it stops.

Three of them: the memory of the runner, for runs without a store; nobody, for a replay; and a store, in `stored`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from ..context import Limits
from ..errors import RunConflictError, RunError, RunNotFoundError
from ..events import Event
from ..flow import TeamFlow
from ..log import EventSink
from .heartbeat import SupportsStop
from .result import StoppedStatus


class OpenRun(Struct, frozen=True):
    """A run that is ready to be driven: its course, who begins, what happens first, and where its own words begin."""

    course: TeamFlow
    first: str
    opening: Sequence[Event] = ()
    said_before: int = 0


class RunBackend(Protocol):
    """Keeps one run. What it gives may have to be waited for; memory need not be, and waiting costs even then."""

    run_id: str

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun | Awaitable[OpenRun]:
        """Take the run up. Nobody else drives it until `close`."""
        ...

    def close(self, course: TeamFlow, status: StoppedStatus) -> Awaitable[None] | None:
        """Put the run away, now that it has stopped."""
        ...

    def abandon(self, error: RunConflictError) -> None:
        """Keep nothing of what happens from now on: somebody else will go on with the run from what is kept."""
        ...


class StoppedRun(Struct, frozen=True):
    """A run that waits to be resumed."""

    events: Sequence[Event]
    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None


class MemoryBackend:
    """Keeps a run in the runner's own memory, as long as that lasts."""

    def __init__(self, run_id: str, opened: OpenRun, waiting: dict[str, StoppedRun], *, is_new: bool) -> None:
        self.run_id = run_id
        self._opened = opened
        self._waiting = waiting
        self._is_new = is_new

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take the run up, if nobody has done so since it was asked for."""
        if self._is_new:
            if self.run_id in self._waiting:
                because = "resume it, or give the new run another id"
                raise RunError(f"a run `{self.run_id}` waits here to be resumed; {because}")
        elif self._waiting.pop(self.run_id, None) is None:
            raise RunNotFoundError(self.run_id, [*self._waiting])
        if listener is not None:
            self._opened.course.run.log.attach(listener)
        return self._opened

    def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """A run that has stopped before its end waits here."""
        if status != "completed":
            run = course.run
            self._waiting[self.run_id] = StoppedRun(run.log.events, run.context, run.guests, run.meter.limits)

    def abandon(self, error: RunConflictError) -> None:
        """Nobody else could: it stays here."""


class NullBackend:
    """Keeps nothing: what is driven is a replay."""

    def __init__(self, run_id: str, opened: OpenRun) -> None:
        self.run_id = run_id
        self._opened = opened

    def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take it up as it is."""
        if listener is not None:
            self._opened.course.run.log.attach(listener)
        return self._opened

    def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """Nothing is left of it."""

    def abandon(self, error: RunConflictError) -> None:
        """There is nothing to abandon."""
