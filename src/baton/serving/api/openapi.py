"""The OpenAPI document, generated from the types of the bodies."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from ...events import Event, Origin, UnknownEvent, types
from ...stores import RUN_STATUSES
from ...version import __version__
from ..http.auth import Auth
from .schemas import (
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

_BODIES = (StartRunBody, AnswersBody, ResumeBody, CancelBody, RunDetail, RunPage, ThreadView, ErrorBody, HealthBody)
_EVENT_TYPES = tuple(
    kind
    for kind in types.__dict__.values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, UnknownEvent)
)
"""The event types that a log can contain."""
_ERRORS = {
    400: "The body is not JSON, or is incomplete.",
    401: "Authentication is required and missing or invalid.",
    403: "Without authentication: the request is from another machine. Or it is from a page of another site.",
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
_OPTIONAL_BODIES = (CancelBody, ResumeBody)
_STREAM_DESCRIPTION = (
    "Server-sent events. Events of the log have their number as `id`, their type as `event` and the event as JSON in "
    "`data` (see the schema `Event`); deltas (TextDelta, ToolCallDelta, ReasoningDelta, ResponseRestarted, "
    "ProgressDelta, CustomDelta) have no `id`. ResponseRestarted discards the deltas of the response so far. "
    "Comments are heartbeats. The stream ends when the run stops; if the server is stopped first, the stream ends "
    "with a `retry` field."
)


def openapi_document(root: str = "", auth: Sequence[Auth] = ()) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        root: The path under which the API is mounted.
        auth: The accepted authentication schemes.
    """
    document: dict[str, Any] = {**_base_document(), "servers": [{"url": root or "/"}]}
    if auth:
        document["security"] = [{scheme.name: []} for scheme in auth]
        document["components"] = {
            **document["components"],
            "securitySchemes": {scheme.name: dict(scheme.openapi_scheme()) for scheme in auth},
        }
    return document


@cache
def _base_document() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        (*_BODIES, *_EVENT_TYPES), schema_hook=_schema_hook, ref_template="#/components/schemas/{name}"
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
        "paths": _paths(),
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
_LIST_PARAMETERS = [
    _parameter("status", "query", {"type": "array", "items": {"enum": [*RUN_STATUSES]}}),
    _parameter("thread", "query", _ID_SCHEMA),
    _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}),
    _parameter("after", "query", {"type": "string"}, "The `next` cursor of the previous page."),
]
_KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255}
_KEY_DESCRIPTION = "Of several requests with the same key, the first one starts a run, and all return it."
_START_PARAMETERS = [_parameter("Idempotency-Key", "header", _KEY_SCHEMA, _KEY_DESCRIPTION)]
_STREAM_PARAMETERS = [
    _parameter("Last-Event-ID", "header", _NUMBER, "The number of the last event that you received."),
    _parameter("after", "query", _NUMBER, "Alternative to Last-Event-ID for clients that cannot set headers."),
]


class _Operation(Struct, frozen=True):
    endpoint: str
    """The HTTP method and the path."""
    id: str
    description: str
    response: tuple[int, type] | None
    """The status and the body of a success; None for the event stream."""
    body: type | None = None
    errors: tuple[int, ...] = _POST
    parameters: Sequence[Mapping[str, Any]] = ()

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
        responses = _stream_responses() if self.response is None else {}
        if self.response is not None:
            status, kind = self.response
            responses[str(status)] = {"description": "The current state.", **_content(kind)}
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
    _Operation("get /threads/{id}", "get_thread", "Get one thread.", (200, ThreadView), errors=(404,)),
    _Operation(f"get {_OPEN_PATH}", "health", "Check that the server is up.", (200, HealthBody)),
)


def _paths() -> dict[str, Any]:
    id = {**_parameter("id", "path", _ID_SCHEMA), "required": True}
    paths: dict[str, Any] = {}
    for operation in _OPERATIONS:
        method, path = operation.endpoint.split()
        paths.setdefault(path, {"parameters": [id]} if "{id}" in path else {})[method] = operation.to_openapi()
    return paths


def _stream_responses() -> dict[str, Any]:
    data = {"type": "string", "contentMediaType": "application/json"}
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
    frame = {"type": "object", "properties": fields, "required": ["event", "data"]}
    return {
        "200": {"description": "The events.", "content": {"text/event-stream": {"schema": frame}}},
        "204": {"description": "The run has stopped, and there are no further events."},
    }


def _content(kind: type) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}}
