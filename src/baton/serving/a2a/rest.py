"""The REST binding: resources as URLs, operations as HTTP methods."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError
from a2a.utils.proto_utils import parse_params, to_stream_response
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..http.sse import stream_response
from .handler import A2ARequestGuard, A2ARequestHandler, to_a2a_error, to_response
from .projection import Update, page_to_dict

Operation = Callable[[Request, ServerCallContext], Awaitable[Response]]


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
        one, push = "/tasks/{id}", "/tasks/{id}/pushNotificationConfigs"
        return [
            Route("/message:send", self._endpoint(self._send), methods=["POST"]),
            Route("/message:stream", self._endpoint(self._stream), methods=["POST"]),
            Route(f"{one}:cancel", self._endpoint(self._cancel), methods=["POST"]),
            Route(f"{one}:subscribe", self._endpoint(self._subscribe), methods=["GET", "POST"]),
            Route(f"{push}/{{push_id}}", self._endpoint(self._get_push), methods=["GET"]),
            Route(f"{push}/{{push_id}}", self._endpoint(self._delete_push), methods=["DELETE"]),
            Route(push, self._endpoint(self._create_push), methods=["POST"]),
            Route(push, self._endpoint(self._list_push), methods=["GET"]),
            Route(one, self._endpoint(self._get), methods=["GET"]),
            Route("/tasks", self._endpoint(self._list), methods=["GET"]),
            Route("/extendedAgentCard", self._endpoint(self._card), methods=["GET"]),
        ]

    def _endpoint(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        return make_endpoint(self._admit, operation)

    async def _admit(self, request: Request) -> ServerCallContext:
        context = await self._guard.admit(request)
        self._guard.check_version(request, context)
        return context

    async def _send(self, request: Request, context: ServerCallContext) -> Response:
        params = await self._parse_body(request, pb.SendMessageRequest())
        return _json(to_response(params, await self._handler.on_message_send(params, context)))

    async def _stream(self, request: Request, context: ServerCallContext) -> Response:
        params = await self._parse_body(request, pb.SendMessageRequest())
        return await stream_response(
            self._handler.on_message_send_stream(params, context), _encode_update, encode_error
        )

    async def _subscribe(self, request: Request, context: ServerCallContext) -> Response:
        params = pb.SubscribeToTaskRequest(id=request.path_params["id"])
        return await stream_response(self._handler.on_subscribe_to_task(params, context), _encode_update, encode_error)

    async def _cancel(self, request: Request, context: ServerCallContext) -> Response:
        return _json(await self._handler.on_cancel_task(pb.CancelTaskRequest(id=request.path_params["id"]), context))

    async def _get(self, request: Request, context: ServerCallContext) -> Response:
        params = _parse_query(request, pb.GetTaskRequest())
        params.id = request.path_params["id"]
        return _json(await self._handler.on_get_task(params, context))

    async def _list(self, request: Request, context: ServerCallContext) -> Response:
        params = _parse_query(request, pb.ListTasksRequest())
        return _json_response(page_to_dict(await self._handler.on_list_tasks(params, context)))

    async def _create_push(self, request: Request, context: ServerCallContext) -> Response:
        params = await self._parse_body(request, pb.TaskPushNotificationConfig())
        params.task_id = request.path_params["id"]
        return _json(await self._handler.on_create_task_push_notification_config(params, context))

    async def _get_push(self, request: Request, context: ServerCallContext) -> Response:
        params = pb.GetTaskPushNotificationConfigRequest(
            task_id=request.path_params["id"], id=request.path_params["push_id"]
        )
        return _json(await self._handler.on_get_task_push_notification_config(params, context))

    async def _list_push(self, request: Request, context: ServerCallContext) -> Response:
        params = _parse_query(request, pb.ListTaskPushNotificationConfigsRequest())
        params.task_id = request.path_params["id"]
        return _json(await self._handler.on_list_task_push_notification_configs(params, context))

    async def _delete_push(self, request: Request, context: ServerCallContext) -> Response:
        params = pb.DeleteTaskPushNotificationConfigRequest(
            task_id=request.path_params["id"], id=request.path_params["push_id"]
        )
        await self._handler.on_delete_task_push_notification_config(params, context)
        return _json_response({})

    async def _card(self, request: Request, context: ServerCallContext) -> Response:
        return _json(await self._handler.on_get_extended_agent_card(pb.GetExtendedAgentCardRequest(), context))

    async def _parse_body(self, request: Request, message: Any) -> Any:
        body = await self._guard.read_body(request)
        try:
            return Parse(body, message, ignore_unknown_fields=True)
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError):
            raise InvalidRequestError(message=f"the body is not a valid {message.DESCRIPTOR.name}") from None


def make_endpoint(
    admit: Callable[[Request], Awaitable[ServerCallContext]], operation: Operation
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that admits a request, performs an operation and reports failures.

    Args:
        admit: Checks the request and returns its call context.
        operation: Performs the operation.
    """

    async def endpoint(request: Request) -> Response:
        try:
            return await operation(request, await admit(request))
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            reported, status, headers = to_a2a_error(error)
            return to_error_response(reported, status=status, headers=headers)

    return endpoint


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


def _parse_query(request: Request, message: Any) -> Any:
    try:
        parse_params(request.query_params, message)
    except (ParseError, ValueError, TypeError):
        raise InvalidParamsError(message=f"the query is not a valid {message.DESCRIPTOR.name}") from None
    return message


def _json(message: ProtoMessage | None) -> Response:
    return _json_response(MessageToDict(message) if message is not None else {})


def _json_response(content: Any) -> Response:
    return JSONResponse(content, media_type=A2A_JSON_MEDIA_TYPE)


def _encode_update(update: Update) -> str:
    return json.dumps(MessageToDict(to_stream_response(update)), ensure_ascii=False)


def encode_error(error: Exception) -> str:
    """Encode an error that ends a stream early.

    Args:
        error: The error.
    """
    return json.dumps(build_rest_error_payload(to_a2a_error(error)[0]))
