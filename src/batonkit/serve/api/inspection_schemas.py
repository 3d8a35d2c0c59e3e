"""The JSON bodies of the endpoints that show usage, logs, requests and the team, and that fork and replay runs."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from ...inspection.policies import PolicyEstimate
from ...inspection.shown_requests import RequestView
from ...inspection.usage import UsageKey, UsageRow
from ...messages import Usage
from ...stores import RunStatus
from .run_schemas import AgentOptionsBody, Id, RunDetail

MAX_LOG_PAGE = 20_000
"""The largest number of events in a page of a log."""


class LogEntry(Struct, frozen=True):
    """An event and its number in the log, from 1."""

    number: int
    event: Raw


class LogPage(Struct, frozen=True):
    """Events of a log; `next` is the number to pass as `after`, or null at the end.

    Of recorded requests only the policy is shown; `/runs/{id}/reads` shows the rest.
    """

    events: tuple[LogEntry, ...]
    next: int | None


class RequestEntry(Struct, frozen=True):
    """A recorded model request in a list."""

    key: str
    agent: str
    model: str
    policy: str
    messages: int
    tools: int
    tokens: int
    """The estimated tokens of the request."""


class RequestList(Struct, frozen=True):
    """The recorded model requests of a run, in order.

    Responses without a request are named in `unrecorded`: their log was written without a store, or by another version.
    """

    requests: tuple[RequestEntry, ...]
    unrecorded: tuple[str, ...]


class RunUsageView(Struct, frozen=True):
    """The usage of a run: its total, and by agent, edge, model and tool.

    `by_policy` estimates the tokens of the messages that its agents would have read with each history policy.
    """

    total: Usage
    by_agent: tuple[UsageRow, ...]
    by_edge: tuple[UsageRow, ...]
    by_model: tuple[UsageRow, ...]
    by_tool: tuple[UsageRow, ...]
    by_policy: tuple[PolicyEstimate, ...]


class UsageReport(Struct, frozen=True):
    """The usage of your runs, grouped.

    `is_complete` is false if there are more runs than the report covers.
    """

    by: UsageKey
    rows: tuple[UsageRow, ...]
    runs: int
    is_complete: bool


class ThreadEntry(Struct, frozen=True):
    """A thread in a list, with its last run."""

    id: str
    runs: int
    """The number of its runs among the newest ones."""
    last_run: str
    status: RunStatus
    updated_at: float
    text: str
    """The first words of the user in its last run."""


class ThreadPage(Struct, frozen=True):
    """The threads of your newest runs, the last changed first."""

    threads: tuple[ThreadEntry, ...]


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fork of a run: its first `at` events, changed by `edit`, and options for what follows.

    `edit` has new contents by event key: input, answers, tool and step results, user messages; for a response its text,
    or an object with `content` and `tool_calls`.
    """

    at: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    """The number of events to copy; all by default."""
    edit: dict[str, Any] = {}
    run_id: Id | None = None
    message: Annotated[str, Meta(min_length=1)] | None = None
    """A message of the user for the fork."""
    model: Annotated[str, Meta(min_length=1)] | None = None
    """The model of all agents in the fork."""
    agent_options: dict[str, AgentOptionsBody] = {}
    start: bool = True
    """True to resume the fork at once; otherwise it is suspended."""


class ReplayVerdict(Struct, frozen=True):
    """The result of a replay: whether the team's code still produces the log."""

    matches: bool
    key: str = ""
    """The key of the first difference."""
    number: int | None = None
    """The number of the event with that key; if the log does not have it, of the first event that the code skips."""
    message: str = ""
    """The difference."""


class RecordedTest(Struct, frozen=True):
    """A run as a Python test with the same model responses and answers."""

    source: str


class ExportedRun(Struct, frozen=True):
    """A run with everything that is needed to show it elsewhere."""

    format: Literal[1]
    run: RunDetail
    events: tuple[Raw, ...]
    requests: tuple[RequestView, ...]
    team: dict[str, Any]
    test: str = ""
    """The run as a Python test; empty if it cannot be repeated."""
