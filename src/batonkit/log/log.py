"""The log of a run: an append-only list of events with unique keys. May import events and errors.

The log does not know agents, models or stores. Code with an effect calls `find` first and `write` afterwards.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol, TypeVar

from ..errors import ReplayMismatchError
from . import keys
from .event import Delta, Event, Origin
from .events import (
    AgentFinished,
    AgentResponded,
    ControlTransferred,
    InterruptAnswered,
    InterruptRaised,
    RunCompleted,
    ToolReturned,
)

E = TypeVar("E", bound=Event)


class SuspendRun(BaseException):
    """Control flow, not an error: unwinds code that waits, or whose log has ended.

    Never catch it.
    """


class DeltaSink(Protocol):
    """A receiver of deltas that can apply backpressure."""

    @property
    def is_full(self) -> bool:
        """True if the writer must call `drain`."""
        ...

    def put(self, event: Event | Delta) -> None:
        """Accept an event or delta.

        Args:
            event: The event or delta.
        """

    async def drain(self) -> None:
        """Wait until the sink can accept more."""


class EventSink(DeltaSink, Protocol):
    """A receiver of events and deltas."""

    @property
    def can_defer(self) -> bool:
        """True if storing the last event may be deferred until the next one."""
        ...

    @property
    def has_subscribers(self) -> bool:
        """True if anyone reads deltas; False for a sink that only stores events."""
        ...

    def put_muted(self, event: Event) -> None:
        """Accept an event that is stored and observed, but not delivered to subscribers.

        Args:
            event: The event.
        """

    async def catch_up(self) -> None:
        """Wait until a reader that is busy with events has asked for the next one."""


class Log:
    """An append-only list of events with unique keys.

    The index by key is built when it is first needed; a run that is not resumed may never need it.

    Args:
        events: The recorded events of a run that is resumed or replayed.
    """

    __slots__ = (
        "_index",
        "_loaded",
        "_muted",
        "_past_keys",
        "_unvisited",
        "events",
        "has_past",
        "sink",
        "write",
    )

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        """All events."""
        self.sink: EventSink | None = None
        """The receiver of new events; see `attach`."""
        self.write: Callable[[Event], None] = self.events.append
        """Record an event and pass it to the sink. Its key must be new: call `find` first."""
        self._loaded = len(self.events)
        self.has_past = bool(self.events)
        """True if the log was created with events."""
        self._muted: list[str] = []
        self._past_keys: list[str] | None = None
        self._index: dict[str, Event] = {}
        self._unvisited: dict[str, Event] = dict(self._indexed()) if self.has_past else {}

    @property
    def count(self) -> int:
        """The number of events."""
        return len(self.events)

    def add_stored(self, event: Event) -> None:
        """Add an event that the sink has stored and delivered already.

        Args:
            event: The event.
        """
        self.events.append(event)

    def find(self, key: str, kind: type[E]) -> E | None:
        """Return the recorded event with this key, and mark it as visited.

        Args:
            key: The key.
            kind: The expected event class.

        Raises:
            ReplayMismatchError: The recorded event is of another class.
        """
        index = self._index
        if len(index) < len(self.events):
            index = self._indexed()
        event = index.get(key)
        if event is None:
            return None
        if type(event) is not kind:
            raise ReplayMismatchError(key, type(event).__name__, kind.__name__)
        self._unvisited.pop(key, None)
        return event

    def announce(self, key: str, kind: type[Event]) -> None:
        """Declare an effect before it is executed; a read-only log refuses it.

        Args:
            key: The key of the event that will be recorded.
            kind: Its class.
        """

    def announce_call(self, key: str) -> None:
        """Declare a tool call before it is executed; a read-only log refuses it.

        Args:
            key: The key of its result.
        """

    def has_inside(self, key: str) -> bool:
        """Return whether events were recorded inside an effect, such as an interrupt of a tool.

        Args:
            key: The key of the effect.
        """
        return bool(self._keys_inside(key))

    def has_inside_besides(self, key: str, others: str) -> bool:
        """Return whether other events than these were recorded inside an effect.

        Args:
            key: The key of the effect.
            others: The prefix, relative to the key, of keys to ignore.
        """
        besides = keys.inside(key, others)
        return any(not known.startswith(besides) for known in self._keys_inside(key))

    def waits_inside(self, key: str) -> bool:
        """Return whether an interrupt inside an effect is still open.

        Args:
            key: The key of the effect.
        """
        index = self._indexed()
        asked = [known for known in self._keys_inside(key) if isinstance(index[known], InterruptRaised)]
        return bool(asked) and not self.open_interrupts().keys().isdisjoint(asked)

    def has(self, key: str) -> bool:
        """Return whether there is an event with this key, without marking it as visited.

        Args:
            key: The key.
        """
        return key in self._indexed()

    def peek(self, key: str) -> Event | None:
        """Return the event with this key, without marking it as visited.

        Args:
            key: The key.
        """
        return self._indexed().get(key)

    def attach(self, sink: EventSink | None) -> None:
        """Pass new events to a sink from now on.

        Args:
            sink: The sink, or None for no sink.
        """
        self.sink = sink
        # An attribute, not a method: without a sink, it is the list's own append. It runs several times per turn.
        self.write = self.events.append if sink is None else _writer(self.events, sink, self._muted)

    def deliver(self, delta: Delta) -> None:
        """Pass a delta to the sink, unless it is muted. It is not recorded.

        Args:
            delta: The delta.
        """
        listener = self.listener(delta.origin)
        if listener is not None:
            listener.put(delta)

    def mute(self, prefix: str) -> None:
        """Stop the delivery of events with these keys, except interrupts. They are still recorded.

        Args:
            prefix: The start of the keys.
        """
        self._muted.append(prefix)

    def unmute(self, prefix: str) -> None:
        """Undo `mute`.

        Args:
            prefix: The prefix given to `mute`.
        """
        self._muted[:] = [muted for muted in self._muted if muted != prefix]

    def listener(self, origin: Origin) -> EventSink | None:
        """Return the sink for the deltas of an activation, or None if no one reads them.

        Args:
            origin: The activation.
        """
        sink = self.sink
        if sink is None or not sink.has_subscribers or (self._muted and origin.id.startswith(tuple(self._muted))):
            return None
        return sink

    async def settle(self, *, can_defer: bool = False) -> None:
        """Wait until written events are stored and the sink can accept more.

        Args:
            can_defer: Whether storing may be deferred, because nothing outside the run depends on it yet.
        """
        if self.sink is not None and self.sink.is_full and not (can_defer and self.sink.can_defer):
            await self.sink.drain()

    def open_interrupts(self) -> dict[str, InterruptRaised]:
        """Return the open interrupts by id, except those inside calls and branches that have ended."""
        waiting: dict[str, InterruptRaised] = {}
        for event in self.events:
            if isinstance(event, InterruptRaised):
                waiting[event.key] = event
            elif isinstance(event, InterruptAnswered):
                waiting.pop(event.interrupt_id, None)
            elif waiting and (ended := _ended_by(event)):
                # It ended without the answer. An interrupt raised later, by a hook for instance, stays open.
                waiting = {key: asked for key, asked in waiting.items() if not keys.contains(ended, key)}
        return waiting

    def inside(self, key: str) -> list[Event]:
        """Return the loaded events below a key, without marking them as visited.

        Args:
            key: The key.
        """
        index = self._indexed()
        return [index[known] for known in self._keys_inside(key)]

    def visit(self, key: str) -> list[Event]:
        """Return the loaded events below a key, and mark them as visited.

        Args:
            key: The key.
        """
        index = self._indexed()
        inside = self._keys_inside(key)
        for known in inside:
            self._unvisited.pop(known, None)
        return [index[known] for known in inside]

    def unvisited(self, *kinds: type[Event], besides: str = "") -> Event | None:
        """Return the first loaded event that the code should have visited and has not.

        Events inside an effect that is recorded as a whole, such as a tool call, need no visit.

        Args:
            *kinds: The event classes to check.
            besides: Ignore keys with a part that begins with this text.
        """
        for key, event in self._unvisited.items():
            if besides and keys.has_part(key, besides):
                continue
            if isinstance(event, kinds) and not self._is_inside_visited(key):
                return event
        return None

    def _keys_inside(self, key: str) -> list[str]:
        if not self.has_past:
            return []
        if self._past_keys is None:
            self._past_keys = sorted([event.key for event in self.events[: self._loaded]])
        past = self._past_keys
        first, end = keys.bounds(key)
        return past[bisect_left(past, first) : bisect_left(past, end)]

    def _is_inside_visited(self, key: str) -> bool:
        index = self._indexed()
        return any(around in index and around not in self._unvisited for around in keys.ancestors(key))

    def _indexed(self) -> dict[str, Event]:
        index = self._index
        events = self.events
        if len(index) < len(events):
            for event in events[len(index) :]:
                if event.key in index:
                    known = type(index[event.key]).__name__
                    raise ReplayMismatchError(event.key, known, f"a second {type(event).__name__}")
                index[event.key] = event
        return index


class ReadOnlyLog(Log):
    """A log for replays: it refuses new events and effects.

    Where the log of a run that has not completed ends, the code stops as at an interrupt.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        super().__init__(events)
        self._is_unfinished = not any(isinstance(event, RunCompleted) for event in self.events)
        self._ends: dict[str, str] = {}
        """The keys at which the code stopped, with the class of the event that it would have produced."""
        self._effects: set[str] = set()
        """The keys of effects at which the code stopped."""
        self.write = self._refuse

    def attach(self, sink: EventSink | None) -> None:
        """Ignore the sink: a replay has no new events.

        Args:
            sink: The sink.
        """

    def announce(self, key: str, kind: type[Event]) -> None:
        """Refuse the effect.

        Args:
            key: The key of the event that would be recorded.
            kind: Its class.

        Raises:
            ReplayMismatchError: The run has completed without it.
            SuspendRun: The run has not completed.
        """
        self._effects.add(key)
        self._stop(key, kind)

    def check_end(self, *kinds: type[Event], besides: str = "") -> None:
        """Check that the code has stopped only because the log ends.

        Args:
            *kinds: As for `unvisited`.
            besides: As for `unvisited`.

        Raises:
            ReplayMismatchError: The log goes on.
        """
        skipped = self.unvisited(*kinds, besides=besides)
        if skipped is None:
            return
        if not self._ends:
            raise ReplayMismatchError(skipped.key, type(skipped).__name__, "nothing there")
        key, kind = next(iter(self._ends.items()))
        raise ReplayMismatchError(key, "nothing", kind, skipped.key)

    def _is_inside_visited(self, key: str) -> bool:
        # An effect that was begun and is not recorded is not executed to its end: something inside may not be visited.
        return super()._is_inside_visited(key) or not self._effects.isdisjoint(keys.ancestors(key))

    def _refuse(self, event: Event) -> None:
        self._stop(event.key, type(event))

    def _stop(self, key: str, kind: type[Event]) -> NoReturn:
        if self._is_unfinished:
            self._ends[key] = kind.__name__
            raise SuspendRun(key)
        raise ReplayMismatchError(key, "nothing", kind.__name__, self._skipped_before(key))

    def _skipped_before(self, key: str) -> str:
        """Return the key of the first event of the same activation that was not visited, or ""."""
        kinds = AgentResponded, ToolReturned, ControlTransferred, AgentFinished
        for scope in keys.ancestors(key):
            for each, event in self._unvisited.items():
                if keys.contains(scope, each) and isinstance(event, kinds) and not self._is_inside_visited(each):
                    return each
        return ""

    def announce_call(self, key: str) -> None:
        """Refuse the call unless it waits for an answer, and so only raises its interrupt again.

        Args:
            key: The key of its result.

        Raises:
            ReplayMismatchError: The call does not wait, and the run has completed without it.
            SuspendRun: The call does not wait, and the run has not completed.
        """
        self._effects.add(key)
        if not self.waits_inside(key):
            self._stop(key, ToolReturned)


def _writer(events: list[Event], sink: EventSink, muted: list[str]) -> Callable[[Event], None]:
    # It refers to the parts of the log, not to the log, to avoid a reference cycle.
    keep = events.append

    def write(event: Event) -> None:
        # The sink first, because it may refuse an event that it cannot store. Interrupts are always delivered.
        if not muted or type(event) is InterruptRaised or not event.key.startswith(tuple(muted)):
            sink.put(event)
        else:
            sink.put_muted(event)
        keep(event)

    return write


def _ended_by(event: Event) -> str:
    """Return the key of the call or branch that an event ends, or ""."""
    if isinstance(event, ToolReturned | AgentResponded):
        return event.key
    return keys.parent(event.key) if keys.name(event.key) in (keys.FAILED, keys.DISMISSED) else ""
