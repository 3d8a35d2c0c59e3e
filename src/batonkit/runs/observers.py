"""Observers: objects that receive every event of every run of a runner, such as tracers and audit logs.

A run neither waits for its observers nor depends on them.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from .._propagation import inject_trace
from .._wording import show
from ..agents.tracing import RunTrace
from ..context.run_state import RunState
from ..errors import SetupError
from ..log import Delta, Event
from ..log.log import EventSink
from ..stores import FullStore
from ..team.follow import TeamFlow

_logger = logging.getLogger("baton.runner")

EventHandler: TypeAlias = Callable[[Event | Delta], None]
"""A function that receives each event and delta of a run."""


class Observer(Protocol):
    """Receives the events of every run of a runner; passed as `Runner(observers=[…])`.

    Set `receives_deltas = False` on an observer that needs no deltas: models are asked to stream for those that do.
    """

    def observe(self, run_id: str, past: Sequence[Event]) -> AbstractContextManager[EventHandler]:
        """Return a context manager that is entered when a run is driven and exited when it stops.

        It yields the handler that is called with every event once it is in the log (and stored, if there is a
        store), and with every delta. If the observer raises, the exception is logged and the observer receives
        nothing more of this run.

        Args:
            run_id: The run that is about to be driven.
            past: The events that its log already has, if it is resumed.

        Returns:
            A context manager that yields the event handler.
        """
        ...


@runtime_checkable
class TracingObserver(Observer, Protocol):
    """An observer that also opens spans around the calls of a run, while they are made."""

    def start_trace(self, run: RunState[Any], first_events: Sequence[Event]) -> RunTrace:
        """Open the span of a run that is about to be driven, and make it current."""
        ...

    def measure_store(self, store: FullStore) -> FullStore:
        """Return a store that measures its calls."""
        ...


def find_tracer(observers: Sequence[Observer]) -> TracingObserver | None:
    """Return the observer that traces calls, if there is one."""
    return next((observer for observer in observers if isinstance(observer, TracingObserver)), None)


def current_traceparent() -> str:
    """Return the W3C trace context of the current span; "" if there is none."""
    headers: dict[str, str] = {}
    inject_trace(headers)
    return headers.get("traceparent", "")


def measure_store(store: FullStore, observers: Sequence[Observer]) -> FullStore:
    """Return the store, which measures its calls if runs are traced."""
    tracer = find_tracer(observers)
    return store if tracer is None else tracer.measure_store(store)


def check_observers(given: Any) -> tuple[Observer, ...]:
    """Validate the `observers` argument of Runner. Raises SetupError."""
    shown = show(given)
    observers = cast("Sequence[Any]", given) if isinstance(given, Sequence) else (None,)
    for observer in observers:
        if isinstance(observer, type) or not callable(getattr(observer, "observe", None)):
            raise SetupError(
                f"Runner(observers=[…]) takes a list of observers, objects with a method `observe`; not {shown}"
            )
    if sum(isinstance(observer, TracingObserver) for observer in observers) > 1:
        raise SetupError(
            "Runner(observers=[…]) takes one observer that traces; to send spans to several places, give its "
            "TracerProvider several span processors"
        )
    return tuple(observers)


class ObserverSink:
    """An event sink that passes events to observers before the actual sink, if there is one."""

    def __init__(self, run_id: str, observers: Sequence[Observer], sink: EventSink | None) -> None:
        self._run_id = run_id
        self._observers = observers
        self._sink = sink
        self.has_subscribers = (sink is not None and sink.has_subscribers) or any(
            getattr(observer, "receives_deltas", True) for observer in observers
        )
        """True if anyone reads deltas; an observer that does not has `receives_deltas = False`."""
        self._trace: RunTrace | None = None
        self._entered: list[AbstractContextManager[EventHandler]] = []
        self._handlers: tuple[EventHandler, ...] = ()

    def enter(self, flow: TeamFlow, first_events: Sequence[Event]) -> Sequence[Event]:
        """Enter the observers of a run that was opened.

        Returns:
            The events to write first; a traced run records its trace context in them.
        """
        run = flow.run
        past = tuple(run.log.events)
        tracer = find_tracer(self._observers)
        if tracer is not None:
            try:
                flow.services.trace = self._trace = tracer.start_trace(run, first_events)
                first_events = self._trace.first_events
            except Exception:
                _logger.exception("the trace of run `%s` could not be started", self._run_id)
        for observer in self._observers:
            try:
                manager = observer.observe(self._run_id, past)
                self._handlers = (*self._handlers, manager.__enter__())
            except Exception:
                _logger.exception("an observer failed at the start of run `%s` and is skipped", self._run_id)
            else:
                self._entered.append(manager)
        return first_events

    def exit(self, output: Any) -> None:
        """Exit the observers of a run that has stopped."""
        for manager in reversed(self._entered):
            try:
                # The last event tells how the run ended; a failed run is not an error of the observer.
                manager.__exit__(None, None, None)
            except Exception:
                _logger.exception("an observer failed at the end of run `%s`", self._run_id)
        if self._trace is not None:
            self._trace.end(output)

    @property
    def is_full(self) -> bool:
        """Return whether the sink is full; observers never hold up the run."""
        return self._sink is not None and self._sink.is_full

    @property
    def can_defer(self) -> bool:
        """Return whether the sink allows events to be delayed; observers always do."""
        return self._sink is None or self._sink.can_defer

    def put(self, event: Event | Delta) -> None:
        """Pass an event to the observers and the sink."""
        self._notify(event)
        if self._sink is not None:
            self._sink.put(event)

    def put_muted(self, event: Event) -> None:
        """Pass an event from inside an agent tool to the observers only."""
        self._notify(event)

    async def drain(self) -> None:
        """Wait until the sink accepts more."""
        if self._sink is not None:
            await self._sink.drain()

    async def catch_up(self) -> None:
        """Wait for the reader of the sink; observers have received everything."""
        if self._sink is not None:
            await self._sink.catch_up()

    def _notify(self, event: Event | Delta) -> None:
        for handler in self._handlers:
            try:
                handler(event)
            except Exception:
                _logger.exception("an observer of run `%s` failed and receives nothing more of it", self._run_id)
                self._handlers = tuple([other for other in self._handlers if other is not handler])
