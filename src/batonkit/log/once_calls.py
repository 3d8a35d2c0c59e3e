"""Calls of tools whose effect must happen once: those in doubt, and those of a run that a fork was copied from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, convert

from ..messages import ToolCall
from . import keys
from .event import Event
from .events import (
    AgentResponded,
    CallInDoubt,
    EventRef,
    InterruptRaised,
    OriginalCall,
    RecordedOutcome,
    RunStarted,
    StepCompleted,
    ToolReturned,
)
from .log import Log

INTENT = "intent"
"""The name of the step that records the intent to call a tool."""
PAUSED = "paused"
"""The name of the step that records that a call ended with a question of its tool."""
OUTCOME_UNKNOWN = "The outcome of this call is unknown: it was begun, and may have taken effect. Do not repeat it."
"""The result of a call in doubt, as agents read it."""


class Intent(Struct, frozen=True):
    """The result of the step that records the intent to call a tool."""

    tool: str
    """The name of the tool."""
    arguments: str
    """The arguments, as JSON text."""
    idempotency_key: str
    """The key that the call has for external systems."""


def is_attempt_record(event: Event) -> bool:
    """Return whether an event records the beginning or the end of an attempt at a call."""
    # A step of the application has its own name at the end of its key.
    is_named_so = isinstance(event, StepCompleted) and event.name in (INTENT, PAUSED)
    return is_named_so and keys.is_attempt_record(event.key)


def intent_of(event: StepCompleted) -> Intent | None:
    """Return the intent that a step records; None for other steps."""
    return convert(event.result, Intent) if event.name == INTENT and is_attempt_record(event) else None


class CallsInDoubt:
    """The calls that were begun and have no result, folded from the events of a run."""

    def __init__(self, run_id: str = "") -> None:
        self.own: dict[keys.Key, CallInDoubt] = {}
        """The calls of the run itself, by the key of their result."""
        self._earlier: dict[EventRef, CallInDoubt] = {}
        self._run_id = run_id
        self._dismissed: set[keys.Key] = set()

    @property
    def all(self) -> tuple[CallInDoubt, ...]:
        """The calls of earlier runs of the thread, then those of the run itself."""
        return (*self._earlier.values(), *self.own.values())

    def has(self, call: keys.Key) -> bool:
        """Return whether a call, or one inside it, is in doubt."""
        return any(key == call or keys.contains(call, key) for key in self.own)

    def apply(self, event: Event) -> None:
        """Add an event."""
        match event:
            case RunStarted():
                self._run_id = event.run_id
                self._earlier = {call.event: call for call in event.calls_in_doubt}
            case StepCompleted():
                self._apply_step(event)
            case ToolReturned():
                for settled in event.settles:
                    self._settle(settled.event)
                # A question about the outcome that was dismissed leaves it unknown.
                if event.key not in self._dismissed:
                    self.own.pop(event.key, None)
            case _:
                pass

    def _apply_step(self, event: StepCompleted) -> None:
        call = keys.parent(event.key)
        intent = intent_of(event)
        if intent is not None:
            reference = EventRef(self._run_id, call)
            self.own[call] = CallInDoubt(reference, intent.tool, intent.arguments, intent.idempotency_key)
        elif event.key == keys.dismissal(call):
            self._dismissed.add(call)
        elif is_attempt_record(event) or event.key == keys.requested_agent(call):
            # The tool has asked something itself, or returned the agent that takes over.
            self.own.pop(call, None)

    def _settle(self, call: EventRef) -> None:
        self._earlier.pop(call, None)
        if call.run_id == self._run_id:
            self.own.pop(call.key, None)


def find_doubt(run_id: str, log: Log, call: keys.Key) -> CallInDoubt | None:
    """Return the call if its outcome is unknown; None if it was not begun, or has ended."""
    doubts = CallsInDoubt(run_id)
    for event in log.inside(call):
        doubts.apply(event)
    return doubts.own.get(call)


def call_digest(tool: str, arguments: str) -> str:
    """Return a digest of a call that does not depend on how its JSON is written."""
    import json
    from hashlib import blake2b

    with suppress(ValueError):  # Arguments that are not JSON are compared as text.
        arguments = json.dumps(json.loads(arguments.strip() or "{}"), sort_keys=True)
    return blake2b(json.dumps([tool, arguments]).encode(), digest_size=12).hexdigest()


class ForkedFrom:
    """The run that a fork was copied from, and its calls whose results the fork does not have."""

    def __init__(self, started: RunStarted) -> None:
        self.source = started.forked_from
        """The run and, after `@`, the number of events that were copied."""
        self._calls: Mapping[str, OriginalCall] = {call.key: call for call in started.original_calls}

    def find(self, key: keys.Key, tool: str, arguments: str) -> OriginalCall | None:
        """Return the same call in the original run: at this place, with this tool and arguments."""
        original = self._calls.get(key)
        is_same = original is not None and original.digest == call_digest(tool, arguments)
        return original if is_same else None


def idempotency_key(run_id: str, fork: ForkedFrom | None, key: keys.Key, tool: str, arguments: str) -> str:
    """Return the key of a call for external systems; a fork's call has that of the original."""
    original = None if fork is None else fork.find(key, tool, arguments)
    return f"{run_id if original is None else original.run_id}:{key}"


