"""Operations on tasks, which are runs: start, resume, stream and cancel, in whichever process they are driven."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from uuid import uuid4

from a2a.types.a2a_pb2 import Message, Part, Task, TaskState, TaskStatusUpdateEvent
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from ... import errors
from ...a2a.parts import content_of, interrupt_kind, plain_value
from ...log import InterruptRaised
from ...log.events import payload_fields
from ...messages import UserMessage
from ...runs import BackgroundRunner
from ...stores import RunRecord
from ..http.auth import Principal
from .broadcast import TaskBroadcast, TaskBroadcasts, TaskSubscriber
from .projection import MESSAGE_KEY, TaskProjection, TaskReader, Update, parallel_thread, to_context_id, to_thread
from .push import PushNotifier, PushSubscriber

_logger = logging.getLogger("baton.a2a")
_CANCEL_TIMEOUT = 20.0
_MAX_CONTEXT_ID = 200
_POLL_SECONDS = 0.3
_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved"})
_NO = frozenset({"no", "n", "false", "reject", "rejected", "deny", "denied"})


def parse_answers(parts: Iterable[Part], interrupts: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    """Return the answers in a message by interrupt id.

    Data parts may name the interrupts; text answers the only open one. A message with files results in the answer
    `{"text": …, "files": […]}`, each file as A2A's JSON.

    Raises:
        InvalidParamsError: An interrupt is unknown, or several are open and none is named.
    """
    answers: dict[str, Any] = {}
    texts: list[str] = []
    data: list[Any] = []
    files: list[Any] = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind in ("raw", "url"):
            files.append(MessageToDict(part))
        elif kind == "data":
            value = plain_value(part.data)
            by_id = _answers_by_id(value, interrupts)
            answers.update(by_id)
            if not by_id:
                data.append(value)
    if answers:
        return answers
    # The id is fixed now, so that the message cannot answer a later interrupt of a task that has moved on.
    id = _only_interrupt(interrupts)
    if files:
        return {id: {"text": "\n".join(texts), "files": files, **({"data": data[0]} if data else {})}}
    if data:
        return {id: data[0]}
    return {id: _parse_text("\n".join(texts), interrupts[id])}


def _answers_by_id(value: Any, interrupts: Mapping[str, InterruptRaised]) -> dict[str, Any]:
    fields = payload_fields(value)
    if "interruptId" in fields:
        id = str(fields["interruptId"])
        if id not in interrupts:
            open_ids = errors.quote_names([*interrupts])
            raise InvalidParamsError(f"unknown interrupt `{id}`; open interrupts are: {open_ids}")
        return {id: fields.get("answer")}
    return fields if fields and all(id in interrupts for id in fields) else {}


def _only_interrupt(interrupts: Mapping[str, InterruptRaised]) -> str:
    if len(interrupts) != 1:
        works = 'answer each with a data part {"interruptId": …, "answer": …}'
        raise InvalidParamsError(f"open interrupts are: {errors.quote_names([*interrupts])}; {works}")
    return next(iter(interrupts))


def _parse_text(text: str, interrupt: InterruptRaised) -> Any:
    """Parse text as a boolean for approvals, and as JSON unless text is expected."""
    kind = interrupt_kind(interrupt)
    if kind == "approval" and text.strip().lower() in _YES | _NO:
        return text.strip().lower() in _YES
    expects_text = interrupt.schema is None or interrupt.schema.get("type") == "string"
    if kind != "approval" and expects_text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(eq=False)
class TaskService:
    """The tasks of one app."""

    background: BackgroundRunner
    broadcasts: TaskBroadcasts
    reader: TaskReader
    push: PushNotifier
    allow_message_replies: bool

    def __post_init__(self) -> None:
        self._store = self.reader.store
        self.background._on_recovered.append(self._broadcast_recovered)

    async def record(self, task_id: str, principal: Principal) -> RunRecord:
        """Return the record of a task.

        Raises:
            TaskNotFoundError: There is no such task, or the principal may not see it.
        """
        is_valid = bool(task_id) and "\0" not in task_id
        record = await self._store.record(task_id) if is_valid else None
        if record is None or not principal.sees(record.owner):
            raise TaskNotFoundError(f"task `{task_id}` not found")
        return record

    async def get(self, task_id: str, principal: Principal) -> Task:
        """Return a task; if it is driven here, with the text that is being streamed."""
        record = await self.record(task_id, principal)
        broadcast = self.broadcasts.get(task_id)
        if broadcast is not None and broadcast.first_snapshot.done():
            return broadcast.projection.copy_task()
        return (await self.reader.load(record)).task

    async def result(self, task_id: str, principal: Principal) -> Task | Message:
        """Return a task that has stopped, or the message that its agent replied with."""
        return _to_result(await self.reader.load(await self.record(task_id, principal)))

    async def validate(self, message: Message, principal: Principal) -> None:
        """Raise if a message is invalid, before anything is stored because of it."""
        if message.task_id:
            _, projection = await self._load_suspended(message, principal)
            parse_answers(message.parts, projection.interrupts)
        elif not message.context_id.isprintable() or len(message.context_id) > _MAX_CONTEXT_ID:
            raise InvalidParamsError(f"a context id must be at most {_MAX_CONTEXT_ID} printable characters")

    async def start(
        self, message: Message, principal: Principal, subscriber: TaskSubscriber | None, push: PushSubscriber | None
    ) -> TaskBroadcast:
        """Start a task in the context that the message names, or in a new one."""
        context_id = message.context_id or str(uuid4())
        task_id = str(uuid4())
        values = {MESSAGE_KEY: _message_info(message, principal)}
        options: Any = {"run_id": task_id, "values": values, "owner": principal.name}
        input = UserMessage(content_of(message.parts))
        thread = to_thread(principal, context_id)
        try:
            await self.background.start(input, thread=thread, **options)
        except errors.ThreadBusyError:
            # A context may have several tasks at once: this one gets a thread of its own with the messages so far.
            history = await self.background.runner.thread(thread).messages()
            await self.background.start([*history, input], thread=parallel_thread(thread, task_id), **options)
        if push is not None:
            # Before the broadcast starts, so that the webhook receives every update.
            await self.push.put(task_id, push)
        return await self._broadcast(self.reader.new(task_id, context_id), subscriber)

    async def resume(self, message: Message, principal: Principal, subscriber: TaskSubscriber | None) -> TaskBroadcast:
        """Resume a suspended task with the answers in a message."""
        record, projection = await self._load_suspended(message, principal)
        try:
            answers = parse_answers(message.parts, projection.interrupts)
            values = {MESSAGE_KEY: _message_info(message, principal)}
            await self.background.resume(record.run_id, answers, values=values)
        except errors.AnswerError as error:
            raise InvalidParamsError(str(error)) from None
        except errors.RunNotSuspendedError:
            raise UnsupportedOperationError(f"task `{record.run_id}` was cancelled; start another one") from None
        except errors.RunConflictError:
            raise UnsupportedOperationError(f"task `{record.run_id}` is being resumed already") from None
        except errors.ShuttingDownError:
            raise
        except errors.RunError as error:
            _logger.info("task `%s` cannot be resumed: %s", record.run_id, error)
            raise UnsupportedOperationError(f"task `{record.run_id}` cannot be resumed") from None
        return await self._broadcast(projection, subscriber)

    async def _load_suspended(self, message: Message, principal: Principal) -> tuple[RunRecord, TaskProjection]:
        record = await self.record(message.task_id, principal)
        if message.context_id and message.context_id != to_context_id(record):
            raise InvalidParamsError(f"task `{record.run_id}` does not belong to context `{message.context_id}`")
        projection = await self.reader.load(record)
        if projection.is_finished:
            raise UnsupportedOperationError(f"task `{record.run_id}` has ended; start another one")
        if record.status == "running":
            hint = "it accepts messages only while it is suspended"
            raise UnsupportedOperationError(f"task `{record.run_id}` is running; {hint}")
        return record, projection

    async def _broadcast(self, projection: TaskProjection, subscriber: TaskSubscriber | None) -> TaskBroadcast:
        broadcast = self.broadcasts.start(projection, subscriber)
        await asyncio.shield(broadcast.first_snapshot)
        return broadcast

    async def wait_until_stopped(self, task_id: str) -> None:
        """Wait until a task has ended or is suspended, in whichever process it is driven."""
        async for _ in self.background.subscribe(task_id, after=1 << 40):
            continue

    async def stream(self, broadcast: TaskBroadcast, subscriber: TaskSubscriber) -> AsyncGenerator[Update]:
        """Stream a task that was just started or resumed here, beginning with a snapshot.

        If its agent replies with a message, only that message is streamed.
        """
        try:
            if self.allow_message_replies:
                await broadcast.acted.wait()
                if broadcast.projection.replies_with_message:
                    async for _ in subscriber:
                        continue
                    yield _to_result(broadcast.projection)
                    return
            yield broadcast.first_snapshot.result()
            async for update in subscriber:
                yield update
        finally:
            broadcast.subscribers.discard(subscriber)

    async def subscribe(self, task_id: str, principal: Principal) -> AsyncGenerator[Update]:
        """Stream the current state of a task that has not ended, then its updates until it stops."""
        record = await self.record(task_id, principal)
        broadcast = self.broadcasts.get(task_id)
        if broadcast is not None:
            await asyncio.shield(broadcast.first_snapshot)
        if broadcast is not None and self.broadcasts.get(task_id) is broadcast:
            subscriber = TaskSubscriber()
            try:
                yield broadcast.subscribe(subscriber)
                async for update in subscriber:
                    yield update
            finally:
                broadcast.subscribers.discard(subscriber)
            return
        record = await self.record(task_id, principal)
        projection = await self.reader.load(record)
        if projection.is_finished:
            raise UnsupportedOperationError(f"task `{task_id}` has ended; it has no further updates")
        yield projection.copy_task()
        if record.status != "running":
            is_resumed_here = False
            async for update in self._wait_for_resume(projection):
                is_resumed_here = True
                yield update
            if is_resumed_here:
                return
        async for _, event in self.background.runner.runs.watch(task_id, after=projection.position):
            for update in projection.apply(event):
                yield update

    async def _wait_for_resume(self, projection: TaskProjection) -> AsyncGenerator[Update]:
        """Yield a suspended task's updates; none if another process resumes it."""
        task_id = projection.task.id
        subscriber = TaskSubscriber()
        if self.broadcasts.get(task_id) is not None:
            return
        self.broadcasts.wait(task_id, subscriber)
        try:
            while True:
                try:
                    update = await subscriber.next(_POLL_SECONDS)
                except TimeoutError:
                    record = await self._store.record(task_id)
                    if record is None or (
                        record.seq - 1 > projection.position and self.broadcasts.get(task_id) is None
                    ):
                        return
                    continue
                if update is None:
                    return
                yield update
        finally:
            self.broadcasts.unsubscribe(task_id, subscriber)

    async def cancel(self, task_id: str, principal: Principal) -> Task:
        """Cancel a task, in whichever process it is driven.

        Raises:
            TaskNotCancelableError: The task has ended, or did not stop in time.
        """
        record = await self.record(task_id, principal)
        if record.status not in ("running", "suspended"):
            raise TaskNotCancelableError(f"task `{task_id}` has ended already")
        deadline = monotonic() + _CANCEL_TIMEOUT
        while (status := await self.background.cancel(task_id)) in ("running", "suspended"):
            # The worker is in another process and has the request; or it has died, and then its lease expires.
            if monotonic() > deadline:
                raise TaskNotCancelableError(f"task `{task_id}` has not stopped yet; try again")
            await asyncio.sleep(_POLL_SECONDS)
        if status != "cancelled":
            raise TaskNotCancelableError(f"task `{task_id}` ended before it could be cancelled")
        projection = await self.reader.load(await self.record(task_id, principal))
        if record.status == "suspended":
            # No process drives it, so that there is no broadcast.
            task = projection.task
            self.push.notify(TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status))
        return projection.task

    async def _broadcast_recovered(self, record: RunRecord) -> None:
        self.broadcasts.start(await self.reader.load(record))

    async def close(self) -> None:
        """Let turns in flight finish, and leave the tasks to other processes."""
        await self.background.drain()
        await self.broadcasts.close()


def _to_result(projection: TaskProjection) -> Task | Message:
    is_completed = projection.task.status.state == TaskState.TASK_STATE_COMPLETED
    return projection.to_message() if projection.replies_with_message and is_completed else projection.task


def _message_info(message: Message, principal: Principal) -> dict[str, Any]:
    """Return the facts about a message that an agent can read besides its content."""
    info: dict[str, Any] = {"messageId": message.message_id}
    if message.HasField("metadata"):
        info["metadata"] = plain_value(message.metadata)
    if message.extensions:
        info["extensions"] = [*message.extensions]
    if message.reference_task_ids:
        info["referenceTaskIds"] = [*message.reference_task_ids]
    if principal.name:
        info["owner"] = principal.name
    return info
