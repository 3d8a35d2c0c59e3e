"""The log of a run: what happened, in order, each thing once. May import events and errors.

The log knows nothing of agents, models or stores. Whoever listens is a Sink; whoever produces asks `find` first.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from .errors import ReplayMismatchError
from .events import Delta, Event, InterruptAnswered, InterruptRaised, Origin, ToolReturned

E = TypeVar("E", bound=Event)

FAILED = "failed"
"""The end of the key under which it is recorded that something failed and the run went on without it."""


class EventSink(Protocol):
    """Somebody who is told what happens, and may ask for patience."""

    @property
    def is_full(self) -> bool:
        """Whether there is something to wait for."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether what was put last may wait for what comes next."""
        ...

    @property
    def is_heard(self) -> bool:
        """Whether anybody is told what is put: a sink may only store it, and then deltas are of no use to it."""
        ...

    def put(self, event: Event | Delta) -> None:
        """Take one event."""
        ...

    def put_hushed(self, event: Event) -> None:
        """Take one event that is kept from whoever listens, and not from those who read everything."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more."""
        ...


class Log:
    """An append-only list of events with unique keys.

    The index by key is made when it is first needed: a run that asks nothing and is not resumed never needs it.
    """

    __slots__ = ("_hushed", "_index", "_loaded", "_past_keys", "_unvisited", "events", "has_past", "sink", "write")

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        self.sink: EventSink | None = None
        """Where everything goes besides; see `attach`."""
        self.write: Callable[[Event], None] = self.events.append
        """Record what happened and tell the listener. Its key must be new: ask `find` first."""
        self._loaded = len(self.events)
        self.has_past = bool(self.events)
        """Whether it was loaded with events. If not, an agent's own keys need not be looked for."""
        self._hushed: list[str] = []
        self._past_keys: list[str] | None = None
        self._index: dict[str, Event] = {}
        self._unvisited: dict[str, Event] = dict(self._indexed()) if self.has_past else {}

    def find(self, key: str, kind: type[E]) -> E | None:
        """The recorded event with this key, if the run has come past here before."""
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
        """Say that code is about to have an effect that will be recorded so; a log that is only read forbids it."""

    def announce_call(self, key: str) -> None:
        """The same for a tool call, whose result will have this key."""

    def has_inside(self, key: str) -> bool:
        """Whether anything was recorded inside the effect with this key, such as a question that a tool asked."""
        return bool(self._keys_inside(key))

    def has_inside_besides(self, key: str, others: str) -> bool:
        """The same, leaving out keys that go on like `others`."""
        besides = f"{key}/{others}"
        return any(not known.startswith(besides) for known in self._keys_inside(key))

    def waits_inside(self, key: str) -> bool:
        """Whether a question was asked inside the effect with this key that nobody has answered yet."""
        index = self._indexed()
        asked = [known for known in self._keys_inside(key) if isinstance(index[known], InterruptRaised)]
        return bool(asked) and not self.open_questions().keys().isdisjoint(asked)

    def has(self, key: str) -> bool:
        """Whether there is an event with this key. Does not count as asking for it."""
        return key in self._indexed()

    def attach(self, sink: EventSink | None) -> None:
        """Have everything go to a sink from now on, or to none."""
        self.sink = sink
        # Not a method: without a sink this is the list's own append, and it runs several times for every turn.
        self.write = self.events.append if sink is None else _writing(self.events, sink, self._hushed)

    def tell(self, delta: Delta) -> None:
        """Tell the listener something that is not recorded."""
        listener = self.listener(delta.origin)
        if listener is not None:
            listener.put(delta)

    def hush(self, prefix: str) -> None:
        """Deliver nothing but questions of what happens under keys that begin like this. All of it is recorded."""
        self._hushed.append(prefix)

    def unhush(self, prefix: str) -> None:
        """Nothing more will happen there: the next event need not be compared with it."""
        self._hushed[:] = [hushed for hushed in self._hushed if hushed != prefix]

    def listener(self, origin: Origin) -> EventSink | None:
        """Who is told what happens in this activation, if anybody is."""
        sink = self.sink
        if sink is None or not sink.is_heard or (self._hushed and origin.id.startswith(tuple(self._hushed))):
            return None
        return sink

    async def settle(self, *, is_patient: bool = False) -> None:
        """Return when what was written is safe and the listener has room for more: a slow one slows the run down.

        Somebody patient does not mind if it is not safe yet: should it be lost, nothing outside has happened.
        """
        if self.sink is not None and self.sink.is_full and not (is_patient and self.sink.is_patient):
            await self.sink.room()

    def open_questions(self) -> dict[str, InterruptRaised]:
        """The questions that wait for an answer, by id: nobody has given one, and what they were asked in goes on."""
        waiting: dict[str, InterruptRaised] = {}
        for event in self.events:
            if isinstance(event, InterruptRaised):
                waiting[event.key] = event
            elif isinstance(event, InterruptAnswered):
                waiting.pop(event.interrupt_id, None)
            elif waiting and (isinstance(event, ToolReturned) or event.key.endswith(f"/{FAILED}")):
                # It has ended without the answer. What is asked later, by a hook for instance, is another matter.
                inside = f"{event.key.removesuffix(FAILED).removesuffix('/')}/"
                waiting = {key: asked for key, asked in waiting.items() if not key.startswith(inside)}
        return waiting

    def inside(self, key: str) -> list[Event]:
        """What the log was loaded with below this key. Does not count as asking for it."""
        index = self._indexed()
        return [index[known] for known in self._keys_inside(key)]

    def visit(self, key: str) -> list[Event]:
        """What was recorded inside the effect with this key, for code that need not run again to account for it."""
        index, inside = self._indexed(), self._keys_inside(key)
        for known in inside:
            self._unvisited.pop(known, None)
        return [index[known] for known in inside]

    def unvisited(self, *kinds: type[Event], besides: str = "") -> Event | None:
        """The first loaded event of these kinds that the code has not asked for again, though it should have.

        What happened inside an effect that is recorded as a whole, such as a tool call, need not be asked for; nor
        what has `besides` in its key.
        """
        for key, event in self._unvisited.items():
            if besides and besides in key:
                continue
            if isinstance(event, kinds) and not self._is_inside_visited(key):
                return event
        return None

    def _keys_inside(self, key: str) -> list[str]:
        """The loaded keys below this one."""
        if not self.has_past:
            return []
        if self._past_keys is None:
            self._past_keys = sorted([event.key for event in self.events[: self._loaded]])
        keys = self._past_keys
        # "0" is the character after "/": between the two is everything that goes on with a "/".
        return keys[bisect_left(keys, f"{key}/") : bisect_left(keys, f"{key}0")]

    def _is_inside_visited(self, key: str) -> bool:
        around = key.rpartition("/")[0]
        while around:
            if around in self._index and around not in self._unvisited:
                return True
            around = around.rpartition("/")[0]
        return False

    def _indexed(self) -> dict[str, Event]:
        index, events = self._index, self.events
        if len(index) < len(events):
            for event in events[len(index) :]:
                if event.key in index:
                    known = type(index[event.key]).__name__
                    raise ReplayMismatchError(event.key, known, f"a second {type(event).__name__}")
                index[event.key] = event
        return index


