"""The JSON-RPC binding: one URL, with the method in the body."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

from a2a.server.context import ServerCallContext
from a2a.utils import errors
from a2a.utils.error_handlers import build_error_details
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..http.sse import single_event_response, stream_response
from .handler import (
    OPERATIONS,
    PARSE_ERRORS,
    A2ARequestGuard,
    A2ARequestHandler,
    requested_version,
    to_a2a_error,
    to_json,
)
from .legacy import LegacyTranslator, legacy_json, to_legacy_update
from .projection import Update


class JSONRPCBinding:
    """Parses calls, dispatches them to the request handler and encodes the results.

    Args:
        handler: The request handler.
        guard: The checks that every request passes.
        legacy: The translator for calls of version 0.3, if that version is served.
    """

    def __init__(self, handler: A2ARequestHandler, guard: A2ARequestGuard, legacy: LegacyTranslator | None) -> None:
        self._handler = handler
        self._guard = guard
        self._legacy = legacy

    async def handle(self, request: Request) -> Response:
        """Return the response to a request; every failure becomes an error response.

        Args:
            request: The incoming request.
        """
        id: str | int | None = None
        try:
            context = await self._guard.admit(request)
            call = _parse_call(await self._guard.read_body(request))
            id = _call_id(call)
            _validate_call(call)
            method = str(call["method"])
            if self._legacy is not None and self._legacy.supports(method, requested_version(request)):
                return await self._dispatch_legacy(self._legacy, request, context, id, call)
            return await self._dispatch(request, context, id, method, call.get("params"))
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            reported, status, headers = to_a2a_error(error)
            return JSONResponse(_error(id, reported), status_code=status or 200, headers=headers)

    async def _dispatch(
        self, request: Request, context: ServerCallContext, id: str | int | None, method: str, params: Any
    ) -> Response:
        if method not in OPERATIONS:
            raise errors.MethodNotFoundError(message=f"there is no method `{method[:80]}`")
        self._guard.check_version(request, context)
        operation = OPERATIONS[method]
        parsed = _parse_params(params, operation.params())
        result = getattr(self._handler, operation.handler)(parsed, context)
        if operation.is_stream:
            return await _stream(id, result, lambda update: MessageToDict(to_stream_response(update)))
        return JSONResponse(_reply(id, to_json(parsed, await result)))

    async def _dispatch_legacy(
        self,
        legacy: LegacyTranslator,
        request: Request,
        context: ServerCallContext,
        id: str | int | None,
        call: dict[str, Any],
    ) -> Response:
        """Dispatch a call of version 0.3, where a streaming method reports its errors as an event."""
        method, params = str(call["method"]), call.get("params")
        legacy.check(request, context)
        if method not in legacy.streams:
            return JSONResponse(_reply(id, legacy_json(await legacy.call(method, params, context))))
        updates = legacy.updates(method, params, context)
        try:
            return await _stream(id, updates, lambda update: legacy_json(to_legacy_update(update)))
        except errors.A2AError as error:
            return single_event_response(json.dumps(_error(id, error)))


async def _stream(
    id: str | int | None, updates: AsyncGenerator[Update], to_result: Callable[[Update], Any]
) -> Response:
    return await stream_response(
        updates,
        lambda update: json.dumps(_reply(id, to_result(update)), ensure_ascii=False),
        lambda error: json.dumps(_error(id, to_a2a_error(error)[0])),
    )


def _parse_call(body: bytes) -> dict[str, Any]:
    try:
        call: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise errors.JSONParseError(message="the body is not JSON") from None
    if not isinstance(call, dict):
        raise errors.InvalidRequestError(message="a call must be one JSON object; batches are not supported")
    return cast("dict[str, Any]", call)


def _call_id(call: dict[str, Any]) -> str | int | None:
    id = call.get("id")
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _validate_call(call: dict[str, Any]) -> None:
    if call.get("jsonrpc") != "2.0":
        raise errors.InvalidRequestError(message='`jsonrpc` must be "2.0"')
    if call.get("id") is not None and _call_id(call) is None:
        raise errors.InvalidRequestError(message="`id` must be a string or an integer")
    if not isinstance(call.get("method"), str) or not call["method"]:
        raise errors.InvalidRequestError(message="`method` must be a string")
    if not isinstance(call.get("params", {}), dict | list | type(None)):
        raise errors.InvalidRequestError(message="`params` must be an object")


def _parse_params(params: Any, message: ProtoMessage) -> ProtoMessage:
    if params is not None and not isinstance(params, dict):
        raise errors.InvalidParamsError(message="`params` must be an object")
    try:
        return ParseDict(cast("dict[str, Any]", params or {}), message, ignore_unknown_fields=True)
    except PARSE_ERRORS:
        raise errors.InvalidParamsError(message=f"`params` is not a valid {message.DESCRIPTOR.name}") from None


def _reply(id: str | int | None, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: str | int | None, error: errors.A2AError) -> dict[str, Any]:
    code = errors.JSON_RPC_ERROR_CODE_MAP.get(type(error), -32603)
    body = {"code": code, "message": error.message, "data": build_error_details(error)}
    return {"jsonrpc": "2.0", "id": id, "error": body}
