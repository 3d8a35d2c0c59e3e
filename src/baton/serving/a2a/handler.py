"""Answers the requests of A2A, whichever door they come in by.

What every request passes first: its size, its type, who it is from, and which version it speaks.

The operations of A2A by their names: what each is asked with, and what of the desk answers it.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
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

from ..http import Auth, Principal
from ..http.auth import authenticate, refusal_of
from .broadcast import TaskBroadcast, TaskSubscriber
from .projection import Update, listed_tasks
from .push import PushNotifier, PushSubscriber
from .tasks import TaskService

if TYPE_CHECKING:
    from starlette.requests import Request

_SPOKEN = "baton.version"
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
_JSON_TYPES = ("application/json", A2A_JSON_MEDIA_TYPE)


class RequestRefusedError(Exception):
    """A request that is not let in: what is said about it, and with which HTTP status."""

    def __init__(self, error: A2AError, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status
        self.headers = dict(headers or {})


class NamedUser(User):
    """A caller whose name is known."""

    def __init__(self, caller: Principal) -> None:
        self.caller = caller

    @property
    def is_authenticated(self) -> bool:
        """Always."""
        return True

    @property
    def user_name(self) -> str:
        """The name."""
        return self.caller.name


class A2ARequestGuard:
    """Lets requests in, or raises what they are refused with."""

    def __init__(self, card: AgentCard, auth: Sequence[Auth], largest: int) -> None:
        self._required = frozenset(each.uri for each in card.capabilities.extensions if each.required)
        self._auth = tuple(auth)
        self._largest = largest

    async def admitted(self, request: "Request") -> ServerCallContext:
        """Who calls, and what the request says about itself in its headers."""
        user = await self._user(request)
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(user=user, state={"headers": dict(request.headers)}, requested_extensions=extensions)

    async def _user(self, request: "Request") -> User:
        if not self._auth:
            return UnauthenticatedUser()
        caller = await authenticate(request, self._auth)
        if caller is not None:
            return NamedUser(caller)
        told, headers = refusal_of(self._auth)
        raise RequestRefusedError(InvalidRequestError(message=told), 401, headers)

    def check_version(self, request: "Request", context: ServerCallContext) -> None:
        """Only 1.x is spoken here; a request that names no version means 0.3."""
        spoken = version_of(request)
        if spoken.partition(".")[0] != "1":
            raise VersionNotSupportedError(
                message=f"version `{spoken[:20]}` is not spoken here; send the header {VERSION_HEADER}: 1.0"
            )
        self.check_extensions(context)

    def check_extensions(self, context: ServerCallContext) -> None:
        """Raise unless the caller knows of all extensions that this service cannot do without."""
        missing = self._required - context.requested_extensions
        if missing:
            raise ExtensionSupportRequiredError(
                message=f"this service needs the extensions {sorted(missing)}; name them in {HTTP_EXTENSION_HEADER}"
            )

    async def body(self, request: "Request") -> bytes:
        """The body, if it is JSON and not too large. It is not read further than that."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _JSON_TYPES:
            told = f"the body must be application/json, not {kind or 'of no type'}"
            raise ContentTypeNotSupportedError(message=told)
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._largest:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > self._largest:
                raise self._too_large()
            pieces.append(piece)
        whole = b"".join(pieces)
        if _HALVES.search(whole) and not _is_text(whole):
            raise InvalidRequestError(message="the body spells half of a surrogate pair, which is no text")
        return whole

    def _too_large(self) -> RequestRefusedError:
        told = f"the body is larger than the {self._largest} bytes that are taken here"
        return RequestRefusedError(InvalidRequestError(message=told), 413)


