"""The transport-independent half of the A2A server: request checks, error mapping and the request handler."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2a.auth.user import UnauthenticatedUser, User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.input_mode_validator import validate_input_modes
from a2a.utils.proto_utils import to_stream_response, validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request

from ...errors import ShuttingDownError
from ..http.auth import Principal
from ..http.guard import RequestGuard, media_type
from ..http.http_errors import ServingError, to_serving_error
from .broadcast import TaskBroadcast, TaskSubscriber
from .projection import Update, page_to_dict
from .push import PushSubscriber
from .task_store import TaskService

_logger = logging.getLogger("baton.a2a")
RESPONSE_VERSION = "baton.version"
"""The key of a call's state that holds the protocol version of its response; 1.0 without it."""
_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")
PARSE_ERRORS = (ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The exceptions of protobuf's and the SDK's parsers for invalid messages."""
_JSON_TYPES = ("application/json", A2A_JSON_MEDIA_TYPE)


def parse_body(body: bytes, message: Any) -> Any:
    """Parse a body as a protobuf message.

    Raises:
        InvalidRequestError: The body does not match the message.
    """
    try:
        return Parse(body, message, ignore_unknown_fields=True)
    except PARSE_ERRORS:
        raise errors.InvalidRequestError(f"the body is not a valid {message.DESCRIPTOR.name}") from None


class NamedUser(User):
    """An authenticated principal as a user of the SDK."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    @property
    def is_authenticated(self) -> bool:
        """Always True."""
        return True

    @property
    def user_name(self) -> str:
        """The principal's name."""
        return self.principal.name


class ErrorReport(NamedTuple):
    """An A2A error as clients receive it."""

    error: errors.A2AError
    status: int | None = None
    """The HTTP status; None for the error's own."""
    headers: Mapping[str, str] = {}


def to_a2a_error(error: Exception) -> ErrorReport:
    """Map an exception to the error that the client receives.

    Errors of the server are logged; clients do not see their text.
    """
    if isinstance(error, ShuttingDownError):
        reported = to_serving_error(error)
        return ErrorReport(errors.InternalError(reported.message), reported.status, reported.headers or {})
    if isinstance(error, ServingError):
        return ErrorReport(errors.InvalidRequestError(error.message), error.status, error.headers or {})
    if isinstance(error, errors.A2AError):
        return ErrorReport(error)
    _logger.error("an A2A request failed", exc_info=error)
    return ErrorReport(errors.InternalError())


class A2ARequestGuard:
    """Checks of authentication, body, protocol version and extensions."""

    def __init__(self, card: pb.AgentCard, guard: RequestGuard) -> None:
        self._required = frozenset(each.uri for each in card.capabilities.extensions if each.required)
        self._guard = guard

    async def admit(self, request: Request) -> ServerCallContext:
        """Authenticate a request and return its call context.

        Raises:
            ServingError: The request is not admitted.
        """
        principal = await self._guard.admit(request)
        user = NamedUser(principal) if self._guard.auth else UnauthenticatedUser()
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(user=user, state={"headers": dict(request.headers)}, requested_extensions=extensions)

    async def admit_current(self, request: Request) -> ServerCallContext:
        """Authenticate a request of the current protocol version and return its call context."""
        context = await self.admit(request)
        self.check_version(request, context)
        return context

    def check_version(self, request: Request, context: ServerCallContext) -> None:
        """Raise unless a request names version 1.x and the required extensions."""
        version = requested_version(request)
        if version.partition(".")[0] != "1":
            works = f"send the header {VERSION_HEADER}: 1.0"
            raise errors.VersionNotSupportedError(f"version `{version[:20]}` is not supported; {works}")
        self.check_extensions(context)

    def check_extensions(self, context: ServerCallContext) -> None:
        """Raise unless the client supports all required extensions."""
        missing = self._required - context.requested_extensions
        if missing:
            raise errors.ExtensionSupportRequiredError(
                f"the extensions {sorted(missing)} are required; send them in {HTTP_EXTENSION_HEADER}"
            )

    async def read_body(self, request: Request) -> bytes:
        """Read a JSON body, but no more of it than the app accepts."""
        kind = media_type(request)
        if kind not in _JSON_TYPES:
            raise errors.ContentTypeNotSupportedError(f"the body must be application/json, not {kind or 'untyped'}")
        body = await self._guard.read_body(request)
        if _SURROGATES.search(body) and not _is_encodable(body):
            raise errors.InvalidRequestError("the body contains an unpaired surrogate, which is not valid text")
        return body


def _is_encodable(body: bytes) -> bool:
    """Return whether a JSON body is free of unpaired surrogates."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    except (ValueError, RecursionError):
        pass  # Reported by the parser.
    return True


def requested_version(request: Request) -> str:
    """Return the protocol version that a request names; 0.3 if it names none."""
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or PROTOCOL_VERSION_0_3


@dataclass(eq=False)
class A2ARequestHandler(RequestHandler):
    """The SDK's request handler, implemented with runs and their logs."""

    _tasks: TaskService
    _card: pb.AgentCard
    _extended_card: pb.AgentCard | None
    _requires_auth: bool

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task | pb.Message:
        """Start or continue a task, and wait until it stops unless the request says otherwise."""
        broadcast = await self._accept(params, context, None)
        task_id = broadcast.projection.task.id
        if params.configuration.return_immediately:
            result: pb.Task | pb.Message = await self._tasks.get(task_id, self._principal(context))
        else:
            await self._tasks.wait_until_stopped(task_id)
            result = await self._tasks.result(task_id, self._principal(context))
        return apply_history_length(result, params.configuration) if isinstance(result, pb.Task) else result

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Start or continue a task and stream its updates, beginning with the task itself."""
        self._require_streaming()
        subscriber = TaskSubscriber()
        broadcast = await self._accept(params, context, subscriber)
        async for update in self._tasks.stream(broadcast, subscriber):
            yield apply_history_length(update, params.configuration) if isinstance(update, pb.Task) else update

    async def _accept(
        self, params: pb.SendMessageRequest, context: ServerCallContext, subscriber: TaskSubscriber | None
    ) -> TaskBroadcast:
        validate_proto_required_fields(params)
        validate_history_length(params.configuration)
        message = params.message
        principal = self._principal(context)
        self._check_input_modes(message)
        await self._tasks.validate(message, principal)
        push = None
        if params.configuration.HasField("task_push_notification_config"):
            self._require_push()
            push = PushSubscriber(params.configuration.task_push_notification_config, _response_version(context))
            await self._tasks.push.check(push.config)
        if not message.task_id:
            return await self._tasks.start(message, principal, subscriber, push)
        if push is not None:
            await self._tasks.push.put(message.task_id, push)
        return await self._tasks.resume(message, principal, subscriber)

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task | None:
        """Return the current state of a task."""
        validate_proto_required_fields(params)
        validate_history_length(params)
        return apply_history_length(await self._tasks.get(params.id, self._principal(context)), params)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """Return a page of the principal's tasks."""
        return await self._tasks.reader.list(params, self._principal(context))

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task | None:
        """Cancel a task."""
        validate_proto_required_fields(params)
        return await self._tasks.cancel(params.id, self._principal(context))

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Stream the current state of a task and its further updates."""
        self._require_streaming()
        validate_proto_required_fields(params)
        async for update in self._tasks.subscribe(params.id, self._principal(context)):
            yield update

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Add a webhook for a task."""
        await self._check_push(params, context)
        await self._tasks.push.check(params)
        return await self._tasks.push.put(params.task_id, PushSubscriber(params, _response_version(context)))

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """Return a webhook of a task."""
        await self._check_push(params, context)
        for subscriber in await self._tasks.push.subscribers(params.task_id):
            if subscriber.config.id == params.id:
                return subscriber.config
        raise errors.TaskNotFoundError(f"task `{params.task_id}` has no push configuration `{params.id}`")

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Return all webhooks of a task."""
        await self._check_push(params, context)
        configs = [subscriber.config for subscriber in await self._tasks.push.subscribers(params.task_id)]
        return pb.ListTaskPushNotificationConfigsResponse(configs=configs)

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a webhook of a task."""
        await self._check_push(params, context)
        await self._tasks.push.delete(params.task_id, params.id)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        """Return the card for authenticated clients."""
        self._principal(context)
        if not self._card.capabilities.extended_agent_card:
            raise errors.UnsupportedOperationError("this operation is not supported: the service has no extended card")
        if self._extended_card is None:
            raise errors.ExtendedAgentCardNotConfiguredError
        return self._extended_card

    def _check_input_modes(self, message: pb.Message) -> None:
        try:
            validate_input_modes(message, self._card)
        except errors.ContentTypeNotSupportedError as error:
            raise errors.ContentTypeNotSupportedError(f"Incompatible content types. {error.message}") from None

    def _require_streaming(self) -> None:
        if not self._card.capabilities.streaming:
            raise errors.UnsupportedOperationError("this operation is not supported: this service does not stream")

    async def _check_push(self, params: Any, context: ServerCallContext) -> None:
        """Raise unless the operation on a task's webhooks is supported, valid and permitted."""
        self._require_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._principal(context))

    def _require_push(self) -> None:
        if not self._card.capabilities.push_notifications:
            raise errors.PushNotificationNotSupportedError

    def _principal(self, context: ServerCallContext) -> Principal:
        user = context.user
        if isinstance(user, NamedUser):
            return user.principal
        # Our bindings authenticate before this; a transport of the application may not.
        if user.is_authenticated and user.user_name:
            return Principal(user.user_name)
        if self._requires_auth:
            raise errors.InvalidRequestError("authentication required: use a scheme that the agent card declares")
        return Principal()


