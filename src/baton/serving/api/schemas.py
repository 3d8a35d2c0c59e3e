"""What is sent and received: the one place where the API's JSON is defined. The OpenAPI document is made from it.

Runs and threads as a caller sees them, and their events: with the caller's own ids, without what is not for them.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ...events import Delta, Event, RunFailed, RunStarted, UnknownEvent, encode_event
from ...flow.log_history import history_from_log, last_active_agent
from ...log import Log
from ...messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage, text_of
from ...runner import Interrupt, usage_from_events
from ...stores import RunRecord, RunStatus
from ..http import Principal

MOST_LISTED = 200
ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
"""What an id from outside may look like."""

Id: TypeAlias = Annotated[str, Meta(pattern=ID, max_length=128)]
Spoken: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class LimitsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one run. What is above the server's own has no effect."""

    model_calls: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    transfers: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    cost: Annotated[float, Meta(gt=0, le=1e15)] | None = None


class StartRunBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to begin. Keys of `values` must not begin with `baton.`."""

    input: Annotated[str, Meta(min_length=1)] | Annotated[tuple[Spoken, ...], Meta(min_length=1)]
    thread: Id | None = None
    values: dict[str, Any] = {}
    limits: LimitsBody | None = None
    run_id: Id | None = None
    start_at: Literal["active", "root"] = "active"


class AnswersBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to open questions, by the ids of the questions. Those without an answer stay open."""

    answers: Annotated[dict[str, Any], Meta(min_length=1)]


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run is to be stopped."""

    how: Literal["now", "after_turn"] = "now"


class RunView(Struct, frozen=True, kw_only=True):
    """A run as it is listed. Times are seconds since the epoch."""

    id: str
    status: RunStatus
    thread: str
    created_at: float
    updated_at: float
    events: int
    """How many events its log has: the number of the last one."""


class RunDetail(RunView, frozen=True, kw_only=True):
    """A run with what its log says: who had the floor last, the answer, open questions, what it used."""

    agent: str
    output: str | None
    questions: tuple[Interrupt, ...]
    error: str | None
    usage: Usage


class RunPage(Struct, frozen=True, kw_only=True):
    """Some runs, the newest first; `next` asks for more, and is "" if there are none."""

    runs: tuple[RunView, ...]
    next: str


class ThreadView(Struct, frozen=True, kw_only=True):
    """A conversation: who has the floor, its runs (the oldest first), and what was said."""

    id: str
    floor: str
    runs: tuple[RunView, ...]
    messages: tuple[Message, ...]


class ErrorDetail(Struct, frozen=True):
    """A code for programs, and a sentence for people."""

    code: str
    message: str


class ErrorBody(Struct, frozen=True):
    """What every answer with a status from 400 on holds."""

    error: ErrorDetail


class HealthBody(Struct, frozen=True):
    """That the server is there."""

    status: Literal["ok"] = "ok"


def listed_run(record: RunRecord, caller: Principal) -> RunView:
    """What a caller sees of a run without its log being read."""
    return RunView(
        id=caller.outside(record.run_id),
        status=record.status,
        thread=caller.outside(record.thread),
        created_at=record.created_at,
        updated_at=record.updated_at,
        events=max(0, record.seq - 1),
    )


def whole_run(record: RunRecord, events: Sequence[Event], caller: Principal) -> RunDetail:
    """What a caller sees of a run and its log."""
    failed = events[-1] if record.status == "failed" and events and isinstance(events[-1], RunFailed) else None
    return RunDetail(
        **asdict(listed_run(record, caller)),
        agent=last_active_agent(events),
        output=_output_of(events) if record.status == "completed" else None,
        questions=tuple(
            Interrupt(asked.key, asked.agent, asked.path, asked.payload, asked.tool_call, asked.schema)
            for asked in Log(events).open_interrupts().values()
        ),
        error=failed.error_type if failed is not None else None,
        usage=usage_from_events(events).total,
    )


def as_sent(event: Event | Delta, caller: Principal, *, show_errors: bool) -> bytes:
    """An event as JSON for a caller. Why a run failed may hold what is not for them."""
    if isinstance(event, RunStarted):
        ids = {"run_id": event.run_id, "thread": event.thread, "previous_run_id": event.previous_run_id}
        known = {name: caller.outside(id) for name, id in ids.items()}
        event = replace(event, **known, team_fingerprint={}, forked_from="", owner="")
    elif isinstance(event, RunFailed) and not show_errors:
        event = replace(event, message="")
    return encode_event(event)


def _output_of(events: Sequence[Event]) -> str | None:
    known = [event for event in events if not isinstance(event, UnknownEvent)]
    answers = [entry.message for entry in history_from_log(known) if entry.is_answer]
    return text_of(answers[-1].content) if answers else None
