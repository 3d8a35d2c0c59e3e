"""Protocol version 0.3: translation to version 1.0 with the SDK's converters, and the REST binding of 0.3.

Requests are validated here, before anything is started.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

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
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ...errors import quote_names
from ..http.sse import stream_response
from .handler import A2ARequestGuard, A2ARequestHandler, requested_version, set_response_version
from .projection import Update
from .rest import encode_error, make_endpoint

_PART_KINDS = ("text", "file", "data")
_MAX_PATH = 4
_MAX_HISTORY_LENGTH = 2**31 - 1
_METHODS: dict[str, tuple[type[BaseModel], type[BaseModel], str]] = {
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
_CARD_METHOD = "agent/getAuthenticatedExtendedCard"


class LegacyTranslator(RequestHandler03):
    """The operations of version 0.3, for both bindings.

    Args:
        handler: The request handler for version 1.0.
        guard: The checks that every request passes.
    """

    streams = ("message/stream", "tasks/resubscribe")

    def __init__(self, handler: A2ARequestHandler, guard: A2ARequestGuard) -> None:
        super().__init__(handler)
        self._handler = handler
        self._guard = guard

    def supports(self, method: str, version: str) -> bool:
        """Return whether a JSON-RPC call is one of version 0.3.

        Args:
            method: The method of the call.
            version: The version that the request names.
        """
        return version.startswith("0.") and (method in _METHODS or method == _CARD_METHOD)

    def check(self, request: Request, context: ServerCallContext) -> None:
        """Raise unless the client supports all required extensions.

        Args:
            request: The incoming request.
            context: The context of the call.
        """
        set_response_version(context, PROTOCOL_VERSION_0_3)
        context.requested_extensions |= get_requested_extensions(request.headers.getlist(LEGACY_HTTP_EXTENSION_HEADER))
        self._guard.check_extensions(context)

    async def dispatch(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """Call a method that does not stream and return its result as JSON.

        Args:
            method: The JSON-RPC method.
            params: Its parameters.
            context: The context of the call.
        """
        if method == _CARD_METHOD:
            return await self.extended_card(context)
        return _to_json(await getattr(self, _METHODS[method][2])(_parse_request(method, params), context))

    async def extended_card(self, context: ServerCallContext) -> Any:
        """Return the extended agent card as JSON.

        Args:
            context: The context of the call.
        """
        request = v03.GetAuthenticatedExtendedCardRequest(id="")
        return _to_json(await self.on_get_extended_agent_card(request, context))

    async def send(self, request: v03.SendMessageRequest, context: ServerCallContext) -> v03.Task | v03.Message:
        """Send a message and wait for the resulting task or message.

        Args:
            request: The request.
            context: The context of the call.
        """
        result = await self._handler.on_message_send(_to_core_request(request), context)
        if isinstance(result, Task):
            return conversions.to_compat_task(result)
        return conversions.to_compat_message(result)

    async def on_get_task(self, request: v03.GetTaskRequest, context: ServerCallContext) -> v03.Task:
        """Return a task. Unlike the SDK's method, it distinguishes a history length of 0 from none.

        Args:
            request: The request.
            context: The context of the call.
        """
        length = request.params.history_length
        if length is not None and not 0 <= length <= _MAX_HISTORY_LENGTH:
            raise InvalidParamsError(message=f"`historyLength` must be between 0 and {_MAX_HISTORY_LENGTH}")
        task = await self._handler.on_get_task(GetTaskRequest(id=request.params.id, history_length=length), context)
        assert task is not None
        return conversions.to_compat_task(task)

    async def push_config(
        self, request: v03.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> v03.TaskPushNotificationConfig:
        """Return the webhook with the requested id, or the newest one without an id.

        Args:
            request: The request.
            context: The context of the call.
        """
        if getattr(request.params, "push_notification_config_id", None):
            return await self.on_get_task_push_notification_config(request, context)
        params = v03.ListTaskPushNotificationConfigParams(id=request.params.id)
        list_request = v03.ListTaskPushNotificationConfigRequest(id="", params=params)
        configs = await self.on_list_task_push_notification_configs(list_request, context)
        if not configs:
            raise TaskNotFoundError(message=f"task `{request.params.id}` has no push configuration")
        return configs[-1]

    def updates(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """Call a streaming method and return its updates, in the form of version 1.0.

        Args:
            method: The JSON-RPC method.
            params: Its parameters.
            context: The context of the call.
        """
        request: Any = _parse_request(method, params)
        if method == "message/stream":
            return self._handler.on_message_send_stream(_to_core_request(request), context)
        return self._handler.on_subscribe_to_task(conversions.to_core_subscribe_to_task_request(request), context)


def _parse_request(method: str, params: Any) -> Any:
    request_type, params_type, _ = _METHODS[method]
    _normalize_parts(params)
    try:
        return request_type(id="", params=params_type.model_validate(params))
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(message=f"`params` is invalid for `{method}`{_error_paths(error)}") from None


def _to_core_request(request: v03.SendMessageRequest) -> SendMessageRequest:
    try:
        converted = conversions.to_core_send_message_request(request)
        configuration = request.params.configuration
        if configuration is not None and configuration.history_length is not None:
            converted.configuration.history_length = configuration.history_length
        return converted
    except (ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidParamsError(message="the message's parts or metadata are invalid") from None


def _to_compat_update(update: Update) -> Any:
    return conversions.to_compat_stream_response(to_stream_response(update), "").result


def _to_json(model: Any) -> Any:
    if isinstance(model, list):
        return [_to_json(item) for item in cast("list[Any]", model)]
    return model if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def jsonrpc_update(update: Update) -> Any:
    """Return an update as the JSON-RPC result of version 0.3.

    Args:
        update: The update.
    """
    return _to_json(_to_compat_update(update))


def _normalize_parts(params: Any) -> None:
    """Raise unless every part has a `kind`, because the SDK accepts any object with a text.

    Data that is a list, which 1.0 allows and some clients of 0.3 send, is marked as the SDK marks it.
    """
    message: Any = cast("Mapping[str, Any]", params).get("message") if isinstance(params, dict) else None
    parts: Any = cast("Mapping[str, Any]", message).get("parts") if isinstance(message, dict) else None
    for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if fields.get("kind") not in _PART_KINDS:
            raise InvalidParamsError(message=f"the `kind` of a message part must be one of: {quote_names(_PART_KINDS)}")
        if isinstance(fields.get("data"), list):
            fields["data"] = {"value": fields["data"]}
            fields["metadata"] = {"data_part_compat": True}


def _error_paths(error: Exception) -> str:
    # Only field names are reported, never the values that the client sent.
    if not isinstance(error, ValidationError):
        return ""
    paths = [".".join(map(str, item["loc"][:_MAX_PATH])) for item in error.errors(include_input=False)[:5]]
    return f"; see {quote_names(sorted({path for path in paths if path.isascii()}))}"


_PARSE_ERRORS = (ParseError, ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class LegacyRESTBinding:
    """The REST binding of version 0.3, which uses an older protobuf schema.

    Args:
        legacy: The operations.
        guard: The checks that every request passes.
    """

    def __init__(self, legacy: LegacyTranslator, guard: A2ARequestGuard) -> None:
        self._legacy = legacy
        self._guard = guard

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the binding."""
        one, push = "/v1/tasks/{id}", "/v1/tasks/{id}/pushNotificationConfigs"
        operations: list[tuple[str, Any, list[str]]] = [
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
        return [
            Route(path, make_endpoint(self._admit, operation), methods=methods)
            for path, operation, methods in operations
        ]

    async def _admit(self, request: Request) -> ServerCallContext:
        version = requested_version(request)
        if not version.startswith("0."):
            raise VersionNotSupportedError(message=f"version `{version[:20]}` is not supported at this URL; use 0.3")
        context = await self._guard.admit(request)
        self._legacy.check(request, context)
        return context

    async def _send(self, request: Request, context: ServerCallContext) -> Response:
        params = v03.SendMessageRequest(id="", params=await self._parse_message(request))
        return _json(ToProto.task_or_message(await self._legacy.send(params, context)))

    async def _stream(self, request: Request, context: ServerCallContext) -> Response:
        message = await self._parse_message(request)
        updates = self._legacy.updates("message/stream", _to_json(message), context)
        return await stream_response(updates, _encode_update, encode_error)

    async def _subscribe(self, request: Request, context: ServerCallContext) -> Response:
        updates = self._legacy.updates("tasks/resubscribe", {"id": request.path_params["id"]}, context)
        return await stream_response(updates, _encode_update, encode_error)

    async def _cancel(self, request: Request, context: ServerCallContext) -> Response:
        params = v03.TaskIdParams(id=request.path_params["id"])
        return _json(
            ToProto.task(await self._legacy.on_cancel_task(v03.CancelTaskRequest(id="", params=params), context))
        )

    async def _get(self, request: Request, context: ServerCallContext) -> Response:
        length = request.query_params.get("historyLength") or None
        try:
            params = v03.TaskQueryParams(id=request.path_params["id"], history_length=int(length) if length else None)
        except ValueError:
            raise InvalidParamsError(message="`historyLength` must be a whole number") from None
        return _json(ToProto.task(await self._legacy.on_get_task(v03.GetTaskRequest(id="", params=params), context)))

    async def _create_push(self, request: Request, context: ServerCallContext) -> Response:
        body = await self._guard.read_body(request)
        parsed = _parse(body, old.CreateTaskPushNotificationConfigRequest())
        if not parsed.HasField("config"):
            # In the schema the configuration is the whole body; the official SDK nests it.
            parsed.config.CopyFrom(_parse(body, old.TaskPushNotificationConfig()))
        parsed.parent = f"tasks/{request.path_params['id']}"
        try:
            params = FromProto.task_push_notification_config_request(parsed)
        except _PARSE_ERRORS:
            raise InvalidParamsError(message="the body is not a valid push configuration") from None
        params.push_notification_config.id = params.push_notification_config.id or parsed.config_id or None
        set_request = v03.SetTaskPushNotificationConfigRequest(id="", params=params)
        created = await self._legacy.on_create_task_push_notification_config(set_request, context)
        return _json(ToProto.task_push_notification_config(created))

    async def _get_push(self, request: Request, context: ServerCallContext) -> Response:
        params = v03.GetTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )
        get_request = v03.GetTaskPushNotificationConfigRequest(id="", params=params)
        return _json(ToProto.task_push_notification_config(await self._legacy.push_config(get_request, context)))

    async def _list_push(self, request: Request, context: ServerCallContext) -> Response:
        params = v03.ListTaskPushNotificationConfigParams(id=request.path_params["id"])
        list_request = v03.ListTaskPushNotificationConfigRequest(id="", params=params)
        configs = await self._legacy.on_list_task_push_notification_configs(list_request, context)
        page = old.ListTaskPushNotificationConfigResponse(
            configs=[ToProto.task_push_notification_config(config) for config in configs]
        )
        return _json(page)

    async def _delete_push(self, request: Request, context: ServerCallContext) -> Response:
        params = v03.DeleteTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )
        delete_request = v03.DeleteTaskPushNotificationConfigRequest(id="", params=params)
        await self._legacy.on_delete_task_push_notification_config(delete_request, context)
        return JSONResponse({})

    async def _card(self, request: Request, context: ServerCallContext) -> Response:
        return JSONResponse(await self._legacy.extended_card(context))

    async def _parse_message(self, request: Request) -> v03.MessageSendParams:
        parsed = _parse(await self._guard.read_body(request), old.SendMessageRequest())
        _normalize_files(parsed.request.content)
        try:
            return FromProto.message_send_params(parsed)
        except _PARSE_ERRORS:
            raise InvalidParamsError(message="the body is not a valid message with its configuration") from None


def _parse(body: bytes, message: Any) -> Any:
    try:
        return Parse(body, message, ignore_unknown_fields=True)
    except _PARSE_ERRORS:
        raise InvalidRequestError(message="the body is not valid JSON for this URL") from None


def _normalize_files(parts: Any) -> None:
    # The schema has raw bytes where the SDK has base64 text.
    for part in parts:
        raw: bytes = part.file.file_with_bytes if part.WhichOneof("part") == "file" else b""
        try:
            base64.b64decode(raw, validate=True)
        except ValueError:
            part.file.file_with_bytes = base64.b64encode(raw)


def _json(message: Any) -> Response:
    return JSONResponse(MessageToDict(message))


def _encode_update(update: Update) -> str:
    return json.dumps(MessageToDict(ToProto.stream_response(_to_compat_update(update))), ensure_ascii=False)
