"""The JSON bodies of the API, from which the OpenAPI document is generated, and the functions that create them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ...log import (
    AgentResponded,
    AgentStarted,
    Delta,
    Event,
    HistoryCompacted,
    OpenTask,
    RequestRecord,
    RunFailed,
    RunResumed,
    RunStarted,
    TaskEnded,
    TaskOpened,
    ToolReturned,
    UserMessageAdded,
    encode_event,
)
from ...log.log import Log
from ...messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from ...runs import Interrupt, RunSummary, output_from_events, summarize, usage_from_events
from ...runs.result import to_interrupt
from ...stores import FINISHED_STATUSES, RunRecord, RunStatus, WaitingMessage
from ...team.tasks import last_active_agent
from ..http.auth import Principal

MAX_PAGE_SIZE = 200
ID = r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$(?!\n)"
"""The pattern of ids that clients may choose. In Python, `$` alone would accept a line break at the end."""

Id: TypeAlias = Annotated[str, Meta(pattern=ID, max_length=128)]
InputMessage: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class LimitsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one run; values above the server's own limits have no effect."""

    model_calls: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    transfers: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    cost: Annotated[float, Meta(gt=0, le=1e15)] | None = None


class AgentOptionsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of one agent for one run, as far as the server allows them."""

    model: str | None = None
    model_settings: dict[str, Any] | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    """The names of the agent's tools that it may use."""
    max_turns: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class StartRunBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start. Keys of `values` must not begin with `baton.` or `thread:`.

    `model`, `model_settings` and `agent_options` are for this run only, as far as the server allows them.
    """

    input: Annotated[str, Meta(min_length=1)] | Annotated[tuple[InputMessage, ...], Meta(min_length=1)]
    thread: Id | None = None
    values: dict[str, Any] = {}
    limits: LimitsBody | None = None
    run_id: Id | None = None
    start_at: Literal["active", "root"] = "active"
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    agent_options: dict[str, AgentOptionsBody] = {}
    when_busy: Literal["error", "queue", "steer", "preempt"] = "error"
    """The handling of a thread that has an unfinished run; all but `error` need a thread."""


class AnswersBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers by interrupt id, and a message after them. Unanswered interrupts stay open."""

    answers: Annotated[dict[str, Any], Meta(min_length=1)]
    message: Annotated[str, Meta(min_length=1)] | None = None


class ResumeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, a reason to dismiss open interrupts, whether to execute cancelled calls."""

    message: Annotated[str, Meta(min_length=1)] | None = None
    dismiss: str | None = None
    execute_calls: bool = False


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to cancel a run now, after the model's response, or after the current turn."""

    when: Literal["now", "after_response", "after_turn"] = "now"


class RunView(Struct, frozen=True, kw_only=True):
    """A run in a list, or a message that waits. Times are seconds since the epoch."""

    id: str
    status: RunStatus | Literal["waiting"]
    thread: str
    created_at: float
    updated_at: float
    events: int
    """The number of events in the run's log, which is the id of the last event."""
    owner: str = ""
    """The owner of the run, for callers that see the runs of all owners."""
    summary: RunSummary | None = None
    """The run's first words, agents, usage and error, as of its creation or the last time that it stopped."""


class RunDetail(RunView, frozen=True, kw_only=True):
    """A run with its active agent, output, open interrupts, error and usage."""

    active_agent: str
    output: Any
    interrupts: tuple[Interrupt, ...]
    error: str | None
    error_message: str | None
    """The agent's message for the caller of a failed run; with `show_errors`, that of any exception."""
    usage: Usage


class RunPage(Struct, frozen=True, kw_only=True):
    """A page of runs, the newest first; `next` is the cursor of the next page, or "" at the end."""

    runs: tuple[RunView, ...]
    next: str


class ThreadView(Struct, frozen=True, kw_only=True):
    """A thread: its active agent, its runs (the oldest first), its messages, and waiting ones."""

    id: str
    active_agent: str
    runs: tuple[RunView, ...]
    messages: tuple[Message, ...]
    waiting: tuple[str, ...]


class ErrorDetail(Struct, frozen=True):
    """A machine-readable error code and a message for people."""

    code: str
    message: str


class ErrorBody(Struct, frozen=True):
    """The body of every response with a status of 400 or above."""

    error: ErrorDetail


class HealthBody(Struct, frozen=True):
    """The body of a health check."""

    status: Literal["ok"] = "ok"


