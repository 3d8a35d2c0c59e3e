"""The messages that each agent has read before each of its model calls, from the log alone."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..messages import Message
from . import keys
from .event import Event
from .events import AgentResponded, AgentStarted, HistoryCompacted, RequestRecord, RunStarted, StepCompleted
from .fold import RunFold
from .history import CompactedPrefix, History
from .view import CompactableView, HistoryView
from .views import recorded_reading


class ReadBefore(Struct, frozen=True):
    """The messages that an agent had read before a model call."""

    response: AgentResponded
    record: RequestRecord
    """The rest of the request."""
    policy: str
    """The history policy, `function` or `filter`."""
    messages: Sequence[Message]
    history: History
    """The history that they come from, as it was then: no later entry has been added yet."""


class LogReads(Struct, eq=False):
    """Folds a log, with the view of each activation."""

    fold: RunFold = field(default_factory=RunFold)
    prefixes: list[CompactedPrefix] = []
    """All summaries that agents have read so far."""
    _started: dict[str, AgentStarted] = {}
    _views: dict[str, HistoryView] = {}

    def read(self, events: Iterable[Event]) -> Iterator[ReadBefore]:
        """Yield what was read before each model call; valid until the next one."""
        for event in events:
            if type(event) is AgentResponded and event.request is not None:
                id = event.origin.id
                messages = self.view_of(event).messages()
                policy = self._start_of(id).policy
                yield ReadBefore(event, event.request, policy, messages, self.fold.history_of(id))
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Add an event."""
        if type(event) is HistoryCompacted:
            self._compact(event)
            return
        self.fold.apply(event)
        if type(event) is RunStarted:
            self.prefixes.extend([replace(prefix, key=event.key) for prefix in self.fold.main.compacted])
        elif type(event) is AgentStarted:
            self._started[event.origin.id] = event
            self.view_of(event)
        elif type(event) is StepCompleted and keys.ends_with(event.key, keys.FAILED):
            failed = keys.parent(event.key)
            self._views = {
                id: view for id, view in self._views.items() if id != failed and not keys.is_effect_of(failed, id)
            }

    def view_of(self, event: Event) -> HistoryView:
        """Return the view of the activation that an event comes from."""
        id = event.origin.id
        view = self._views.get(id)
        if view is None:
            origin = self.fold.origin_of(event.origin)
            history = self.fold.history_of(id)
            view = self._views[id] = recorded_reading(self._start_of(id), history).view(history, origin)
        return view

    def _start_of(self, activation: str) -> AgentStarted:
        """Return the start of an activation; a further attempt of middleware reads like the first."""
        while activation not in self._started:
            activation = keys.owner(activation)
        return self._started[activation]

    def _compact(self, event: HistoryCompacted) -> None:
        view = cast("CompactableView", self.view_of(event))
        origin = self.fold.origin_of(event.origin)
        history = self.fold.history_of(event.origin.id)
        prefix = history.prefix_of(event, origin)
        self.prefixes.append(prefix)
        self.fold.apply(event)
        view.compact(history, prefix)
