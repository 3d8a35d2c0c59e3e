"""Those who read along with the runs of a runner: a tracer, an audit log, a user interface.

A reader sees all that is written, as soon as it is stored if there is a store, and the deltas that a listener would
hear. A run neither waits for its readers nor depends on them.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, cast

from ..errors import RunConflictError, SetupError
from ..events import Delta, Event
from ..flow.follow import TeamFlow
from ..log import EventSink
from .backends import OpenRun, RunBackend
from .journal import SupportsStop
from .result import StoppedStatus

_logger = logging.getLogger("baton.runner")

EventHandler: TypeAlias = Callable[[Event | Delta], None]
"""What is called with everything that happens in a run."""


class Observer(Protocol):
    """Somebody who reads along with every run of a runner, for `Runner(observers=[…])`."""

    def observe(self, run_id: str, past: Sequence[Event]) -> AbstractContextManager[EventHandler]:
        """Entered before a run goes on, with what its log has already; left when it stops, however it does.

        What it gives is called with every event once it is in the log, and with deltas. If anything of this raises,
        that is logged, and the reader is left out until the run stops.
        """
        ...


def check_observers(given: Any) -> tuple[Observer, ...]:
    """The readers, if that is what they are."""
    readers = cast("Sequence[Any]", given) if isinstance(given, Sequence) else (None,)
    for reader in readers:
        if isinstance(reader, type) or not callable(getattr(reader, "observe", None)):
            raise SetupError(
                f"Runner(observers=[…]) takes a list of observers, which have a method `observe`; not {given!r}"
            )
    return tuple(readers)


def with_observers(readers: Sequence[Observer], keeper: RunBackend) -> RunBackend:
    """The keeper of a run, with readers if there are any."""
    return ObservedBackend(keeper, readers) if readers else keeper


class ObservedBackend:
    """A keeper around another, and the listener of its run: readers are told, and then whoever listens besides.

    As a listener it is told of an event only when the keeper has it.
    """

    def __init__(self, keeper: RunBackend, readers: Sequence[Observer]) -> None:
        self.run_id = keeper.run_id
        self._keeper = keeper
        self._readers = readers
        self._listener: EventSink | None = None
        self._open: list[AbstractContextManager[EventHandler]] = []
        self._heard: tuple[EventHandler, ...] = ()

    async def open(self, listener: EventSink | None, run: SupportsStop) -> OpenRun:
        """Take the run up, and let the readers begin."""
        self._listener = listener
        given = self._keeper.open(self, run)
        opened = given if isinstance(given, OpenRun) else await given
        past = tuple(opened.course.run.log.events)
        for reader in self._readers:
            try:
                reading = reader.observe(self.run_id, past)
                self._heard = (*self._heard, reading.__enter__())
            except Exception:  # A run does not depend on its readers.
                _logger.exception("a reader of run %s failed, and is left out", self.run_id)
            else:
                self._open.append(reading)
        return opened

    async def close(self, course: TeamFlow, status: StoppedStatus) -> None:
        """Put the run away, and let the readers end."""
        try:
            closing = self._keeper.close(course, status)
            if closing is not None:
                await closing
        finally:
            for reading in reversed(self._open):
                try:
                    # Its last event says how the run ended; that is no failure of the reader's.
                    reading.__exit__(None, None, None)
                except Exception:  # A run does not depend on its readers.
                    _logger.exception("a reader of run %s failed at its end", self.run_id)

    def abandon(self, error: RunConflictError) -> None:
        """Leave the run to somebody else."""
        self._keeper.abandon(error)

    @property
    def is_full(self) -> bool:
        """Whether whoever listens is to be waited for; readers never are."""
        return self._listener is not None and self._listener.is_full

    @property
    def has_subscribers(self) -> bool:
        """By the readers, if by nobody else."""
        return True

    @property
    def can_defer(self) -> bool:
        """Whether whoever listens is in no hurry; readers never are in one."""
        return self._listener is None or self._listener.can_defer

    def put(self, event: Event | Delta) -> None:
        """Tell everybody."""
        self._tell_readers(event)
        if self._listener is not None:
            self._listener.put(event)

    def put_muted(self, event: Event) -> None:
        """Tell the readers alone: they read what is inside an agent that is called as a tool as well."""
        self._tell_readers(event)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        if self._listener is not None:
            await self._listener.drain()

    def _tell_readers(self, event: Event | Delta) -> None:
        for heard in self._heard:
            try:
                heard(event)
            except Exception:  # A run does not depend on its readers.
                _logger.exception("a reader of run %s failed, and is left out from here on", self.run_id)
                self._heard = tuple([other for other in self._heard if other is not heard])
