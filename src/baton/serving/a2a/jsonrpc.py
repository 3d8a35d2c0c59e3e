"""The door for JSON-RPC: one address, the method in the body."""

import json
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, cast

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
)
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage

from ..http.sse import only_event, streamed
from .handler import METHODS, STREAMS, A2ARequestGuard, A2ARequestHandler, RequestRefusedError, as_response, version_of
from .legacy import LegacyTranslator, event_of
from .projection import Update, page_as_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_logger = logging.getLogger("baton.a2a")


class JSONRPCBinding:
    """Reads calls, has the desk answer them, and writes what it says."""

    def __init__(self, desk: A2ARequestHandler, entrance: A2ARequestGuard, legacy: LegacyTranslator | None) -> None:
        self._desk = desk
        self._entrance = entrance
        self._legacy = legacy

    async def answer(self, request: "Request") -> "Response":
        """The response to one request, whatever it is."""
        from starlette.responses import JSONResponse

        id: str | int | None = None
        try:
            context = await self._entrance.admitted(request)
            call = _call_in(await self._entrance.body(request))
            id = _id_of(call)
            _check(call)
            method = str(call["method"])
            if self._legacy is not None and self._legacy.speaks(method, version_of(request)):
                return await self._answered_as_before(self._legacy, request, context, id, call)
            return await self._dispatched(request, context, id, method, call.get("params"))
        except RequestRefusedError as refused:
            body = _error(id, refused.error)
            return JSONResponse(body, status_code=refused.status, headers=refused.headers)
        except A2AError as error:
            return JSONResponse(_error(id, error))
        except Exception:  # A fault of ours: the caller learns that there is one, the log which.
            _logger.exception("a JSON-RPC request could not be answered")
            return JSONResponse(_error(id, InternalError()))

    async def _dispatched(
        self, request: "Request", context: ServerCallContext, id: str | int | None, method: str, params: Any
    ) -> "Response":
        from starlette.responses import JSONResponse

        if method not in METHODS:
            raise MethodNotFoundError(message=f"there is no method `{method[:80]}`")
        self._entrance.check_version(request, context)
        kind, name = METHODS[method]
        wanted = _parsed(params, kind())
        work = getattr(self._desk, name)(wanted, context)
        if method in STREAMS:
            return await streamed(
                cast("AsyncGenerator[Update]", work),
                lambda update: _text(id, MessageToDict(to_stream_response(update))),
                lambda error: json.dumps(_error(id, _known(error))),
            )
        return JSONResponse(_reply(id, _result(wanted, await work)))

    async def _answered_as_before(
        self,
        legacy: LegacyTranslator,
        request: "Request",
        context: ServerCallContext,
        id: str | int | None,
        call: dict[str, Any],
    ) -> "Response":
        """The answer to a call of 0.3, where a stream says in itself that there is none."""
        from starlette.responses import JSONResponse

        method, params = str(call["method"]), call.get("params")
        legacy.check(request, context)
        if method not in legacy.streams:
            return JSONResponse(_reply(id, await legacy.answer(method, params, context)))
        updates = legacy.updates(method, params, context)
        try:
            return await streamed(updates, event_of(id), lambda error: json.dumps(_error(id, _known(error))))
        except A2AError as error:
            return only_event(json.dumps(_error(id, error)))


def _call_in(body: bytes) -> dict[str, Any]:
    try:
        call: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise JSONParseError(message="the body is not JSON") from None
    if not isinstance(call, dict):
        raise InvalidRequestError(message="a call is one JSON object; batches are not taken")
    return cast("dict[str, Any]", call)


def _id_of(call: dict[str, Any]) -> str | int | None:
    id = call.get("id")
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _check(call: dict[str, Any]) -> None:
    if call.get("jsonrpc") != "2.0":
        raise InvalidRequestError(message='`jsonrpc` must be "2.0"')
    if call.get("id") is not None and _id_of(call) is None:
        raise InvalidRequestError(message="`id` must be text or a whole number")
    if not isinstance(call.get("method"), str) or not call["method"]:
        raise InvalidRequestError(message="`method` must be text")
    if not isinstance(call.get("params", {}), dict | list | type(None)):
        raise InvalidRequestError(message="`params` must be an object")


def _parsed(params: Any, message: ProtoMessage) -> ProtoMessage:
    if params is not None and not isinstance(params, dict):
        raise InvalidParamsError(message="`params` must be an object")
    try:
        return ParseDict(cast("dict[str, Any]", params or {}), message, ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidParamsError(message=f"`params` are not the JSON of a {message.DESCRIPTOR.name}") from None


def _result(wanted: ProtoMessage, given: Any) -> Any:
    if given is None:
        return None
    if isinstance(given, pb.ListTasksResponse):
        return page_as_json(given)
    return MessageToDict(as_response(wanted, given))


def _reply(id: str | int | None, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: str | int | None, error: A2AError) -> dict[str, Any]:
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), -32603)
    told = {"code": code, "message": error.message, "data": build_error_details(error)}
    return {"jsonrpc": "2.0", "id": id, "error": told}


def _text(id: str | int | None, result: Any) -> str:
    return json.dumps(_reply(id, result), ensure_ascii=False)


def _known(error: Exception) -> A2AError:
    if isinstance(error, A2AError):
        return error
    _logger.error("a stream broke off", exc_info=error)
    return InternalError()
