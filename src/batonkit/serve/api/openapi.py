"""The OpenAPI document, generated from the types of the bodies."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import Struct

from ...inspection.comparison import Comparison
from ...inspection.shown_requests import RequestView
from ...inspection.teams import TeamDescription
from ...inspection.usage import UsageKey
from ...log import Event, Origin, UnknownEvent
from ...log import events as types
from ...stores import RUN_STATUSES
from ...version import __version__
from ..http.auth import Auth
from .inspection_schemas import (
    MAX_LOG_PAGE,
    ExportedRun,
    ForkBody,
    LogPage,
    RecordedTest,
    ReplayVerdict,
    RequestList,
    RunUsageView,
    ThreadPage,
    UsageReport,
)
from .run_schemas import (
    ID,
    MAX_PAGE_SIZE,
    AnswersBody,
    CancelBody,
    ErrorBody,
    HealthBody,
    ResumeBody,
    RunDetail,
    RunPage,
    StartRunBody,
    ThreadView,
)

_BODIES = (
    *(StartRunBody, AnswersBody, ResumeBody, CancelBody, RunDetail, RunPage, ThreadView, ErrorBody, HealthBody),
    *(ThreadPage, RunUsageView, UsageReport),
)
_INSPECTION_BODIES = (
    *(TeamDescription, LogPage, RequestList, RequestView, ExportedRun, RecordedTest, ForkBody, ReplayVerdict),
    Comparison,
)
_EVENT_TYPES = tuple(
    kind
    for kind in types.__dict__.values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, UnknownEvent)
)
"""The event types that a log can contain."""
_ERRORS = {
    400: "The body is not JSON, or is incomplete.",
    401: "Authentication is required and missing or invalid.",
    403: (
        "Without authentication: the request is from another machine. Or it is from a page of another site. Or it "
        "sends an option, or messages of agents, that the application does not accept from clients."
    ),
    404: "The run or thread does not exist, or belongs to another owner.",
    408: "The body did not arrive in time.",
    409: "The state of the run or of its thread does not allow the operation.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    422: "The body or a parameter is invalid; the message says where.",
    429: "Too many messages wait for the thread.",
    503: "The store is unavailable, or the server is shutting down.",
}
_OPEN_PATH = "/health"
"""The path that needs no authentication."""
_POST = (400, 404, 408, 409, 413, 415, 422)
"""The errors of requests with a body."""
_LIST_DESCRIPTION = "List your runs, the newest first."
_START_DESCRIPTION = (
    "Start a run. It continues when clients disconnect. If its thread has an unfinished run, `when_busy` decides "
    "whether the request is refused, or the message waits and is shown with the status `waiting`."
)
_ANSWER_DESCRIPTION = "Answer open interrupts and resume the run."
_RESUME_DESCRIPTION = "Resume a failed or cancelled run, or a suspended one whose interrupts are dismissed."
_CANCEL_DESCRIPTION = "Cancel a run, in whichever process it is driven, or a message that waits."
_OPTIONAL_BODIES = (CancelBody, ResumeBody, ForkBody)
_RUN_USAGE_DESCRIPTION = "Get the usage of a run by agent, edge, model and tool."
_USAGE_DESCRIPTION = "Get the usage of your newest runs by day, agent, edge, model or tool."
_THREADS_DESCRIPTION = "List the threads of your newest runs."
_CHANGES_DESCRIPTION = (
    "Server-sent events, one whenever one of your runs has changed: `event` is `run`, and `data` the run as in a list, "
    "without its summary. Read new events with `/runs/{id}/events`. Each change of status is sent at least once; "
    "events that are added between two of them may be sent together."
)
_REQUEST_DESCRIPTION = (
    "Get a recorded model request by the key of its response, as the model received it: instructions, messages with "
    "their sources, tools, settings; what the handoff before it changed, and the part that a prompt cache can hold. "
    "No code of the team runs."
)
_TEST_DESCRIPTION = "Get a run as a Python test that repeats it with the same model responses and answers."
_FORK_DESCRIPTION = (
    "Fork a run at an event, with changes, and resume the fork. The original stays unchanged. Any model and "
    "instructions are accepted."
)
_REPLAY_DESCRIPTION = "Run the team's code over the log, without models, tools or other effects."
_STREAM_DESCRIPTION = (
    "Server-sent events. Events of the log have their number as `id`, their type as `event` and the event as JSON in "
    "`data` (see the schema `Event`); deltas (TextDelta, ToolCallDelta, ReasoningDelta, ResponseRestarted, "
    "ProgressDelta, CustomDelta) have no `id`. ResponseRestarted discards the deltas of the response so far. "
    "Comments are heartbeats. The stream ends when the run stops; if the server is stopped first, the stream ends "
    "with a `retry` field."
)


def openapi_document(root: str = "", auth: Sequence[Auth] = (), *, inspection: bool = False) -> dict[str, Any]:
    """Return the OpenAPI document."""
    document: dict[str, Any] = {**_base_document(inspection), "servers": [{"url": root or "/"}]}
    if auth:
        document["security"] = [{scheme.name: []} for scheme in auth]
        document["components"] = {
            **document["components"],
            "securitySchemes": {scheme.name: dict(scheme.openapi_scheme()) for scheme in auth},
        }
    return document


@cache
def _base_document(inspection: bool) -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        (*_BODIES, *(_INSPECTION_BODIES if inspection else ()), *_EVENT_TYPES),
        schema_hook=_schema_hook,
        ref_template="#/components/schemas/{name}",
    )
    kinds = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in _EVENT_TYPES]
    event = {"oneOf": kinds, "discriminator": {"propertyName": "type"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Baton",
            "version": __version__,
            "description": "Start runs of a team of agents, stream their events and answer their interrupts.",
        },
        "paths": _paths([*_OPERATIONS, *(_INSPECTION_OPERATIONS if inspection else ())]),
        "components": {"schemas": {**components, "Event": event}},
    }


def _schema_hook(kind: type) -> dict[str, Any]:
    if kind is Origin:
        items: list[dict[str, Any]] = [{"type": "string"}, {"type": "string"}, {"type": ["string", "null"]}]
        description = "The activation of the event: its id, its agent and its parent activation."
        return {"type": "array", "prefixItems": items, "description": description}
    raise NotImplementedError(kind)


def _parameter(name: str, place: str, schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    parameter = {"name": name, "in": place, "schema": schema}
    return {**parameter, "description": description} if description else parameter


_ID_SCHEMA = {"type": "string", "pattern": ID, "maxLength": 128}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**15}
_TIME = {"type": "number", "minimum": 0, "maximum": 10**11, "description": "Seconds since the epoch."}
_LIST_PARAMETERS = [
    _parameter("status", "query", {"type": "array", "items": {"enum": [*RUN_STATUSES]}}),
    _parameter("thread", "query", _ID_SCHEMA),
    _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}),
    _parameter("after", "query", {"type": "string"}, "The `next` cursor of the previous page."),
    _parameter("q", "query", {"type": "string"}, "Words in the summaries of the newest 10,000 runs."),
    _parameter("agent", "query", {"type": "string"}, "An agent that was active."),
    _parameter("owner", "query", {"type": "string"}, "The owner, for callers that see the runs of all owners."),
    _parameter("since", "query", _TIME, "Runs at or after this time."),
    _parameter("until", "query", _TIME, "Runs before this time."),
    _parameter("forked_from", "query", _ID_SCHEMA, "Forks of this run."),
    _parameter("min_cost", "query", {"type": "number", "minimum": 0, "maximum": 1e9}, "The least cost."),
    _parameter("order", "query", {"enum": ["newest", "oldest", "changed"]}, "`changed`: the last change first."),
]
_KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255}
_KEY_DESCRIPTION = "Of several requests with the same key, the first one starts a run, and all return it."
_START_PARAMETERS = [_parameter("Idempotency-Key", "header", _KEY_SCHEMA, _KEY_DESCRIPTION)]
_STREAM_PARAMETERS = [
    _parameter("Last-Event-ID", "header", _NUMBER, "The number of the last event that you received."),
    _parameter("after", "query", _NUMBER, "Alternative to Last-Event-ID for clients that cannot set headers."),
]


_PATH_PARAMETERS = {"id": _ID_SCHEMA, "other": _ID_SCHEMA, "key": {"type": "string", "minLength": 1}}
_CHANGES_PARAMETERS = [
    _parameter("Last-Event-ID", "header", _TIME, "The id of the last change that you received."),
    _parameter("after", "query", _TIME, "Alternative to Last-Event-ID for clients that cannot set headers."),
]
_USAGE_PARAMETERS = [
    _parameter("by", "query", {"enum": [*get_args(UsageKey)]}),
    _parameter("since", "query", _TIME, "Runs that were created at or after this time."),
    _parameter("until", "query", _TIME, "Runs that were created before this time."),
]
_LOG_PARAMETERS = [
    _parameter("after", "query", _NUMBER, "The number of the last event to skip."),
    _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_LOG_PAGE}),
    _parameter("types", "query", {"type": "array", "items": {"type": "string"}}, "Only events of these types."),
]


class _Operation(Struct, frozen=True):
    endpoint: str
    """The HTTP method and the path."""
    id: str
    description: str
    response: tuple[int, type | None] | None
    """The status and the body of a success; None for the event stream."""
    body: type | None = None
    errors: tuple[int, ...] = _POST
    parameters: Sequence[Mapping[str, Any]] = ()
    result: str = "The current state."
    """The description of a success."""
    is_endless: bool = False
    """True for a stream that does not end by itself."""

    @property
    def is_open(self) -> bool:
        return self.endpoint.endswith(_OPEN_PATH)

    def to_openapi(self) -> dict[str, Any]:
        operation: dict[str, Any] = {
            "operationId": self.id,
            "summary": self.description.partition(". ")[0],
            "description": self.description,
        }
        if self.parameters:
            operation["parameters"] = self.parameters
        if self.body is not None:
            operation["requestBody"] = {**_content(self.body), "required": self.body not in _OPTIONAL_BODIES}
        responses = _stream_responses(is_endless=self.is_endless) if self.response is None else {}
        if self.response is not None:
            status, kind = self.response
            content = {} if kind is None else _content(kind)
            responses[str(status)] = {"description": self.result, **content}
        for status in sorted({401, 403, 503, *self.errors}) if not self.is_open else ():
            responses[str(status)] = {"description": _ERRORS[status], **_content(ErrorBody)}
        if self.is_open:
            operation["security"] = []
        return {**operation, "responses": responses}


_OPERATIONS = (
    _Operation("get /runs", "list_runs", _LIST_DESCRIPTION, (200, RunPage), None, (422,), _LIST_PARAMETERS),
    _Operation(
        "post /runs",
        "create_run",
        _START_DESCRIPTION,
        (201, RunDetail),
        StartRunBody,
        (*_POST, 429),
        _START_PARAMETERS,
    ),
    _Operation("get /runs/{id}", "get_run", "Get one run.", (200, RunDetail), errors=(404,)),
    _Operation(
        "get /runs/{id}/events", "stream_run_events", _STREAM_DESCRIPTION, None, None, (404, 422), _STREAM_PARAMETERS
    ),
    _Operation("post /runs/{id}/answers", "answer_run", _ANSWER_DESCRIPTION, (202, RunDetail), AnswersBody),
    _Operation("post /runs/{id}/resume", "resume_run", _RESUME_DESCRIPTION, (202, RunDetail), ResumeBody),
    _Operation("post /runs/{id}/cancel", "cancel_run", _CANCEL_DESCRIPTION, (200, RunDetail), CancelBody),
    _Operation(
        "delete /runs/{id}",
        "delete_run",
        "Delete a run that has stopped.",
        (204, None),
        None,
        (404, 409),
        result="Deleted.",
    ),
    _Operation("get /runs/{id}/usage", "get_run_usage", _RUN_USAGE_DESCRIPTION, (200, RunUsageView), errors=(404, 409)),
    _Operation("get /usage", "get_usage", _USAGE_DESCRIPTION, (200, UsageReport), None, (422,), _USAGE_PARAMETERS),
    _Operation(
        "get /events", "stream_changes", _CHANGES_DESCRIPTION, None, None, (422,), _CHANGES_PARAMETERS, is_endless=True
    ),
    _Operation("get /threads", "list_threads", _THREADS_DESCRIPTION, (200, ThreadPage), errors=()),
    _Operation("get /threads/{id}", "get_thread", "Get one thread.", (200, ThreadView), errors=(404,)),
    _Operation(f"get {_OPEN_PATH}", "health", "Check that the server is up.", (200, HealthBody)),
)

_READ = (404, 409)
_INSPECTION_OPERATIONS = (
    _Operation(
        "get /team",
        "get_team",
        "Get the team: its agents, tools, edges, parts and likely mistakes.",
        (200, TeamDescription),
        errors=(),
    ),
    _Operation(
        "get /runs/{id}/log",
        "read_log",
        "Read events of a run's log.",
        (200, LogPage),
        None,
        (*_READ, 422),
        _LOG_PARAMETERS,
        result="Events, compressed if the client accepts gzip.",
    ),
    _Operation(
        "get /runs/{id}/reads",
        "list_requests",
        "List the recorded model requests of a run.",
        (200, RequestList),
        errors=_READ,
    ),
    _Operation("get /runs/{id}/reads/{key}", "get_request", _REQUEST_DESCRIPTION, (200, RequestView), errors=_READ),
    _Operation(
        "get /runs/{id}/export",
        "export_run",
        "Export a run: its log, requests and team.",
        (200, ExportedRun),
        errors=_READ,
    ),
    _Operation("get /runs/{id}/test", "get_test", _TEST_DESCRIPTION, (200, RecordedTest), errors=_READ),
    _Operation("post /runs/{id}/fork", "fork_run", _FORK_DESCRIPTION, (201, RunDetail), ForkBody),
    _Operation(
        "post /runs/{id}/replay",
        "replay_run",
        _REPLAY_DESCRIPTION,
        (200, ReplayVerdict),
        errors=_READ,
        result="The verdict.",
    ),
    _Operation(
        "get /runs/{id}/compare/{other}",
        "compare_runs",
        "Compare two runs: where they differ, and their ends.",
        (200, Comparison),
        errors=_READ,
        result="The comparison.",
    ),
)


def _paths(operations: Sequence[_Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        method, path = operation.endpoint.split()
        names = [name for name in _PATH_PARAMETERS if f"{{{name}}}" in path]
        given = [{**_parameter(name, "path", _PATH_PARAMETERS[name]), "required": True} for name in names]
        paths.setdefault(path, {"parameters": given} if given else {})[method] = operation.to_openapi()
    return paths


def _stream_responses(*, is_endless: bool) -> dict[str, Any]:
    data = {"type": "string", "contentMediaType": "application/json"}
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
    frame = {"type": "object", "properties": fields, "required": ["event", "data"]}
    responses: dict[str, Any] = {
        "200": {"description": "The events.", "content": {"text/event-stream": {"schema": frame}}}
    }
    if not is_endless:
        responses["204"] = {"description": "The run has stopped, and there are no further events."}
    return responses


def _content(kind: type) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}}
