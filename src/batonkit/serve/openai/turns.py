"""The part of a run that one response shows: what the agents say, what they ask, and how it ended."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ... import log as events
from ...log import keys
from ...log.events import Interrupt, to_interrupt
from ...log.log import Log
from ...messages import ToolCall, Usage
from ...runs import usage_from_events
from ...runs.stream import STATUS_BY_EVENT
from ..frontend_tools import is_frontend_call
from ..http.http_errors import ServingError, to_serving_error
from ..http.message_parts import CallWritten, MessageParts, PartClosed, PartExtended, PartOpened, PartUpdate

TurnStatus: TypeAlias = Literal["running", "completed", "suspended", "failed", "cancelled"]
Ask: TypeAlias = Callable[[Sequence[Interrupt]], str]
"""Returns the text for the questions of agents."""


class Turn(Struct, frozen=True, kw_only=True):
    """The part of a run that one response shows."""

    run_id: str
    """The run, as the store knows it."""
    public_id: str
    """The run, as the client knows it."""
    seen: int = 0
    """The number of events before this part."""
    ask: Ask
    is_stopped: bool = False
    """True if the run does not continue: the response repeats its questions."""

    @property
    def response_id(self) -> str:
        """The id of the response; a run that was resumed has several responses."""
        return f"{self.public_id}.{self.seen}" if self.seen else self.public_id


def split_response_id(id: str) -> tuple[str, int]:
    """Return the public id of the run, and the number of events before the response."""
    run_id, _, seen = id.partition(".")
    return run_id, int(seen) if seen.isdigit() and len(seen) < 10 else 0


class TurnEnd(Struct, frozen=True, kw_only=True):
    """The end of a turn."""

    status: TurnStatus
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    """The calls that the client has to execute, with ids that name the run."""
    error: ServingError | None = None
    is_truncated: bool = False
    """True if the last response reached the model's limit of tokens."""


class TurnReader:
    """Reads the events of a turn as parts of an answer.

    The client sees what the agents of the conversation say, but neither their own tool calls nor agents used as tools.
    """

    def __init__(self, turn: Turn, past: Sequence[events.Event]) -> None:
        self._turn = turn
        self._parts = MessageParts(turn.public_id)
        self.has_stopped = turn.is_stopped
        """True once the run has stopped."""
        for event in past:
            self._parts.skip(event)

    def read(self, item: events.Event | events.Delta) -> Iterator[PartUpdate]:
        """Return what an event or a delta adds to the answer."""
        self.has_stopped = self.has_stopped or type(item) in STATUS_BY_EVENT
        if keys.is_in_call(item.origin.id):
            return
        if isinstance(item, events.AgentResponded) and item.correction:
            # The agent answers again, because this does not fit its output type.
            yield from self._parts.close(item.origin.id)
            self._parts.skip(item)
        else:
            yield from [update for update in self._parts.update(item) if not isinstance(update, CallWritten)]

    def finish(self, log: Sequence[events.Event]) -> Iterator[PartUpdate]:
        """Close what is open, and ask the questions of a suspended run.

        A run that waits for tools of the client asks them later.
        """
        for activation in self._parts.open_activations():
            yield from self._parts.close(activation)
        interrupts = _open_interrupts(log)
        if interrupts and isinstance(log[-1], events.RunSuspended) and not any(map(is_frontend_call, interrupts)):
            yield from self._say(f"question{len(log)}", interrupts[0].agent, self._turn.ask(interrupts))

    def _say(self, key: str, agent: str, text: str) -> Iterator[PartUpdate]:
        id = f"{self._turn.public_id}:{key}"
        if text:
            yield PartOpened("text", id, agent)
            yield PartExtended("text", id, text)
            yield PartClosed("text", id)


def events_of(turn: Turn, log: Sequence[events.Event]) -> Sequence[events.Event]:
    """Return the log up to the end of a turn."""
    stops = (number for number, event in enumerate(log, 1) if number > turn.seen and type(event) in STATUS_BY_EVENT)
    return log[: next(stops, len(log))]


def outcome_of(turn: Turn, log: Sequence[events.Event], *, show_errors: bool) -> TurnEnd:
    """Return how a turn ended, from the log up to its end."""
    own = log[turn.seen :]
    last = log[-1] if log else None
    responses = [event for event in own if isinstance(event, events.AgentResponded)]
    waiting = [interrupt.tool_call for interrupt in _open_interrupts(log) if is_frontend_call(interrupt)]
    calls = [ToolCall(f"{call.id}@{turn.public_id}", call.name, call.arguments) for call in waiting if call is not None]
    status: TurnStatus = "running" if last is None else STATUS_BY_EVENT.get(type(last), "running")
    return TurnEnd(
        status=status,
        usage=usage_from_events(own).total,
        calls=tuple(calls) if status == "suspended" else (),
        error=_error(last, show_errors=show_errors),
        is_truncated=bool(responses) and responses[-1].stop_reason == "length",
    )


def failed_outcome(error: Exception) -> TurnEnd:
    """Return the outcome of a turn that cannot be followed to its end."""
    return TurnEnd(status="failed", usage=Usage(), error=to_serving_error(error))


def _open_interrupts(log: Sequence[events.Event]) -> list[Interrupt]:
    return [to_interrupt(raised) for raised in Log(log).open_interrupts().values()]


def _error(last: events.Event | None, *, show_errors: bool) -> ServingError | None:
    # The run is stored: a client that sent the request again would start another one.
    headers = {"X-Should-Retry": "false"}
    if isinstance(last, events.RunFailed):
        message = last.public_message or "the run failed; the server has the details"
        if show_errors:
            message = f"{last.error_type}: {last.message}"
        return ServingError(500, "run_failed", message, headers=headers)
    if isinstance(last, events.RunCancelled):
        return ServingError(500, "run_cancelled", "the run was cancelled", headers=headers)
    if type(last) not in STATUS_BY_EVENT:
        return ServingError(503, "shutting_down", "the server is shutting down; another one continues the run")
    return None
