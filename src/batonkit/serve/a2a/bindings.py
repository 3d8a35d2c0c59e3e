"""The HTTP bindings: JSON-RPC, with the method in the body, and REST, with operations as paths."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from a2a.server.context import ServerCallContext
from a2a.utils import errors
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.error_handlers import build_error_details, build_rest_error_payload
from a2a.utils.proto_utils import parse_params, to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, compile_path

from ..http.sse import single_event_response, stream_response
from . import legacy as v03
from .handler import (
    OPERATIONS,
    PARSE_ERRORS,
    A2ARequestGuard,
    A2ARequestHandler,
    encode_update,
    parse_body,
    requested_version,
    to_a2a_error,
    to_json,
)
from .projection import Update

_Id: TypeAlias = str | int | None
_RESTRoute: TypeAlias = tuple[str, str, str]
"""The HTTP methods, the path and the operation of a route."""
_PUSH = "/tasks/{task_id}/pushNotificationConfigs"
# The parameters of a path are fields of the operation's parameters.
_ROUTES: Sequence[_RESTRoute] = (
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
_LEGACY_PUSH = "/v1/tasks/{id}/pushNotificationConfigs"
_LEGACY_ROUTES: Sequence[_RESTRoute] = (
    ("POST", "/v1/message:send", "message/send"),
    ("POST", "/v1/message:stream", "message/stream"),
    ("POST", "/v1/tasks/{id}:cancel", "tasks/cancel"),
    ("GET POST", "/v1/tasks/{id}:subscribe", "tasks/resubscribe"),
    ("GET", f"{_LEGACY_PUSH}/{{pushNotificationConfigId}}", f"{v03.PUSH}/get"),
    ("DELETE", f"{_LEGACY_PUSH}/{{pushNotificationConfigId}}", f"{v03.PUSH}/delete"),
    ("POST", _LEGACY_PUSH, f"{v03.PUSH}/set"),
    ("GET", _LEGACY_PUSH, f"{v03.PUSH}/list"),
    ("GET", "/v1/tasks/{id}", "tasks/get"),
    ("GET", "/v1/card", v03.CARD),
    ("GET", "/agent/authenticatedExtendedCard", v03.CARD),
)


@dataclass(frozen=True)
class HTTPBindings:
    """Parses requests, dispatches them to the request handler and encodes the results."""

    handler: A2ARequestHandler
    guard: A2ARequestGuard
    legacy: v03.LegacyTranslator | None

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the bindings."""
        routes: list[BaseRoute] = [Route("/", self._handle_call, methods=["POST"])]
        if self.legacy is not None:
            admit = partial(self._admit_legacy, self.legacy)
            handle = partial(self._handle_legacy, self.legacy)
            routes += _make_routes(_LEGACY_ROUTES, admit, handle)
        return [*routes, *_make_routes(_ROUTES, self.guard.admit_current, self._handle)]

    async def _handle_call(self, request: Request) -> Response:
        """Return the response to a JSON-RPC call; every failure becomes an error response."""
        id: _Id = None
        try:
            context = await self.guard.admit(request)
            call = _parse_call(await self.guard.read_body(request))
            id = _call_id(call)
            _validate_call(call)
            method = str(call["method"])
            if self.legacy is not None and self.legacy.supports(method, requested_version(request)):
                return await self._dispatch_legacy(self.legacy, request, context, id, call)
            return await self._dispatch(request, context, id, method, call.get("params"))
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            reported = to_a2a_error(error)
            return JSONResponse(
                _error(id, reported.error), status_code=reported.status or 200, headers=reported.headers
            )

    async def _dispatch(
        self, request: Request, context: ServerCallContext, id: _Id, method: str, params: Any
    ) -> Response:
        if method not in OPERATIONS:
            raise errors.MethodNotFoundError(f"there is no method `{method[:80]}`")
        self.guard.check_version(request, context)
        operation = OPERATIONS[method]
        parsed = _parse_params(params, operation.params())
        result = getattr(self.handler, operation.handler)(parsed, context)
        if operation.is_stream:
            return await _stream(id, result, lambda update: MessageToDict(to_stream_response(update)))
        return JSONResponse(_reply(id, to_json(parsed, await result)))

    async def _dispatch_legacy(
        self,
        legacy: v03.LegacyTranslator,
        request: Request,
        context: ServerCallContext,
        id: _Id,
        call: dict[str, Any],
    ) -> Response:
        """Dispatch a call of version 0.3, where a streaming method reports its errors as an event."""
        method = str(call["method"])
        params = call.get("params")
        legacy.check(request, context)
        if method not in legacy.streams:
            return JSONResponse(_reply(id, v03.legacy_json(await legacy.call(method, params, context))))
        updates = legacy.updates(method, params, context)
        try:
            return await _stream(id, updates, lambda update: v03.legacy_json(v03.to_legacy_update(update)))
        except errors.A2AError as error:
            return single_event_response(json.dumps(_error(id, error)))

    async def _handle(
        self, name: str, fields: Mapping[str, str], request: Request, context: ServerCallContext
    ) -> Response:
        operation = OPERATIONS[name]
        params = operation.params()
        if name in _WITH_BODY:
            params = parse_body(await self.guard.read_body(request), params)
        elif name in _WITH_QUERY:
            params = _parse_query(request, params)
        for field, value in fields.items():
            setattr(params, field, value)
        result = getattr(self.handler, operation.handler)(params, context)
        if operation.is_stream:
            return await stream_response(result, encode_update, _encode_error)
        content: Any = to_json(params, await result) or {}
        return JSONResponse(content, media_type=_accepted_type(request), headers={"Vary": "Accept"})

    async def _admit_legacy(self, legacy: v03.LegacyTranslator, request: Request) -> ServerCallContext:
        version = requested_version(request)
        if not version.startswith("0."):
            raise errors.VersionNotSupportedError(f"version `{version[:20]}` is not supported at this URL; use 0.3")
        context = await self.guard.admit(request)
        legacy.check(request, context)
        return context

    async def _handle_legacy(
        self,
        legacy: v03.LegacyTranslator,
        method: str,
        fields: Mapping[str, str],
        request: Request,
        context: ServerCallContext,
    ) -> Response:
        params: Any = fields
        if method.startswith("message/"):
            params = v03.message_params(await self.guard.read_body(request))
        elif method == f"{v03.PUSH}/set":
            params = v03.push_params(await self.guard.read_body(request), fields["id"])
        elif method == "tasks/get":
            params = {**fields, **v03.task_params(request.query_params)}
        if method in legacy.streams:
            return await stream_response(legacy.updates(method, params, context), v03.encode_rest_update, _encode_error)
        return JSONResponse(v03.to_rest(method, await legacy.call(method, params, context)))