def _is_text(body: bytes) -> bool:
    """Whether what the body says can be written down again; JSON has a way to spell what no text can hold."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    except (ValueError, RecursionError):
        pass  # Whoever reads it says that it is not JSON.
    return True


def spoken_in(context: ServerCallContext) -> str:
    """The version that the caller is answered in."""
    return str(context.state.get(_SPOKEN, PROTOCOL_VERSION_1_0))


def note_version(context: ServerCallContext, version: str) -> None:
    """Remember the version that the caller is answered in."""
    context.state[_SPOKEN] = version


def version_of(request: "Request") -> str:
    """The version of the protocol that a request says it speaks."""
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or PROTOCOL_VERSION_0_3


class A2ARequestHandler(RequestHandler):
    """The SDK's contract of a server, over runs and their logs."""

    def __init__(
        self, tasks: TaskService, card: AgentCard, extended: AgentCard | None, push: PushNotifier, *, needs_names: bool
    ) -> None:
        self._tasks = tasks
        self._needs_names = needs_names
        self._card = card
        self._extended = extended
        self._push = push

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        """Begin or go on with a task, and wait until it stops unless the caller is in a hurry."""
        relay = await self._accepted(params, context, None)
        task_id = relay.telling.task.id
        if params.configuration.return_immediately:
            given: Task | Message = await self._tasks.get(task_id, self._caller(context))
        else:
            await self._tasks.until_stopped(task_id)
            given = await self._tasks.answer(task_id, self._caller(context))
        return apply_history_length(given, params.configuration) if isinstance(given, Task) else given

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """The same, told as it happens: the task first."""
        self._need_streaming()
        ear = TaskSubscriber()
        relay = await self._accepted(params, context, ear)
        async for update in self._tasks.stream(relay, ear):
            yield apply_history_length(update, params.configuration) if isinstance(update, Task) else update

    async def _accepted(
        self, params: SendMessageRequest, context: ServerCallContext, ear: TaskSubscriber | None
    ) -> TaskBroadcast:
        validate_proto_required_fields(params)
        validate_history_length(params.configuration)
        message, caller = params.message, self._caller(context)
        self._need_known_types(message)
        await self._tasks.check(message, caller)
        push = None
        if params.configuration.HasField("task_push_notification_config"):
            self._need_push()
            push = PushSubscriber(params.configuration.task_push_notification_config, spoken_in(context))
            await self._push.check(push.config)
        if not message.task_id:
            return await self._tasks.begin(message, caller, str(uuid4()), ear=ear, push=push)
        if push is not None:
            await self._push.configs.put(message.task_id, push)
        return await self._tasks.follow_up(message, caller, ear)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """A task as it stands."""
        validate_proto_required_fields(params)
        validate_history_length(params)
        return apply_history_length(await self._tasks.get(params.id, self._caller(context)), params)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """The caller's tasks, a page at a time."""
        return await listed_tasks(self._tasks.store, params, self._caller(context))

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Stop a task."""
        validate_proto_required_fields(params)
        return await self._tasks.cancel(params.id, self._caller(context))

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """How a task stands, and what happens in it from now on."""
        self._need_streaming()
        validate_proto_required_fields(params)
        async for update in self._tasks.subscribe(params.id, self._caller(context)):
            yield update

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Have somebody told about a task."""
        self._need_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._caller(context))
        return await self._push.add(params.task_id, PushSubscriber(params, spoken_in(context)))

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Who is told, by id."""
        self._need_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._caller(context))
        for config in await self._push.configs.all(params.task_id):
            if config.id == params.id:
                return config
        raise TaskNotFoundError(message=f"task `{params.task_id}` has no push configuration `{params.id}`")

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """All who are told."""
        self._need_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._caller(context))
        return ListTaskPushNotificationConfigsResponse(configs=await self._push.configs.all(params.task_id))

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Tell somebody no more."""
        self._need_push()
        validate_proto_required_fields(params)
        await self._tasks.record(params.task_id, self._caller(context))
        await self._push.configs.drop(params.task_id, params.id)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """The card for those who are known."""
        self._caller(context)
        if not self._card.capabilities.extended_agent_card:
            raise UnsupportedOperationError(message="this operation is not supported: there is no extended card")
        if self._extended is None:
            raise ExtendedAgentCardNotConfiguredError
        return self._extended

    def _need_known_types(self, message: Message) -> None:
        try:
            validate_input_modes(message, self._card)
        except ContentTypeNotSupportedError as error:
            raise ContentTypeNotSupportedError(message=f"Incompatible content types. {error.message}") from None

    def _need_streaming(self) -> None:
        if not self._card.capabilities.streaming:
            raise UnsupportedOperationError(message="this operation is not supported: this service does not stream")

    def _need_push(self) -> None:
        if not self._card.capabilities.push_notifications:
            raise PushNotificationNotSupportedError

    def _caller(self, context: ServerCallContext) -> Principal:
        user = context.user
        if isinstance(user, NamedUser):
            return user.caller
        # The doors ask for names before they come here; a door of somebody else's may not.
        if user.is_authenticated and user.user_name:
            return Principal(user.user_name)
        if self._needs_names:
            raise InvalidRequestError(message="say who you are, in one of the ways that the agent card names")
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
STREAMS = ("SendStreamingMessage", "SubscribeToTask")


def as_response(wanted: ProtoMessage, given: Any) -> ProtoMessage:
    """What the desk gave, as the message that the operation is answered with."""
    match given:
        case None:
            return Empty()
        case pb.Task() if isinstance(wanted, pb.SendMessageRequest):
            return pb.SendMessageResponse(task=given)
        case pb.Message():
            return pb.SendMessageResponse(message=given)
        case _:
            return given
