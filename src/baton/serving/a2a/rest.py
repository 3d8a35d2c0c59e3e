"""The door for plain HTTP: an address for each thing, and the method of HTTP for what to do with it."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, InvalidRequestError
from a2a.utils.proto_utils import parse_params, to_stream_response
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message as ProtoMessage

from ..http.sse import streamed
from .handler import A2ARequestGuard, A2ARequestHandler, RequestRefusedError
from .projection import Update, page_as_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_logger = logging.getLogger("baton.a2a")


class RESTBinding:
    """Reads requests, has the desk answer them, and writes what it says."""

    def __init__(self, desk: A2ARequestHandler, entrance: A2ARequestGuard) -> None:
        self._desk = desk
        self._entrance = entrance

    def routes(self) -> "list[BaseRoute]":
        """The addresses, for an app of Starlette."""
        from starlette.routing import Route

        one, push = "/tasks/{id}", "/tasks/{id}/pushNotificationConfigs"
        return [
            Route("/message:send", self._door(self._send), methods=["POST"]),
            Route("/message:stream", self._door(self._stream), methods=["POST"]),
            Route(f"{one}:cancel", self._door(self._cancel), methods=["POST"]),
            Route(f"{one}:subscribe", self._door(self._subscribe), methods=["GET", "POST"]),
            Route(f"{push}/{{push_id}}", self._door(self._get_push), methods=["GET"]),
            Route(f"{push}/{{push_id}}", self._door(self._delete_push), methods=["DELETE"]),
            Route(push, self._door(self._create_push), methods=["POST"]),
            Route(push, self._door(self._list_push), methods=["GET"]),
            Route(one, self._door(self._get), methods=["GET"]),
            Route("/tasks", self._door(self._list), methods=["GET"]),
            Route("/extendedAgentCard", self._door(self._card), methods=["GET"]),
        ]

    def _door(
        self, work: "Callable[[Request, ServerCallContext], Awaitable[Response]]"
    ) -> "Callable[[Request], Awaitable[Response]]":
        return endpoint(self._admitted, work)

    async def _admitted(self, request: "Request") -> ServerCallContext:
        context = await self._entrance.admitted(request)
        self._entrance.check_version(request, context)
        return context

    async def _send(self, request: "Request", context: ServerCallContext) -> "Response":
        params = await self._parsed(request, pb.SendMessageRequest())
        given = await self._desk.on_message_send(params, context)
        is_task = isinstance(given, pb.Task)
        return _json(pb.SendMessageResponse(task=given) if is_task else pb.SendMessageResponse(message=given))

    async def _stream(self, request: "Request", context: ServerCallContext) -> "Response":
        params = await self._parsed(request, pb.SendMessageRequest())
        return await streamed(self._desk.on_message_send_stream(params, context), _text, failure_text)

    async def _subscribe(self, request: "Request", context: ServerCallContext) -> "Response":
        wanted = pb.SubscribeToTaskRequest(id=request.path_params["id"])
        return await streamed(self._desk.on_subscribe_to_task(wanted, context), _text, failure_text)

    async def _cancel(self, request: "Request", context: ServerCallContext) -> "Response":
        return _json(await self._desk.on_cancel_task(pb.CancelTaskRequest(id=request.path_params["id"]), context))

    async def _get(self, request: "Request", context: ServerCallContext) -> "Response":
        params = _asked(request, pb.GetTaskRequest())
        params.id = request.path_params["id"]
        return _json(await self._desk.on_get_task(params, context))

    async def _list(self, request: "Request", context: ServerCallContext) -> "Response":
        params = _asked(request, pb.ListTasksRequest())
        return _plain(page_as_json(await self._desk.on_list_tasks(params, context)))

    async def _create_push(self, request: "Request", context: ServerCallContext) -> "Response":
        params = await self._parsed(request, pb.TaskPushNotificationConfig())
        params.task_id = request.path_params["id"]
        return _json(await self._desk.on_create_task_push_notification_config(params, context))

    async def _get_push(self, request: "Request", context: ServerCallContext) -> "Response":
        wanted = pb.GetTaskPushNotificationConfigRequest(
            task_id=request.path_params["id"], id=request.path_params["push_id"]
        )
        return _json(await self._desk.on_get_task_push_notification_config(wanted, context))

    async def _list_push(self, request: "Request", context: ServerCallContext) -> "Response":
        params = _asked(request, pb.ListTaskPushNotificationConfigsRequest())
        params.task_id = request.path_params["id"]
        return _json(await self._desk.on_list_task_push_notification_configs(params, context))

    async def _delete_push(self, request: "Request", context: ServerCallContext) -> "Response":
        wanted = pb.DeleteTaskPushNotificationConfigRequest(
            task_id=request.path_params["id"], id=request.path_params["push_id"]
        )
        await self._desk.on_delete_task_push_notification_config(wanted, context)
        return _plain({})

    async def _card(self, request: "Request", context: ServerCallContext) -> "Response":
        return _json(await self._desk.on_get_extended_agent_card(pb.GetExtendedAgentCardRequest(), context))

    async def _parsed(self, request: "Request", message: Any) -> Any:
        body = await self._entrance.body(request)
        try:
            return Parse(body, message, ignore_unknown_fields=True)
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError):
            told = f"the body is not the JSON of a {message.DESCRIPTOR.name}"
            raise InvalidRequestError(message=told) from None


def endpoint(
    admit: "Callable[[Request], Awaitable[ServerCallContext]]",
    work: "Callable[[Request, ServerCallContext], Awaitable[Response]]",
) -> "Callable[[Request], Awaitable[Response]]":
    """What answers at an address: what is admitted is worked on, and whatever goes wrong is told as an error."""

    async def answer(request: "Request") -> "Response":
        try:
            return await work(request, await admit(request))
        except RequestRefusedError as refused:
            return refusal(refused.error, status=refused.status, headers=refused.headers)
        except A2AError as error:
            return refusal(error)
        except Exception:  # A fault of ours: the caller learns that there is one, the log which.
            _logger.exception("a request could not be answered")
            return refusal(InternalError())

    return answer


def refusal(error: A2AError, *, status: int | None = None, headers: dict[str, str] | None = None) -> "Response":
    """An error as this transport tells it."""
    from starlette.responses import JSONResponse

    payload = build_rest_error_payload(error)
    if status is not None:
        payload["error"]["code"] = status
    return JSONResponse(payload, status_code=payload["error"]["code"], headers=headers)


def _asked(request: "Request", message: Any) -> Any:
    try:
        parse_params(request.query_params, message)
    except (ParseError, ValueError, TypeError):
        raise InvalidParamsError(message=f"the query is not that of a {message.DESCRIPTOR.name}") from None
    return message


def _json(message: ProtoMessage | None) -> "Response":
    return _plain(MessageToDict(message) if message is not None else {})


def _plain(content: Any) -> "Response":
    from starlette.responses import JSONResponse

    return JSONResponse(content, media_type=A2A_JSON_MEDIA_TYPE)


def _text(update: Update) -> str:
    return json.dumps(MessageToDict(to_stream_response(update)), ensure_ascii=False)


def failure_text(error: Exception) -> str:
    """What a stream says when it breaks off."""
    if not isinstance(error, A2AError):
        _logger.error("a stream broke off", exc_info=error)
        error = InternalError()
    return json.dumps(build_rest_error_payload(error))
