"""Protocol version 0.3: translation to version 1.0 with the SDK's converters.

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
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ...errors import quote_names
from ...log.events import payload_fields
from .handler import PARSE_ERRORS, RESPONSE_VERSION, A2ARequestGuard, A2ARequestHandler, parse_body
from .projection import Update

_PART_KINDS = ("text", "file", "data")
_MAX_PATH = 4
_MAX_HISTORY_LENGTH = 2**31 - 1
PUSH = "tasks/pushNotificationConfig"
CARD = "agent/getAuthenticatedExtendedCard"
_METHODS: dict[str, tuple[type[BaseModel], str]] = {
    "message/send": (v03.SendMessageRequest, "send"),
    "message/stream": (v03.SendMessageRequest, ""),
    "tasks/get": (v03.GetTaskRequest, "on_get_task"),
    "tasks/cancel": (v03.CancelTaskRequest, "on_cancel_task"),
    "tasks/resubscribe": (v03.TaskResubscriptionRequest, ""),
    f"{PUSH}/set": (v03.SetTaskPushNotificationConfigRequest, "on_create_task_push_notification_config"),
    f"{PUSH}/get": (v03.GetTaskPushNotificationConfigRequest, "push_config"),
    f"{PUSH}/list": (v03.ListTaskPushNotificationConfigRequest, "on_list_task_push_notification_configs"),
    f"{PUSH}/delete": (v03.DeleteTaskPushNotificationConfigRequest, "on_delete_task_push_notification_config"),
    CARD: (v03.GetAuthenticatedExtendedCardRequest, "on_get_extended_agent_card"),
}


class LegacyTranslator(RequestHandler03):
    """The operations of version 0.3, for both bindings."""

    streams = ("message/stream", "tasks/resubscribe")

    def __init__(self, handler: A2ARequestHandler, guard: A2ARequestGuard) -> None:
        super().__init__(handler)
        self._guard = guard

    def supports(self, method: str, version: str) -> bool:
        """Return whether a JSON-RPC call is one of version 0.3."""
        return version.startswith("0.") and method in _METHODS

    def check(self, request: Request, context: ServerCallContext) -> None:
        """Raise unless the client supports all required extensions."""
        context.state[RESPONSE_VERSION] = PROTOCOL_VERSION_0_3
        context.requested_extensions |= get_requested_extensions(request.headers.getlist(LEGACY_HTTP_EXTENSION_HEADER))
        self._guard.check_extensions(context)

    async def call(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """Call a method that does not stream and return its result."""
        return await getattr(self, _METHODS[method][1])(_parse_request(method, params), context)

    async def send(self, request: v03.SendMessageRequest, context: ServerCallContext) -> v03.Task | v03.Message:
        """Send a message and wait for the resulting task or message."""
        result = await self.request_handler.on_message_send(_to_core_request(request), context)
        if isinstance(result, Task):
            return conversions.to_compat_task(result)
        return conversions.to_compat_message(result)

    async def on_get_task(self, request: v03.GetTaskRequest, context: ServerCallContext) -> v03.Task:
        """Return a task. Unlike the SDK's method, it distinguishes a history length of 0 from none."""
        length = request.params.history_length
        if length is not None and not 0 <= length <= _MAX_HISTORY_LENGTH:
            raise InvalidParamsError(f"`historyLength` must be between 0 and {_MAX_HISTORY_LENGTH}")
        task = await self.request_handler.on_get_task(
            GetTaskRequest(id=request.params.id, history_length=length), context
        )
        assert task is not None
        return conversions.to_compat_task(task)

    async def push_config(
        self, request: v03.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> v03.TaskPushNotificationConfig:
        """Return the webhook with the requested id, or the newest one without an id."""
        if getattr(request.params, "push_notification_config_id", None):
            return await self.on_get_task_push_notification_config(request, context)
        params = v03.ListTaskPushNotificationConfigParams(id=request.params.id)
        list_request = v03.ListTaskPushNotificationConfigRequest(id="", params=params)
        configs = await self.on_list_task_push_notification_configs(list_request, context)
        if not configs:
            raise TaskNotFoundError(f"task `{request.params.id}` has no push configuration")
        return configs[-1]

    def updates(self, method: str, params: Any, context: ServerCallContext) -> Any:
        """Call a streaming method and return its updates, in the form of version 1.0."""
        request: Any = _parse_request(method, params)
        if method == "message/stream":
            return self.request_handler.on_message_send_stream(_to_core_request(request), context)
        return self.request_handler.on_subscribe_to_task(
            conversions.to_core_subscribe_to_task_request(request), context
        )


def _parse_request(method: str, params: Any) -> Any:
    request_type = _METHODS[method][0]
    if method == CARD:
        return request_type(id="")
    _normalize_parts(params)
    try:
        return request_type.model_validate({"id": "", "params": params})
    except (ValidationError, RecursionError) as error:
        raise InvalidParamsError(f"`params` is invalid for `{method}`{_error_paths(error)}") from None


def _to_core_request(request: v03.SendMessageRequest) -> SendMessageRequest:
    try:
        converted = conversions.to_core_send_message_request(request)
        configuration = request.params.configuration
        if configuration is not None and configuration.history_length is not None:
            converted.configuration.history_length = configuration.history_length
        return converted
    except PARSE_ERRORS:
        raise InvalidParamsError("the message's parts or metadata are invalid") from None


def to_legacy_update(update: Update) -> Any:
    """Return an update in the form of version 0.3."""
    return conversions.to_compat_stream_response(to_stream_response(update), "").result


def legacy_json(model: Any) -> Any:
    """Return a result of version 0.3 as JSON."""
    if isinstance(model, list):
        return [legacy_json(item) for item in cast("list[Any]", model)]
    return model if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _normalize_parts(params: Any) -> None:
    """Raise unless every part has a `kind`, because the SDK accepts any object with a text.

    Data that is a list, which 1.0 allows and some clients of 0.3 send, is marked as the SDK marks it.
    """
    parts = payload_fields(payload_fields(params).get("message")).get("parts")
    for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
        fields = payload_fields(part)
        if fields.get("kind") not in _PART_KINDS:
            raise InvalidParamsError(f"the `kind` of a message part must be one of: {quote_names(_PART_KINDS)}")
        if isinstance(fields.get("data"), list):
            fields["data"] = {"value": fields["data"]}
            fields["metadata"] = {"data_part_compat": True}


def _error_paths(error: Exception) -> str:
    # Only field names are reported, never the values that the client sent.
    if not isinstance(error, ValidationError):
        return ""
    paths = [".".join(map(str, item["loc"][1 : _MAX_PATH + 1])) for item in error.errors(include_input=False)[:5]]
    return f"; see {quote_names(sorted({path for path in paths if path.isascii()}))}"


def message_params(body: bytes) -> Any:
    """Return the parameters of a REST request that sends a message."""
    parsed = parse_body(body, old.SendMessageRequest())
    if parsed.request.role == old.ROLE_UNSPECIFIED:
        raise InvalidParamsError("`message.role` must be ROLE_USER")
    _normalize_files(parsed.request.content)
    try:
        return legacy_json(FromProto.message_send_params(parsed))
    except PARSE_ERRORS:
        raise InvalidParamsError("the body is not a valid message with its configuration") from None


def task_params(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters in the query of a REST request for a task."""
    # The specification has the first name; the schema, and with it the conformance kit, the second.
    length = query.get("historyLength") or query.get("history_length")
    return {"historyLength": length} if length else {}


def push_params(body: bytes, task_id: str) -> Any:
    """Return the parameters of a REST request that adds a webhook."""
    parsed = parse_body(body, old.CreateTaskPushNotificationConfigRequest())
    if not parsed.HasField("config"):
        # In the schema the configuration is the whole body; the official SDK nests it.
        parsed.config.CopyFrom(parse_body(body, old.TaskPushNotificationConfig()))
    parsed.parent = f"tasks/{task_id}"
    config = parsed.config.push_notification_config
    if config.authentication == old.AuthenticationInfo():
        config.ClearField("authentication")
    try:
        params = FromProto.task_push_notification_config_request(parsed)
    except PARSE_ERRORS:
        raise InvalidParamsError("the body is not a valid push configuration") from None
    params.push_notification_config.id = params.push_notification_config.id or parsed.config_id or None
    return legacy_json(params)


def _normalize_files(parts: Any) -> None:
    # The schema has raw bytes where the SDK has base64 text.
    for part in parts:
        raw: bytes = part.file.file_with_bytes if part.WhichOneof("part") == "file" else b""
        try:
            base64.b64decode(raw, validate=True)
        except ValueError:
            part.file.file_with_bytes = base64.b64encode(raw)


def to_rest(method: str, result: Any) -> Any:
    """Return a result as JSON in the older schema; a card has the same JSON in both bindings."""
    if result is None:
        return {}
    if method == CARD:
        return legacy_json(result)
    if method == "message/send":
        return MessageToDict(ToProto.task_or_message(result))
    if isinstance(result, v03.Task):
        return MessageToDict(ToProto.task(result))
    if isinstance(result, list):
        configs = [ToProto.task_push_notification_config(config) for config in cast("list[Any]", result)]
        return MessageToDict(old.ListTaskPushNotificationConfigResponse(configs=configs))
    return MessageToDict(ToProto.task_push_notification_config(result))


def encode_rest_update(update: Update) -> str:
    """Encode an update as JSON in the older schema."""
    return json.dumps(MessageToDict(ToProto.stream_response(to_legacy_update(update))), ensure_ascii=False)