def original_calls(events: Sequence[Event], copied: Iterable[Event]) -> tuple[OriginalCall, ...]:
    """Return the calls of a run that a fork with these copied events may make again."""
    recorded = _RecordedCalls(events)
    copied_results = {event.key for event in copied if isinstance(event, ToolReturned)}
    found = {call.key: call for call in recorded.started.original_calls}
    for key, call in recorded:
        found.pop(key, None)
        if key not in copied_results:
            found[key] = recorded.original(key, call)
    return tuple(found.values())


class _RecordedCalls:
    """The calls of a run, with what its log says about each."""

    def __init__(self, events: Sequence[Event]) -> None:
        started = events[0]
        assert isinstance(started, RunStarted), "a log starts with RunStarted"
        self.started = started
        self._responses = [event for event in events if isinstance(event, AgentResponded)]
        self._results = {event.key: event for event in events if isinstance(event, ToolReturned)}
        self._intents = _intents(events)
        self._asked = {
            keys.call_with_unknown_outcome(event.key) for event in events if isinstance(event, InterruptRaised)
        }
        self._fork = ForkedFrom(started) if started.forked_from else None

    def __iter__(self) -> Iterator[tuple[keys.Key, ToolCall]]:
        for response in self._responses:
            for position, call in enumerate(response.tool_calls):
                yield keys.call(response.key, position), call

    def original(self, key: keys.Key, call: ToolCall) -> OriginalCall:
        """Return a call as a fork compares it with its own calls."""
        arguments = self._executed_arguments(key, call)
        first = None if self._fork is None else self._fork.find(key, call.name, arguments)
        run_id = self.started.run_id if first is None else first.run_id
        return OriginalCall(key, call_digest(call.name, arguments), run_id, self._outcome(key))

    def _executed_arguments(self, key: keys.Key, call: ToolCall) -> str:
        """Return the arguments of a call, as a person changed them if one did."""
        result = self._results.get(key)
        if result is not None and result.edited_arguments:
            return result.edited_arguments
        intent = self._intents.get(key)
        return call.arguments if intent is None else intent.arguments

    def _outcome(self, key: keys.Key) -> RecordedOutcome | None:
        """Return the result of a call whose effect must happen once, if it has one."""
        result = self._results.get(key)
        is_once = key in self._intents or key in self._asked
        return RecordedOutcome(result.content, result.is_error) if result is not None and is_once else None


def _intents(events: Iterable[Event]) -> dict[keys.Key, Intent]:
    """Return the latest intents by call."""
    intents: dict[keys.Key, Intent] = {}
    for event in events:
        if isinstance(event, StepCompleted) and (intent := intent_of(event)) is not None:
            intents[keys.parent(event.key)] = intent
    return intents