def to_run_view(record: RunRecord, principal: Principal, summary: RunSummary | None = None) -> RunView:
    """Return the list entry of a run."""
    if summary is not None and summary.forked_from:
        summary = replace(summary, forked_from=principal.to_public_id(summary.forked_from))
    return RunView(
        id=principal.to_public_id(record.run_id),
        status=record.status,
        thread=principal.to_public_id(record.thread),
        created_at=record.created_at,
        updated_at=record.updated_at,
        events=max(0, record.seq - 1),
        owner=record.owner if principal.sees_all else "",
        summary=summary,
    )


def public_summary(summary: RunSummary, *, show_errors: bool) -> RunSummary:
    """Return a summary without the message of the run's error, unless callers may see it."""
    return summary if show_errors else replace(summary, error=summary.error.partition(":")[0])


def to_run_detail(record: RunRecord, events: Sequence[Event], principal: Principal, *, show_errors: bool) -> RunDetail:
    """Return a run with the details of its log."""
    failed = events[-1] if record.status == "failed" and events and isinstance(events[-1], RunFailed) else None
    # A run that was cancelled or has failed takes no answers; it asks again when it is resumed.
    asked = {} if record.status in FINISHED_STATUSES else Log(events).open_interrupts()
    return RunDetail(
        **asdict(to_run_view(record, principal, public_summary(summarize(events), show_errors=show_errors))),
        active_agent=last_active_agent(events),
        output=output_from_events(events),
        interrupts=tuple(map(to_interrupt, asked.values())),
        error=failed.error_type if failed is not None else None,
        error_message=None if failed is None else _failure_message(failed, show_errors=show_errors) or None,
        usage=usage_from_events(events).total,
    )


def to_waiting_detail(message: WaitingMessage, principal: Principal, status: RunStatus | None = None) -> RunDetail:
    """Return a message that waits, in the form of the run that it may become."""
    return RunDetail(
        id=principal.to_public_id(message.run_id),
        status=status or "waiting",
        thread=principal.to_public_id(message.thread),
        created_at=message.created_at,
        updated_at=message.created_at,
        events=0,
        active_agent="",
        output=None,
        interrupts=(),
        error=None,
        error_message=None,
        usage=Usage(),
    )


def encode_public_event(event: Event | Delta, principal: Principal, *, show_errors: bool) -> bytes:
    """Encode an event as JSON with public ids and without internal details."""
    event = _with_public_ids(event, principal)
    if isinstance(event, RunStarted):
        event = replace(
            event,
            team_fingerprint={},
            forked_from="",
            owner="",
            options={},
            summaries=(),
            traceparent="",
            calls_in_doubt=(),
            original_calls=(),
        )
    elif isinstance(event, RunResumed):
        event = replace(event, options={}, traceparent="")
    elif isinstance(event, AgentResponded):
        event = replace(event, request=None, correction="")
    elif isinstance(event, AgentStarted):
        event = replace(event, opens=None, reads=())
    elif isinstance(event, ToolReturned):
        event = replace(event, settles=())
    elif isinstance(event, HistoryCompacted):
        event = replace(event, summary=tuple([replace(each, activation="") for each in event.summary]))
    elif isinstance(event, RunFailed):
        event = replace(event, message=_failure_message(event, show_errors=show_errors))
    return encode_event(event)


def encode_logged_event(event: Event, principal: Principal) -> bytes:
    """Encode an event as JSON with public ids, otherwise as the log has it.

    Of a recorded request only that there is one is left; `/runs/{id}/reads` shows the rest.
    """
    if principal.prefix:
        event = _with_public_ids(event, principal)
    if isinstance(event, AgentResponded) and event.request is not None:
        event = replace(event, request=RequestRecord())
    return encode_event(event)


_E = TypeVar("_E", Event, Event | Delta)


def _with_public_ids(event: _E, principal: Principal) -> _E:
    if isinstance(event, RunStarted):
        names = ("run_id", "thread", "previous_run_id", "forked_from")
        public = {name: principal.to_public_id(getattr(event, name)) for name in names}
        return replace(event, **public, tasks=tuple(_to_public_task(task, principal) for task in event.tasks))
    if isinstance(event, UserMessageAdded):
        return replace(event, message_id=principal.to_public_id(event.message_id))
    if isinstance(event, TaskOpened | TaskEnded):
        return replace(event, task=_to_public_task(event.task, principal))
    if isinstance(event, HistoryCompacted):
        return replace(event, upto=replace(event.upto, run_id=principal.to_public_id(event.upto.run_id)))
    return event


def _to_public_task(task: OpenTask, principal: Principal) -> OpenTask:
    return replace(task, run_id=principal.to_public_id(task.run_id))


def _failure_message(failed: RunFailed, *, show_errors: bool) -> str:
    return failed.message if show_errors else failed.public_message