class ReadOnlyLog(Log):
    """A log to which nothing can be added: code that runs over it must do just what it did before."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        super().__init__(events)
        self.write = _refuse

    def attach(self, sink: EventSink | None) -> None:
        """Nothing: nothing happens that anybody could be told of."""

    def announce(self, key: str, kind: type[Event]) -> None:
        """Refuse, before anything has happened."""
        raise ReplayMismatchError(key, "nothing", kind.__name__)

    def announce_call(self, key: str) -> None:
        """Refuse, unless the call waits for an answer: it comes to its question again, which is no effect."""
        if not self.waits_inside(key):
            self.announce(key, ToolReturned)


def _writing(events: list[Event], sink: EventSink, hushed: list[str]) -> Callable[[Event], None]:
    # Of the log's parts and not of the log itself: a ring would wait for the collector.
    keep = events.append

    def write(event: Event) -> None:
        # The sink first, because it may refuse what it cannot store: then it is in nobody's log. A question is for the
        # outside, wherever it is asked.
        if not hushed or type(event) is InterruptRaised or not event.key.startswith(tuple(hushed)):
            sink.put(event)
        else:
            sink.put_hushed(event)
        keep(event)

    return write


def _refuse(event: Event) -> None:
    raise ReplayMismatchError(event.key, "nothing", type(event).__name__)
