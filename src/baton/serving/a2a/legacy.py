"""Version 0.3 beside 1.0: what callers say is translated, the desk answers, and its answer is translated back.

The SDK has the translation. What does not fit is refused here, in words of ours, before anything is done.

The door for plain HTTP of version 0.3, whose messages are those of an older schema.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.compat.v0_3.extension_headers import LEGACY_HTTP_EXTENSION_HEADER
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.extensions.common import get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import GetTaskRequest, SendMessageRequest, Task
from a2a.utils.constants import PROTOCOL_VERSION_0_3
from a2a.utils.errors import InvalidParamsError, InvalidRequestError, TaskNotFoundError, VersionNotSupportedError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from pydantic import BaseModel, ValidationError

from ...errors import quote_names
from ..http.sse import streamed
from .handler import A2ARequestGuard, A2ARequestHandler, note_version, version_of
from .projection import Update
from .rest import endpoint, failure_text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_PART_KINDS = ("text", "file", "data")
_DEEPEST_PLACE = 4
_LARGEST_LENGTH = 2**31 - 1
_READ: dict[str, tuple[type[BaseModel], type[BaseModel], str]] = {
    "message/send": (v03.SendMessageRequest, v03.MessageSendParams, "send"),
    "tasks/get": (v03.GetTaskRequest, v03.TaskQueryParams, "on_get_task"),
    "tasks/cancel": (v03.CancelTaskRequest, v03.TaskIdParams, "on_cancel_task"),
    "tasks/pushNotificationConfig/set": (
        v03.SetTaskPushNotificationConfigRequest,
        v03.TaskPushNotificationConfig,
        "on_create_task_push_notification_config",
    ),
    "tasks/pushNotificationConfig/get": (
        v03.GetTaskPushNotificationConfigRequest,
        v03.GetTaskPushNotificationConfigParams,
        "push_config",
    ),
    "tasks/pushNotificationConfig/list": (
        v03.ListTaskPushNotificationConfigRequest,
        v03.ListTaskPushNotificationConfigParams,
        "on_list_task_push_notification_configs",
    ),
    "tasks/pushNotificationConfig/delete": (
        v03.DeleteTaskPushNotificationConfigRequest,
        v03.DeleteTaskPushNotificationConfigParams,
        "on_delete_task_push_notification_config",
    ),
    "message/stream": (v03.SendMessageRequest, v03.MessageSendParams, ""),
    "tasks/resubscribe": (v03.TaskResubscriptionRequest, v03.TaskIdParams, ""),
}
_CARD = "agent/getAuthenticatedExtendedCard"


class LegacyTranslator(RequestHandler03):
    """The operations of 0.3, whichever door they come in by."""

    streams = ("message/stream", "tasks/resubscribe")

    def __init__(self, desk: A2ARequestHandler, entrance: A2ARequestGuard) -> None:
        super().__init__(desk)
        self._desk = desk
        self._entrance = entrance

    def speaks(self, method: str, version: str) -> bool:
        """Whether a call of JSON-RPC is one of 0.3."""
        return version.startswith("0.") and (method in _READ or method == _CARD)

    def check(self, request: "Request", context: ServerCallContext) -> None:
        """Raise unless the caller knows of the extensions there must be: in 0.3 their header has another name."""
        note_version(context, PROTOCOL_VERSION_0_3)
        context.requested_extensions |= get_requested_extensions(request.headers.getlist(LEGACY_HTTP_EXTENSION_HEADER))
        self._entrance.check_extensions(context)

    async def answer(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """What a method that does not stream gives, as JSON."""
        if method == _CARD:
            wanted = v03.GetAuthenticatedExtendedCardRequest(id="")
            return as_json(await self.on_get_extended_agent_card(wanted, context))
        return as_json(await getattr(self, _READ[method][2])(read(method, params), context))

    async def send(self, wanted: v03.SendMessageRequest, context: ServerCallContext) -> v03.Task | v03.Message:
        """Say something, and wait for what comes of it."""
        given = await self._desk.on_message_send(core_of(wanted), context)
        return conversions.to_compat_task(given) if isinstance(given, Task) else conversions.to_compat_message(given)

    async def on_get_task(self, request: v03.GetTaskRequest, context: ServerCallContext) -> v03.Task:
        """A task as it stands. The SDK would take a history of no length for one of any."""
        length = request.params.history_length
        if length is not None and not 0 <= length <= _LARGEST_LENGTH:
            raise InvalidParamsError(message=f"`historyLength` is between 0 and {_LARGEST_LENGTH}")
        task = await self._desk.on_get_task(GetTaskRequest(id=request.params.id, history_length=length), context)
        assert task is not None
        return conversions.to_compat_task(task)

    async def push_config(
        self, wanted: v03.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> v03.TaskPushNotificationConfig:
        """The webhook with the id that is asked for; the one that came last, if none is."""
        if getattr(wanted.params, "push_notification_config_id", None):
            return await self.on_get_task_push_notification_config(wanted, context)
        which = v03.ListTaskPushNotificationConfigParams(id=wanted.params.id)
        request = v03.ListTaskPushNotificationConfigRequest(id="", params=which)
        kept = await self.on_list_task_push_notification_configs(request, context)
        if not kept:
            raise TaskNotFoundError(message=f"task `{wanted.params.id}` has no push configuration")
        return kept[-1]

    def updates(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """What a method that streams gives: updates as the desk tells them."""
        wanted: Any = read(method, params)
        if method == "message/stream":
            return self._desk.on_message_send_stream(core_of(wanted), context)
        return self._desk.on_subscribe_to_task(conversions.to_core_subscribe_to_task_request(wanted), context)


def read(method: str, params: Any) -> Any:
    """The request that a method and its params are. Raises InvalidParamsError if they are none."""
    kind, form, _ = _READ[method]
    _settle_parts(params)
    try:
        return kind(id="", params=form.model_validate(params))
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(message=f"`params` are not what `{method}` takes{_places(error)}") from None


def core_of(wanted: v03.SendMessageRequest) -> SendMessageRequest:
    """A request to say something, as 1.0 has it."""
    try:
        made = conversions.to_core_send_message_request(wanted)
        given = wanted.params.configuration
        if given is not None and given.history_length is not None:
            made.configuration.history_length = given.history_length
        return made
    except (ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidParamsError(message="the parts or the metadata of the message cannot be read") from None


def compat_of(update: Update) -> Any:
    """An update, as 0.3 has it."""
    return conversions.to_compat_stream_response(to_stream_response(update), "").result


def as_json(given: Any) -> Any:
    """What 0.3 has for it, as JSON."""
    if isinstance(given, list):
        return [as_json(each) for each in cast("list[Any]", given)]
    return given if given is None else given.model_dump(mode="json", by_alias=True, exclude_none=True)


def event_of(id: str | int | None) -> Callable[[Update], str]:
    """How updates are written into the stream that answers the call with this id."""
    return lambda update: json.dumps(
        {"jsonrpc": "2.0", "id": id, "result": as_json(compat_of(update))}, ensure_ascii=False
    )


def _settle_parts(params: Any) -> None:
    """Raise unless every part says what it is: without it the SDK takes anything that has a text for one.

    Data that are no object, which 1.0 has and some who speak 0.3 send, are marked as the SDK marks them.
    """
    message: Any = cast("Mapping[str, Any]", params).get("message") if isinstance(params, dict) else None
    parts: Any = cast("Mapping[str, Any]", message).get("parts") if isinstance(message, dict) else None
    for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
        facts = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if facts.get("kind") not in _PART_KINDS:
            raise InvalidParamsError(message=f"a part of a message has a `kind`: {quote_names(_PART_KINDS)}")
        if isinstance(facts.get("data"), list):
            facts["data"] = {"value": facts["data"]}
            facts["metadata"] = {"data_part_compat": True}


def _places(error: Exception) -> str:
    """Where something does not fit, in names that the protocol has: what stands there is the caller's."""
    if not isinstance(error, ValidationError):
        return ""
    found = [".".join(map(str, each["loc"][:_DEEPEST_PLACE])) for each in error.errors(include_input=False)[:5]]
    return f"; see {quote_names(sorted({place for place in found if place.isascii()}))}"


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
