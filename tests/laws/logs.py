"""Strategies for random logs: consecutive activations with events of every kind."""

from typing import Any

from hypothesis import strategies as st
from tests.laws.conversations import assistant_messages, calls, contents, json_values, messages, texts, usages

from batonkit.log import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Default,
    Event,
    EventRef,
    HistoryCompacted,
    HistorySummary,
    InterruptAnswered,
    InterruptRaised,
    OpenTask,
    Origin,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    SpeechInterval,
    StepCompleted,
    SummaryMessage,
    TaskEnded,
    TaskOpened,
    ToolReturned,
    UserMessageAdded,
    ValueChanges,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import UserMessage

_times = st.floats(0, 4e9)
_speech = st.none() | st.builds(SpeechInterval, _times, _times)
_values = st.dictionaries(texts, json_values, max_size=3)
_tasks = st.builds(
    OpenTask,
    texts,
    texts,
    texts,
    texts,
    texts,
    st.none() | texts,
    st.lists(texts, max_size=2).map(tuple),
    texts,
)
_changes = st.none() | st.builds(ValueChanges, written=_values, removed=st.lists(texts, max_size=2).map(tuple))
_refs = st.builds(EventRef, texts, texts)
_positions = st.lists(st.integers(-1, 3), max_size=2).map(tuple)
_summary_messages = st.builds(SummaryMessage, messages, texts, texts, st.booleans(), _positions, _positions)
_names = st.lists(texts, max_size=2).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Generate valid events of one run; their combination need not make sense."""
    events: list[Event] = [
        RunStarted(
            "run", RUN_ORIGIN, draw(_times), draw(texts), draw(texts), tuple(draw(st.lists(messages, max_size=2)))
        )
    ]
    origin: Origin | None = None
    for hop in range(draw(st.integers(0, 3))):
        origin = Origin(f"{hop + 1}", draw(texts), origin)
        events.append(AgentStarted(f"{origin.id}/start", origin, draw(_times)))
        kinds = draw(st.lists(st.sampled_from(_KINDS), max_size=4))
        events += [draw(_event(kind, f"{origin.id}/{number}", origin)) for number, kind in enumerate(kinds)]
    return events


def _event(kind: type[Event], key: str, origin: Origin) -> st.SearchStrategy[Event]:
    event_origin = RUN_ORIGIN if kind in _RUN_EVENTS else origin
    return st.builds(kind, st.just(key), st.just(event_origin), _times, **_FIELDS[kind])


_FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    RunStarted: {
        "run_id": texts,
        "root_agent": texts,
        "input": st.lists(messages, max_size=2).map(tuple),
        "values": _values,
        "tasks": st.lists(_tasks, max_size=2).map(tuple),
        "options": _values,
        "input_guardrails": _names,
        "summaries": st.lists(st.builds(HistorySummary, _refs, st.tuples(_summary_messages)), max_size=1).map(tuple),
    },
    RunResumed: {"options": _values},
    AgentStarted: {"input_guardrails": _names, "output_guardrails": _names},
    AgentResponded: {
        "message": assistant_messages,
        "model": texts,
        "usage": st.none() | usages,
        "stop_reason": texts,
        "value_changes": _changes,
        "disabled_tools": st.lists(texts, max_size=2).map(tuple),
        "speech": _speech,
        "response_id": texts,
    },
    UserMessageAdded: {
        "message": st.builds(UserMessage, contents),
        "item_id": texts,
        "speech": _speech,
        "withheld": st.booleans(),
    },
    HistoryCompacted: {
        "upto": _refs,
        "summary": st.lists(_summary_messages, max_size=2).map(tuple),
        "usage": st.none() | usages,
        "model": texts,
        "readers": st.sampled_from(["all", "answers", "none", "activation"]),
        "is_local": st.booleans(),
        "inputs": st.integers(0, 2**31),
        "value_changes": _changes,
    },
    ResponseTruncated: {"response_key": texts, "heard_text": texts, "played_ms": st.integers(0, 2**31)},
    ToolReturned: {
        "call_id": texts,
        "tool_name": texts,
        "content": contents,
        "is_error": st.booleans(),
        "is_final": st.booleans(),
        "value_changes": _changes,
    },
    StepCompleted: {"name": texts, "result": json_values, "value_changes": _changes},
    ControlTransferred: {
        "source": texts,
        "target": texts,
        "call_id": st.none() | texts,
        "payload": json_values,
        "reason": texts,
        "value_changes": _changes,
    },
    TaskOpened: {"task": _tasks},
    TaskEnded: {
        "task": _tasks,
        "outcome": st.sampled_from(("finished", "cancelled", "declined", "dropped")),
        "result": json_values,
        "reason": texts,
    },
    InterruptRaised: {
        "payload": json_values,
        "tool_call": st.none() | calls,
        "deadline": st.floats(0, 1e10),
        "default": st.none() | st.builds(Default, json_values),
    },
    InterruptAnswered: {"interrupt_id": texts, "answer": json_values, "values": _values, "expired": st.booleans()},
    AgentFinished: {"value_changes": _changes},
    RunCompleted: {},
    RunSuspended: {"interrupt_ids": st.lists(texts, max_size=2).map(tuple)},
    RunFailed: {"error_type": texts, "message": texts},
    RunCancelled: {},
}
_KINDS = [*_FIELDS]
_RUN_EVENTS = (RunStarted, RunResumed, RunCompleted, RunSuspended, RunFailed, RunCancelled)
ALL_KINDS = frozenset(_KINDS)
