"""The OpenAPI document, generated from the types of the bodies."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from ...events import Event, Origin, UnknownEvent, types
from ...stores import RUN_STATUSES
from ...version import __version__
from ..http import Auth
from .schemas import (
    ID,
    MAX_PAGE_SIZE,
    AnswersBody,
    CancelBody,
    ErrorBody,
    HealthBody,
    RunDetail,
    RunPage,
    StartRunBody,
    ThreadView,
)

_BODIES = (StartRunBody, AnswersBody, CancelBody, RunDetail, RunPage, ThreadView, ErrorBody, HealthBody)
_EVENT_TYPES = tuple(
    kind
    for kind in types.__dict__.values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, UnknownEvent)
)
"""The event types that a log can contain."""
_ERRORS = {
    400: "The body is not JSON, or is incomplete.",
    401: "Authentication is required and missing or invalid.",
    403: "Without authentication, the server accepts requests from its own machine only.",
    404: "The run or thread does not exist, or belongs to another owner.",
    409: "The state of the run or of its thread does not allow the operation.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    422: "The body or a parameter is invalid; the message says where.",
    503: "The store is unavailable.",
}
_STREAM_DESCRIPTION = (
    "Server-sent events. Events of the log have their number as `id`, their type as `event` and the event as JSON in "
    "`data` (see the schema `Event`); deltas (TextDelta, ToolCallDelta, ReasoningDelta, ProgressDelta, CustomDelta) "
    "have no `id`. Comments are heartbeats. The stream ends when the run stops."
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
    events = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in _EVENT_TYPES]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Baton",
            "version": __version__,
            "description": "Start runs of a team of agents, stream their events and answer their interrupts.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**components, "Event": {"oneOf": events, "discriminator": {"propertyName": "type"}}},
        },
    }


def _schema_hook(kind: type) -> dict[str, Any]:
    if kind is Origin:
        items: list[dict[str, Any]] = [{"type": "string"}, {"type": "string"}, {"type": ["string", "null"]}]
        return {
            "type": "array",
            "prefixItems": items,
            "description": "The activation of the event: its id, its agent and its parent activation.",
        }
    raise NotImplementedError(kind)


def _paths() -> dict[str, Any]:
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": ID, "maxLength": 128}}
    with_id = {"parameters": [id]}
    answers = _operation("answer_run", "Answer open interrupts and resume the run.", {202: RunDetail}, body=AnswersBody)
    resume = _operation("resume_run", "Resume a failed or cancelled run.", {202: RunDetail}, errors=(404, 409))
    cancel = _operation(
        "cancel_run",
        "Cancel a run, in whichever process it is driven.",
        {200: RunDetail},
        body=CancelBody,
        needs_body=False,
    )
    return {
        "/runs": {
            "get": _operation(
                "list_runs",
                "List your runs, the newest first.",
                {200: RunPage},
                parameters=_list_parameters(),
                errors=(422,),
            ),
            "post": _operation(
                "create_run", "Start a run. It continues when clients disconnect.", {201: RunDetail}, body=StartRunBody
            ),
        },
        "/runs/{id}": {**with_id, "get": _operation("get_run", "Get one run.", {200: RunDetail}, errors=(404,))},
        "/runs/{id}/events": {**with_id, "get": _event_stream()},
        "/runs/{id}/answers": {**with_id, "post": answers},
        "/runs/{id}/resume": {**with_id, "post": resume},
        "/runs/{id}/cancel": {**with_id, "post": cancel},
        "/threads/{id}": {
            **with_id,
            "get": _operation("get_thread", "Get one thread.", {200: ThreadView}, errors=(404,)),
        },
        "/health": {
            "get": {
                **_operation("health", "Check that the server is up.", {200: HealthBody}, is_open=True),
                "security": [],
            }
        },
    }


def _list_parameters() -> list[dict[str, Any]]:
    statuses = {"type": "array", "items": {"enum": [*RUN_STATUSES]}}
    return [
        {"name": "status", "in": "query", "schema": statuses},
        {"name": "thread", "in": "query", "schema": {"type": "string", "pattern": ID, "maxLength": 128}},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}},
        {
            "name": "after",
            "in": "query",
            "schema": {"type": "string"},
            "description": "The `next` cursor of the previous page.",
        },
    ]


def _event_stream() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": 10**15}
    operation = _operation("stream_run_events", _STREAM_DESCRIPTION, {}, errors=(404, 422))
    operation["parameters"] = [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "schema": number,
            "description": "The number of the last event that you received.",
        },
        {
            "name": "after",
            "in": "query",
            "schema": number,
            "description": "Alternative to Last-Event-ID for clients that cannot set headers.",
        },
    ]
    data = {"type": "string", "contentMediaType": "application/json"}
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
    frame = {"type": "object", "properties": fields, "required": ["event", "data"]}
    stream = {"description": "The events.", "content": {"text/event-stream": {"schema": frame}}}
    ended = {"description": "The run has stopped, and there are no further events."}
    operation["responses"] = {"200": stream, "204": ended, **operation["responses"]}
    return operation


def _operation(
    id: str,
    summary: str,
    responses: dict[int, Any],
    *,
    body: Any = None,
    needs_body: bool = True,
    parameters: list[dict[str, Any]] | None = None,
    errors: tuple[int, ...] = (400, 404, 409, 413, 415, 422),
    is_open: bool = False,
) -> dict[str, Any]:
    statuses = () if is_open else tuple(sorted({401, 403, 503, *errors}))
    operation: dict[str, Any] = {
        "operationId": id,
        "summary": summary.partition(". ")[0],
        "description": summary,
        "responses": {
            **{str(status): _content("The current state.", kind) for status, kind in responses.items()},
            **{str(status): _content(_ERRORS[status], ErrorBody) for status in statuses},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {**_content("", body), "required": needs_body}
        del operation["requestBody"]["description"]
    return operation


def _content(description: str, kind: type) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
