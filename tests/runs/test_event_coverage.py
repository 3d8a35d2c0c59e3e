"""Every event class must be considered by each consumer of events in the runner.

A new class makes these tests fail: decide what each consumer does with it, then add it here.
"""

from batonkit import log as events
from batonkit.log import Delta, Event
from batonkit.runs.answers import STATUS_EVENTS
from batonkit.runs.background.background_runner import RESPONSE_DELTAS
from batonkit.runs.stream import REPLAYED_EVENTS, STATUS_BY_EVENT

EVENT_TYPES = [kind for kind in Event.__subclasses__() if kind.__module__ == "batonkit.log.events"]
EVENTS = {kind.__name__ for kind in EVENT_TYPES}
DELTAS = {kind.__name__ for kind in Delta.__subclasses__() if kind.__module__ == "batonkit.log.events"}
STOPS = {"RunCompleted", "RunSuspended", "RunFailed", "RunCancelled"}
"""Events that end a drive."""


def names(kinds: tuple[type, ...]) -> set[str]:
    return {kind.__name__ for kind in kinds}


def test_all_classes_are_exported() -> None:
    assert {*EVENTS, *DELTAS} <= set(events.__all__)


def test_stream_knows_which_events_stop_a_run() -> None:
    assert names(tuple(STATUS_BY_EVENT)) == STOPS


def test_replay_knows_which_events_the_code_produces() -> None:
    from_outside = {"RunStarted", "RunResumed", "UserMessageAdded", "InterruptAnswered", "ResponseTruncated"}
    refused = {"UnknownEvent"}
    advice = "add an event that the code produces to REPLAYED_EVENTS in runs/stream.py, any other one to this test"
    assert names(REPLAYED_EVENTS) | from_outside | STOPS | refused == EVENTS, advice
    assert not names(REPLAYED_EVENTS) & (from_outside | STOPS | refused)


def test_fork_knows_which_events_can_be_edited() -> None:
    editable = {
        "RunStarted",
        "ToolReturned",
        "InterruptAnswered",
        "StepCompleted",
        "UserMessageAdded",
        "AgentResponded",
        "HistoryCompacted",
    }
    fixed = {"AgentStarted", "AgentFinished", "ControlTransferred", "InterruptRaised", "ResponseTruncated"}
    fixed |= {"TaskOpened", "TaskEnded"}
    assert names(STATUS_EVENTS) == {*STOPS, "RunResumed"}
    advice = "decide in runs/answers.py whether fork may edit the event, and add it to this test"
    assert editable | fixed | names(STATUS_EVENTS) | {"UnknownEvent"} == EVENTS, advice


def test_usage_and_guardrail_results_know_their_events() -> None:
    with_usage = {kind.__name__ for kind in EVENT_TYPES if "usage" in kind.__struct_fields__}
    with_result = {kind.__name__ for kind in EVENT_TYPES if "result" in kind.__struct_fields__}
    assert with_usage == {"AgentResponded", "HistoryCompacted"}
    assert with_result == {"StepCompleted", "TaskEnded"}


def test_broadcast_knows_which_deltas_a_late_subscriber_needs() -> None:
    transient = {"ProgressDelta", "CustomDelta"}
    discards = {"ResponseRestarted"}
    assert names(RESPONSE_DELTAS) | transient | discards == DELTAS
