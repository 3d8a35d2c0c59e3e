"""The OpenAPI document, made from the same types that bodies are read and written with."""

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
    MOST_LISTED,
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
_FACTS = tuple(
    kind
    for kind in types.__dict__.values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, UnknownEvent)
)
"""Every kind of event that a log is made of."""
_PROBLEMS = {
    400: "The body is not JSON, or was cut off.",
    401: "The request does not say who it is from, in one of the ways that are asked for.",
    403: "Where nobody is asked for a name, the server is for its own machine only.",
    404: "There is no such run or thread, or it is somebody else's.",
    409: "The run or its thread is not in a state in which this can be done.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "The body or a parameter does not fit; the message says where.",
    503: "The store cannot be reached.",
}
_EVENTS = (
    "Server-sent events. Those of the log have their number as `id`, their kind as `event` and the event as JSON in "
    "`data` (see the schema `Event`); what is only on its way (TextDelta, ToolCallDelta, ReasoningDelta, Progress, "
    "Custom) has no `id`. Comments are signs of life. The stream ends when the run stops."
)


def document(root: str = "", auth: Sequence[Auth] = ()) -> dict[str, Any]:
    """The document; `root` is the path under which the API is mounted, `auth` what callers are asked for there."""
    made: dict[str, Any] = {**_document(), "servers": [{"url": root or "/"}]}
    if auth:
        made["security"] = [{each.name: []} for each in auth]
        made["components"] = {
            **made["components"],
            "securitySchemes": {each.name: dict(each.openapi_scheme()) for each in auth},
        }
    return made


@cache
def _document() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        (*_BODIES, *_FACTS), schema_hook=_schema_of, ref_template="#/components/schemas/{name}"
    )
    events = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in _FACTS]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Baton",
            "version": __version__,
            "description": "Start runs of a team of agents, hear what happens in them, answer their questions.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**components, "Event": {"oneOf": events, "discriminator": {"propertyName": "type"}}},
        },
    }


def _schema_of(kind: type) -> dict[str, Any]:
    if kind is Origin:
        texts: list[dict[str, Any]] = [{"type": "string"}, {"type": "string"}, {"type": ["string", "null"]}]
        return {
            "type": "array",
            "prefixItems": texts,
            "description": "The activation it comes from: its id, its agent, and the activation before it.",
        }
    raise NotImplementedError(kind)


def _paths() -> dict[str, Any]:
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": ID, "maxLength": 128}}
    about_run = {"parameters": [id]}
    answers = _operation("answer_run", "Answer open questions; the run goes on.", {202: RunDetail}, body=AnswersBody)
    resume = _operation(
        "resume_run", "Go on with a run that failed or was cancelled.", {202: RunDetail}, problems=(404, 409)
    )
    cancel = _operation(
        "cancel_run", "Stop a run, wherever it is driven.", {200: RunDetail}, body=CancelBody, needs_body=False
    )
    return {
        "/runs": {
            "get": _operation(
                "list_runs", "Your runs, the newest first.", {200: RunPage}, parameters=_queries(), problems=(422,)
            ),
            "post": _operation(
                "create_run", "Begin a run. It goes on whoever listens.", {201: RunDetail}, body=StartRunBody
            ),
        },
        "/runs/{id}": {**about_run, "get": _operation("get_run", "One run.", {200: RunDetail}, problems=(404,))},
        "/runs/{id}/events": {**about_run, "get": _listening()},
        "/runs/{id}/answers": {**about_run, "post": answers},
        "/runs/{id}/resume": {**about_run, "post": resume},
        "/runs/{id}/cancel": {**about_run, "post": cancel},
        "/threads/{id}": {
            **about_run,
            "get": _operation("get_thread", "One conversation.", {200: ThreadView}, problems=(404,)),
        },
        "/health": {
            "get": {
                **_operation("health", "That the server is there.", {200: HealthBody}, is_open=True),
                "security": [],
            }
        },
    }


def _queries() -> list[dict[str, Any]]:
    statuses = {"type": "array", "items": {"enum": [*RUN_STATUSES]}}
    return [
        {"name": "status", "in": "query", "schema": statuses},
        {"name": "thread", "in": "query", "schema": {"type": "string", "pattern": ID, "maxLength": 128}},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED}},
        {"name": "after", "in": "query", "schema": {"type": "string"}, "description": "The `next` of the page before."},
    ]


def _listening() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": 10**15}
    operation = _operation("listen_to_run", _EVENTS, {}, problems=(404, 422))
    operation["parameters"] = [
        {"name": "Last-Event-ID", "in": "header", "schema": number, "description": "The last number you have heard."},
        {"name": "after", "in": "query", "schema": number, "description": "The same, if you cannot send headers."},
    ]
    told = {"type": "string", "contentMediaType": "application/json"}
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "data": told}
    each = {"type": "object", "properties": fields, "required": ["event", "data"]}
    stream = {"description": "The events.", "content": {"text/event-stream": {"schema": each}}}
    over = {"description": "The run has stopped, and you have heard everything."}
    operation["responses"] = {"200": stream, "204": over, **operation["responses"]}
    return operation


def _operation(
    id: str,
    summary: str,
    answers: dict[int, Any],
    *,
    body: Any = None,
    needs_body: bool = True,
    parameters: list[dict[str, Any]] | None = None,
    problems: tuple[int, ...] = (400, 404, 409, 413, 415, 422),
    is_open: bool = False,
) -> dict[str, Any]:
    told = () if is_open else tuple(sorted({401, 403, 503, *problems}))
    operation: dict[str, Any] = {
        "operationId": id,
        "summary": summary.partition(". ")[0],
        "description": summary,
        "responses": {
            **{str(status): _content("As it stands now.", kind) for status, kind in answers.items()},
            **{str(status): _content(_PROBLEMS[status], ErrorBody) for status in told},
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
