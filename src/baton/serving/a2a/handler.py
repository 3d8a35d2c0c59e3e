"""The transport-independent half of the A2A server: request checks, error mapping and the request handler."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from a2a.auth.user import UnauthenticatedUser, User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a.utils.input_mode_validator import validate_input_modes
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as ProtoMessage

from ..http import Principal
from ..http.errors import ServingError
from ..http.guard import RequestGuard, media_type
from .broadcast import TaskBroadcast, TaskSubscriber
from .projection import Update
from .push import PushNotifier, PushSubscriber
from .tasks import TaskService

if TYPE_CHECKING:
    from starlette.requests import Request

_logger = logging.getLogger("baton.a2a")
_VERSION = "baton.version"
_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")
_JSON_TYPES = ("application/json", A2A_JSON_MEDIA_TYPE)


class NamedUser(User):
    """An authenticated principal as a user of the SDK.

    Args:
        principal: The principal.
    """

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


def to_a2a_error(error: Exception) -> tuple[A2AError, int | None, Mapping[str, str]]:
    """Map an exception to an A2A error, an HTTP status (None for the error's own) and headers.

    Errors of the server are logged; clients do not see their text.

    Args:
        error: The exception that ended a request or a stream.
    """
    if isinstance(error, ServingError):
        return InvalidRequestError(message=error.message), error.status, error.headers or {}
    if isinstance(error, A2AError):
        return error, None, {}
    _logger.error("an A2A request failed", exc_info=error)
    return InternalError(), None, {}


class A2ARequestGuard:
    """Checks of authentication, body, protocol version and extensions.

    Args:
        card: The agent card, which names the required extensions.
        guard: The app's authentication and body limit.
    """

    def __init__(self, card: AgentCard, guard: RequestGuard) -> None:
        self._required = frozenset(each.uri for each in card.capabilities.extensions if each.required)
        self._guard = guard

    async def admit(self, request: "Request") -> ServerCallContext:
        """Authenticate a request and return its call context.

        Args:
            request: The incoming request.

        Raises:
            ServingError: The request is not admitted.
        """
        principal = await self._guard.admit(request)
        user = NamedUser(principal) if self._guard.auth else UnauthenticatedUser()
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(user=user, state={"headers": dict(request.headers)}, requested_extensions=extensions)

    def check_version(self, request: "Request", context: ServerCallContext) -> None:
        """Raise unless a request names version 1.x and the required extensions.

        Args:
            request: The incoming request.
            context: The context of the call.
        """
        version = requested_version(request)
        if version.partition(".")[0] != "1":
            raise VersionNotSupportedError(
                message=f"version `{version[:20]}` is not supported; send the header {VERSION_HEADER}: 1.0"
            )
        self.check_extensions(context)

    def check_extensions(self, context: ServerCallContext) -> None:
        """Raise unless the client supports all required extensions.

        Args:
            context: The context of the call.
        """
        missing = self._required - context.requested_extensions
        if missing:
            raise ExtensionSupportRequiredError(
                message=f"the extensions {sorted(missing)} are required; send them in {HTTP_EXTENSION_HEADER}"
            )

    async def read_body(self, request: "Request") -> bytes:
        """Read a JSON body, but no more of it than the app accepts.

        Args:
            request: The incoming request.
        """
        kind = media_type(request)
        if kind not in _JSON_TYPES:
            raise ContentTypeNotSupportedError(message=f"the body must be application/json, not {kind or 'untyped'}")
        body = await self._guard.read_body(request)
        if _SURROGATES.search(body) and not _is_encodable(body):
            raise InvalidRequestError(message="the body contains an unpaired surrogate, which is not valid text")
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


def get_response_version(context: ServerCallContext) -> str:
    """Return the protocol version of the response.

    Args:
        context: The context of the call.
    """
    return str(context.state.get(_VERSION, PROTOCOL_VERSION_1_0))


def set_response_version(context: ServerCallContext, version: str) -> None:
    """Set the protocol version of the response.

    Args:
        context: The context of the call.
        version: The version.
    """
    context.state[_VERSION] = version


def requested_version(request: "Request") -> str:
    """Return the protocol version that a request names; 0.3 if it names none.

    Args:
        request: The incoming request.
    """
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or PROTOCOL_VERSION_0_3


class A2ARequestHandler(RequestHandler):
    """The SDK's request handler, implemented with runs and their logs.

    Args:
        tasks: The tasks.
        card: The agent card.
        extended_card: The card for authenticated clients.
        push: The push notifier.
        requires_auth: Whether anonymous calls are rejected.
    """

    def __init__(
        self,
        tasks: TaskService,
        card: AgentCard,
        extended_card: AgentCard | None,
        push: PushNotifier,
        *,
        requires_auth: bool,
    ) -> None:
        self._tasks = tasks
        self._requires_auth = requires_auth
        self._card = card
        self._extended_card = extended_card
        self._push = push

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        """Start or continue a task, and wait until it stops unless told not to.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        broadcast = await self._accept(params, context, None)
        task_id = broadcast.projection.task.id
        if params.configuration.return_immediately:
            result: Task | Message = await self._tasks.get(task_id, self._principal(context))
        else:
            await self._tasks.wait_until_stopped(task_id)
            result = await self._tasks.result(task_id, self._principal(context))
        return apply_history_length(result, params.configuration) if isinstance(result, Task) else result

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Start or continue a task and stream its updates, beginning with the task itself.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_streaming()
        subscriber = TaskSubscriber()
        broadcast = await self._accept(params, context, subscriber)
        async for update in self._tasks.stream(broadcast, subscriber):
            yield apply_history_length(update, params.configuration) if isinstance(update, Task) else update

    async def _accept(
        self, params: SendMessageRequest, context: ServerCallContext, subscriber: TaskSubscriber | None
    ) -> TaskBroadcast:
        validate_proto_required_fields(params)
        validate_history_length(params.configuration)
        message, principal = params.message, self._principal(context)
        self._check_input_modes(message)
        await self._tasks.validate(message, principal)
        push = None
        if params.configuration.HasField("task_push_notification_config"):
            self._require_push()
            push = PushSubscriber(params.configuration.task_push_notification_config, get_response_version(context))
            await self._push.check(push.config)
        if not message.task_id:
            return await self._tasks.start(message, principal, str(uuid4()), subscriber=subscriber, push=push)
        if push is not None:
            await self._push.configs.put(message.task_id, push)
        return await self._tasks.resume(message, principal, subscriber)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """Return the current state of a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        validate_proto_required_fields(params)
        validate_history_length(params)
        return apply_history_length(await self._tasks.get(params.id, self._principal(context)), params)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the principal's tasks.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        return await self._tasks.reader.list(params, self._principal(context))

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Cancel a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        validate_proto_required_fields(params)
        return await self._tasks.cancel(params.id, self._principal(context))

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Stream the current state of a task and its further updates.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_streaming()
        validate_proto_required_fields(params)
        async for update in self._tasks.subscribe(params.id, self._principal(context)):
            yield update

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Add a webhook for a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._principal(context))
        return await self._push.add(params.task_id, PushSubscriber(params, get_response_version(context)))

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a webhook of a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._principal(context))
        for config in await self._push.configs.list(params.task_id):
            if config.id == params.id:
                return config
        raise TaskNotFoundError(message=f"task `{params.task_id}` has no push configuration `{params.id}`")

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return all webhooks of a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._principal(context))
        return ListTaskPushNotificationConfigsResponse(configs=await self._push.configs.list(params.task_id))

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a webhook of a task.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._require_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._principal(context))
        await self._push.configs.delete(params.task_id, params.id)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Return the card for authenticated clients.

        Args:
            params: The parameters of the operation.
            context: The context of the call.
        """
        self._principal(context)
        if not self._card.capabilities.extended_agent_card:
            raise UnsupportedOperationError(message="this operation is not supported: the service has no extended card")
        if self._extended_card is None:
            raise ExtendedAgentCardNotConfiguredError
        return self._extended_card

    def _check_input_modes(self, message: Message) -> None:
        try:
            validate_input_modes(message, self._card)
        except ContentTypeNotSupportedError as error:
            raise ContentTypeNotSupportedError(message=f"Incompatible content types. {error.message}") from None

    def _require_streaming(self) -> None:
        if not self._card.capabilities.streaming:
            raise UnsupportedOperationError(message="this operation is not supported: this service does not stream")

    def _require_push(self) -> None:
        if not self._card.capabilities.push_notifications:
            raise PushNotificationNotSupportedError

    def _principal(self, context: ServerCallContext) -> Principal:
        user = context.user
        if isinstance(user, NamedUser):
            return user.principal
        # Our bindings authenticate before this; a transport of the application may not.
        if user.is_authenticated and user.user_name:
            return Principal(user.user_name)
        if self._requires_auth:
            raise InvalidRequestError(message="authentication required: use a scheme that the agent card declares")
        return Principal()


METHODS: dict[str, tuple[type[ProtoMessage], str]] = {
    "SendMessage": (pb.SendMessageRequest, "on_message_send"),
    "SendStreamingMessage": (pb.SendMessageRequest, "on_message_send_stream"),
    "GetTask": (pb.GetTaskRequest, "on_get_task"),
    "ListTasks": (pb.ListTasksRequest, "on_list_tasks"),
    "CancelTask": (pb.CancelTaskRequest, "on_cancel_task"),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, "on_subscribe_to_task"),
    "CreateTaskPushNotificationConfig": (pb.TaskPushNotificationConfig, "on_create_task_push_notification_config"),
    "GetTaskPushNotificationConfig": (
        pb.GetTaskPushNotificationConfigRequest,
        "on_get_task_push_notification_config",
    ),
    "ListTaskPushNotificationConfigs": (
        pb.ListTaskPushNotificationConfigsRequest,
        "on_list_task_push_notification_configs",
    ),
    "DeleteTaskPushNotificationConfig": (
        pb.DeleteTaskPushNotificationConfigRequest,
        "on_delete_task_push_notification_config",
    ),
    "GetExtendedAgentCard": (pb.GetExtendedAgentCardRequest, "on_get_extended_agent_card"),
}
"""The operations of A2A by name: the parameter type, and the method of the request handler."""
STREAMS = ("SendStreamingMessage", "SubscribeToTask")


def to_response(request: ProtoMessage, result: Any) -> ProtoMessage:
    """Return the response message for the result of an operation.

    Args:
        request: The parameters of the operation.
        result: The result of the request handler.
    """
    match result:
        case None:
            return Empty()
        case pb.Task() if isinstance(request, pb.SendMessageRequest):
            return pb.SendMessageResponse(task=result)
        case pb.Message():
            return pb.SendMessageResponse(message=result)
        case _:
            return result
