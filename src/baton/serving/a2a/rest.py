"""The REST binding: resources as URLs, operations as HTTP methods."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError
from a2a.utils.proto_utils import parse_params
from google.protobuf.json_format import Parse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, compile_path

from ..http.sse import stream_response
from .handler import OPERATIONS, PARSE_ERRORS, A2ARequestGuard, A2ARequestHandler, encode_update, to_a2a_error, to_json

RESTRoute = tuple[str, str, str]
"""The HTTP methods, the path and the operation of a route."""
_PUSH = "/tasks/{task_id}/pushNotificationConfigs"
# The parameters of a path are fields of the operation's parameters.
_ROUTES: Sequence[RESTRoute] = (
    ("POST", "/message:send", "SendMessage"),
    ("POST", "/message:stream", "SendStreamingMessage"),
    ("POST", "/tasks/{id}:cancel", "CancelTask"),
    ("GET POST", "/tasks/{id}:subscribe", "SubscribeToTask"),
    ("GET", f"{_PUSH}/{{id}}", "GetTaskPushNotificationConfig"),
    ("DELETE", f"{_PUSH}/{{id}}", "DeleteTaskPushNotificationConfig"),
    ("POST", _PUSH, "CreateTaskPushNotificationConfig"),
    ("GET", _PUSH, "ListTaskPushNotificationConfigs"),
    ("GET", "/tasks/{id}", "GetTask"),
    ("GET", "/tasks", "ListTasks"),
    ("GET", "/extendedAgentCard", "GetExtendedAgentCard"),
)
_WITH_BODY = ("SendMessage", "SendStreamingMessage", "CreateTaskPushNotificationConfig")
_WITH_QUERY = ("GetTask", "ListTasks", "ListTaskPushNotificationConfigs")


class RESTBinding:
    """Parses requests, passes them to the request handler and encodes the results.

    Args:
        handler: The request handler.
        guard: The checks that every request passes.
    """

    def __init__(self, handler: A2ARequestHandler, guard: A2ARequestGuard) -> None:
        self._handler = handler
        self._guard = guard

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the binding."""
        return make_routes(_ROUTES, self._guard.admit_current, self._handle)

    async def _handle(
        self, name: str, fields: Mapping[str, str], request: Request, context: ServerCallContext
    ) -> Response:
        operation = OPERATIONS[name]
        params = operation.params()
        if name in _WITH_BODY:
            params = parse_body(await self._guard.read_body(request), params)
        elif name in _WITH_QUERY:
            params = _parse_query(request, params)
        for field, value in fields.items():
            setattr(params, field, value)
        result = getattr(self._handler, operation.handler)(params, context)
        if operation.is_stream:
            return await stream_response(result, encode_update, encode_error)
        content: Any = to_json(params, await result) or {}
        return JSONResponse(content, media_type=_accepted_type(request), headers={"Vary": "Accept"})


def _accepted_type(request: Request) -> str:
    """Return `application/json` if the client prefers it to the media type of A2A."""
    weights: dict[str, float] = {}
    for item in request.headers.get("accept", "").split(","):
        kind, *parameters = [piece.strip().lower() for piece in item.split(";")]
        weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        try:
            weights[kind] = float(weight)
        except ValueError:
            weights[kind] = 0.0
    json_weight = weights.get("application/json", 0.0)
    any_weight = weights.get("application/*", weights.get("*/*", 0.0))
    return "application/json" if json_weight > weights.get(A2A_JSON_MEDIA_TYPE, any_weight) else A2A_JSON_MEDIA_TYPE


def make_routes(
    routes: Sequence[RESTRoute],
    admit: Callable[[Request], Awaitable[ServerCallContext]],
    handle: Callable[[str, Mapping[str, str], Request, ServerCallContext], Awaitable[Response]],
) -> list[BaseRoute]:
    """Return routes that admit a request, perform an operation and report failures.

    Args:
        routes: The routes.
        admit: Checks the request and returns its call context.
        handle: Performs an operation with the path's own parameters, by name.
    """

    async def endpoint(name: str, fields: Sequence[str], request: Request) -> Response:
        try:
            context = await admit(request)
            return await handle(name, {field: request.path_params[field] for field in fields}, request, context)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            reported, status, headers = to_a2a_error(error)
            return to_error_response(reported, status=status, headers=headers)

    return [
        Route(path, partial(endpoint, name, [*compile_path(path)[2]]), methods=methods.split())
        for methods, path, name in routes
    ]


def to_error_response(
    error: A2AError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an A2A error as a REST response.

    Args:
        error: The error.
        status: The HTTP status, if it differs from that of the error.
        headers: Additional headers.
    """
    payload = build_rest_error_payload(error)
    if status is not None:
        payload["error"]["code"] = status
    return JSONResponse(payload, status_code=payload["error"]["code"], headers=headers)


def parse_body(body: bytes, message: Any) -> Any:
    """Parse a body as a protobuf message.

    Args:
        body: The JSON body.
        message: The message to fill.

    Raises:
        InvalidRequestError: The body does not match the message.
    """
    try:
        return Parse(body, message, ignore_unknown_fields=True)
    except PARSE_ERRORS:
        raise InvalidRequestError(message=f"the body is not a valid {message.DESCRIPTOR.name}") from None


def _parse_query(request: Request, message: Any) -> Any:
    try:
        parse_params(request.query_params, message)
    except PARSE_ERRORS:
        raise InvalidParamsError(message=f"the query is not a valid {message.DESCRIPTOR.name}") from None
    return message


def encode_error(error: Exception) -> str:
    """Encode an error that ends a stream early.

    Args:
        error: The error.
    """
    return json.dumps(build_rest_error_payload(to_a2a_error(error)[0]))