async def _stream(id: _Id, updates: AsyncGenerator[Update], to_result: Callable[[Update], Any]) -> Response:
    return await stream_response(
        updates,
        lambda update: json.dumps(_reply(id, to_result(update)), ensure_ascii=False),
        lambda error: json.dumps(_error(id, to_a2a_error(error).error)),
    )


def _parse_call(body: bytes) -> dict[str, Any]:
    try:
        call: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise errors.JSONParseError("the body is not JSON") from None
    if not isinstance(call, dict):
        raise errors.InvalidRequestError("a call must be one JSON object; batches are not supported")
    return cast("dict[str, Any]", call)


def _call_id(call: dict[str, Any]) -> _Id:
    id = call.get("id")
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _validate_call(call: dict[str, Any]) -> None:
    if call.get("jsonrpc") != "2.0":
        raise errors.InvalidRequestError('`jsonrpc` must be "2.0"')
    if call.get("id") is not None and _call_id(call) is None:
        raise errors.InvalidRequestError("`id` must be a string or an integer")
    if not isinstance(call.get("method"), str) or not call["method"]:
        raise errors.InvalidRequestError("`method` must be a string")
    if not isinstance(call.get("params", {}), dict | list | type(None)):
        raise errors.InvalidRequestError("`params` must be an object")


def _parse_params(params: Any, message: ProtoMessage) -> ProtoMessage:
    if params is not None and not isinstance(params, dict):
        raise errors.InvalidParamsError("`params` must be an object")
    try:
        return ParseDict(cast("dict[str, Any]", params or {}), message, ignore_unknown_fields=True)
    except PARSE_ERRORS:
        raise errors.InvalidParamsError(f"`params` is not a valid {message.DESCRIPTOR.name}") from None


def _reply(id: _Id, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: _Id, error: errors.A2AError) -> dict[str, Any]:
    code = errors.JSON_RPC_ERROR_CODE_MAP.get(type(error), -32603)
    body = {"code": code, "message": error.message, "data": build_error_details(error)}
    return {"jsonrpc": "2.0", "id": id, "error": body}


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


def _make_routes(
    routes: Sequence[_RESTRoute],
    admit: Callable[[Request], Awaitable[ServerCallContext]],
    handle: Callable[[str, Mapping[str, str], Request, ServerCallContext], Awaitable[Response]],
) -> list[BaseRoute]:
    """Return routes that admit a request, perform an operation and report failures."""

    async def endpoint(name: str, fields: Sequence[str], request: Request) -> Response:
        try:
            context = await admit(request)
            return await handle(name, {field: request.path_params[field] for field in fields}, request, context)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            reported = to_a2a_error(error)
            return to_error_response(reported.error, status=reported.status, headers=reported.headers)

    return [
        Route(path, partial(endpoint, name, [*compile_path(path)[2]]), methods=methods.split())
        for methods, path, name in routes
    ]


def to_error_response(
    error: errors.A2AError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an A2A error as a REST response."""
    payload = build_rest_error_payload(error)
    if status is not None:
        payload["error"]["code"] = status
    return JSONResponse(payload, status_code=payload["error"]["code"], headers=headers)


def _parse_query(request: Request, message: Any) -> Any:
    try:
        parse_params(request.query_params, message)
    except PARSE_ERRORS:
        raise errors.InvalidParamsError(f"the query is not a valid {message.DESCRIPTOR.name}") from None
    return message


def _encode_error(error: Exception) -> str:
    return json.dumps(build_rest_error_payload(to_a2a_error(error).error))
