"""Answers the requests of A2A, whichever door they come in by."""

from collections.abc import AsyncGenerator
from uuid import uuid4

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
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
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.input_mode_validator import validate_input_modes
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length

from ..http import Principal
from .entrance import NamedUser, spoken_in
from .listing import listed_tasks
from .push import PushNotifier
from .push_configs import PushSubscriber
from .relay import TaskBroadcast, TaskSubscriber
from .tasks import TaskService
from .telling import Update


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