def _response_version(context: ServerCallContext) -> str:
    return str(context.state.get(RESPONSE_VERSION, PROTOCOL_VERSION_1_0))


class Operation(NamedTuple):
    """An operation of A2A."""

    params: type[ProtoMessage]
    """The type of its parameters."""
    handler: str
    """The method of the request handler."""
    is_stream: bool
    """True if its result is a stream of updates."""


_IRREGULAR = {"SendMessage": "on_message_send", "SendStreamingMessage": "on_message_send_stream"}
SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]
OPERATIONS = {
    method.name: Operation(
        getattr(pb, method.input_type.name),
        _IRREGULAR.get(method.name) or "on" + re.sub("([A-Z])", r"_\1", method.name).lower(),
        method.server_streaming,
    )
    for method in SERVICE.methods
}
"""The operations of A2A by name, from the protocol's own description of the service."""


def to_response(request: ProtoMessage, result: Any) -> ProtoMessage:
    """Return the response message for the result of an operation."""
    match result:
        case None:
            return Empty()
        case pb.Task() if isinstance(request, pb.SendMessageRequest):
            return pb.SendMessageResponse(task=result)
        case pb.Message():
            return pb.SendMessageResponse(message=result)
        case _:
            return result


def to_json(request: ProtoMessage, result: Any) -> Any:
    """Return the result of an operation as JSON; None if it has none."""
    if result is None:
        return None
    if isinstance(result, pb.ListTasksResponse):
        return page_to_dict(result)
    return MessageToDict(to_response(request, result))


def encode_update(update: Update) -> str:
    """Encode an update of a stream as JSON."""
    return json.dumps(MessageToDict(to_stream_response(update)), ensure_ascii=False)
