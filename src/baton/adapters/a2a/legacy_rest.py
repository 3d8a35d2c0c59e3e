"""The door for plain HTTP of version 0.3, whose messages are those of an older schema."""

import base64
import json
from typing import TYPE_CHECKING, Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import types as v03
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from a2a.server.context import ServerCallContext
from a2a.utils.errors import InvalidParamsError, InvalidRequestError, VersionNotSupportedError
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from pydantic import ValidationError

from .entrance import A2ARequestGuard, version_of
from .legacy import LegacyTranslator, as_json, compat_of
from .rest import endpoint, failure_text
from .sse import streamed
from .telling import Update

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_UNREADABLE = (ParseError, ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class LegacyRESTBinding:
    """Reads requests, has them translated and answered, and writes what comes back."""

    def __init__(self, legacy: LegacyTranslator, entrance: A2ARequestGuard) -> None:
        self._legacy = legacy
        self._entrance = entrance

    def routes(self) -> "list[BaseRoute]":
        """The addresses, for an app of Starlette."""
        from starlette.routing import Route

        one, push = "/v1/tasks/{id}", "/v1/tasks/{id}/pushNotificationConfigs"
        doors: list[tuple[str, Any, list[str]]] = [
            ("/v1/message:send", self._send, ["POST"]),
            ("/v1/message:stream", self._stream, ["POST"]),
            (f"{one}:cancel", self._cancel, ["POST"]),
            (f"{one}:subscribe", self._subscribe, ["GET", "POST"]),
            (f"{push}/{{push_id}}", self._get_push, ["GET"]),
            (f"{push}/{{push_id}}", self._delete_push, ["DELETE"]),
            (push, self._create_push, ["POST"]),
            (push, self._list_push, ["GET"]),
            (one, self._get, ["GET"]),
            ("/v1/card", self._card, ["GET"]),
            ("/agent/authenticatedExtendedCard", self._card, ["GET"]),
        ]
        return [Route(path, endpoint(self._admitted, work), methods=methods) for path, work, methods in doors]

    async def _admitted(self, request: "Request") -> ServerCallContext:
        spoken = version_of(request)
        if not spoken.startswith("0."):
            raise VersionNotSupportedError(message=f"version `{spoken[:20]}` is not spoken at this address; 0.3 is")
        context = await self._entrance.admitted(request)
        self._legacy.check(request, context)
        return context

    async def _send(self, request: "Request", context: ServerCallContext) -> "Response":
        wanted = v03.SendMessageRequest(id="", params=await self._said(request))
        return _json(ToProto.task_or_message(await self._legacy.send(wanted, context)))

    async def _stream(self, request: "Request", context: ServerCallContext) -> "Response":
        said = await self._said(request)
        updates = self._legacy.updates("message/stream", as_json(said), context)
        return await streamed(updates, _text, failure_text)

    async def _subscribe(self, request: "Request", context: ServerCallContext) -> "Response":
        updates = self._legacy.updates("tasks/resubscribe", {"id": request.path_params["id"]}, context)
        return await streamed(updates, _text, failure_text)

    async def _cancel(self, request: "Request", context: ServerCallContext) -> "Response":
        which = v03.TaskIdParams(id=request.path_params["id"])
        return _json(
            ToProto.task(await self._legacy.on_cancel_task(v03.CancelTaskRequest(id="", params=which), context))
        )

    async def _get(self, request: "Request", context: ServerCallContext) -> "Response":
        length = request.query_params.get("historyLength") or None
        try:
            which = v03.TaskQueryParams(id=request.path_params["id"], history_length=int(length) if length else None)
        except ValueError:
            raise InvalidParamsError(message="`historyLength` must be a whole number") from None
        return _json(ToProto.task(await self._legacy.on_get_task(v03.GetTaskRequest(id="", params=which), context)))

    async def _create_push(self, request: "Request", context: ServerCallContext) -> "Response":
        body = await self._entrance.body(request)
        given = _parsed(body, old.CreateTaskPushNotificationConfigRequest())
        if not given.HasField("config"):
            # The schema has the configuration as the whole body; the official SDK has it as a part of one.
            given.config.CopyFrom(_parsed(body, old.TaskPushNotificationConfig()))
        given.parent = f"tasks/{request.path_params['id']}"
        try:
            which = FromProto.task_push_notification_config_request(given)
        except _UNREADABLE:
            raise InvalidParamsError(message="the body is no push configuration") from None
        which.push_notification_config.id = which.push_notification_config.id or given.config_id or None
        wanted = v03.SetTaskPushNotificationConfigRequest(id="", params=which)
        made = await self._legacy.on_create_task_push_notification_config(wanted, context)
        return _json(ToProto.task_push_notification_config(made))

    async def _get_push(self, request: "Request", context: ServerCallContext) -> "Response":
        which = v03.GetTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )
        wanted = v03.GetTaskPushNotificationConfigRequest(id="", params=which)
        return _json(ToProto.task_push_notification_config(await self._legacy.push_config(wanted, context)))

    async def _list_push(self, request: "Request", context: ServerCallContext) -> "Response":
        which = v03.ListTaskPushNotificationConfigParams(id=request.path_params["id"])
        wanted = v03.ListTaskPushNotificationConfigRequest(id="", params=which)
        kept = await self._legacy.on_list_task_push_notification_configs(wanted, context)
        page = old.ListTaskPushNotificationConfigResponse(
            configs=[ToProto.task_push_notification_config(each) for each in kept]
        )
        return _json(page)

    async def _delete_push(self, request: "Request", context: ServerCallContext) -> "Response":
        which = v03.DeleteTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )
        wanted = v03.DeleteTaskPushNotificationConfigRequest(id="", params=which)
        await self._legacy.on_delete_task_push_notification_config(wanted, context)
        return _plain({})

    async def _card(self, request: "Request", context: ServerCallContext) -> "Response":
        wanted = v03.GetAuthenticatedExtendedCardRequest(id="")
        return _plain(as_json(await self._legacy.on_get_extended_agent_card(wanted, context)))

    async def _said(self, request: "Request") -> v03.MessageSendParams:
        given = _parsed(await self._entrance.body(request), old.SendMessageRequest())
        _settle_files(given.request.content)
        try:
            return FromProto.message_send_params(given)
        except _UNREADABLE:
            raise InvalidParamsError(message="the body is no message with its configuration") from None


def _parsed(body: bytes, message: Any) -> Any:
    try:
        return Parse(body, message, ignore_unknown_fields=True)
    except _UNREADABLE:
        raise InvalidRequestError(message="the body is not the JSON that this address takes") from None


def _settle_files(parts: Any) -> None:
    """Have all files as the SDK has them: it puts text in base64 where the schema has the bytes themselves."""
    for part in parts:
        raw: bytes = part.file.file_with_bytes if part.WhichOneof("part") == "file" else b""
        try:
            base64.b64decode(raw, validate=True)
        except ValueError:
            part.file.file_with_bytes = base64.b64encode(raw)


def _json(message: Any) -> "Response":
    return _plain(MessageToDict(message))


def _plain(content: Any) -> "Response":
    from starlette.responses import JSONResponse

    return JSONResponse(content)


def _text(update: Update) -> str:
    return json.dumps(MessageToDict(ToProto.stream_response(compat_of(update))), ensure_ascii=False)
