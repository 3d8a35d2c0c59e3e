"""The projection of a run's log to an A2A task, and the reader that loads and lists tasks.

The same projection creates snapshots of stored tasks and updates of running ones. Ids and timestamps come from the log
alone, so that every replica reports the same.
"""

import asyncio
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from math import ceil
from typing import Any, TypeAlias, cast

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from ... import log as events
from ...a2a.parts import AUTH_REQUIRED, TERMINAL, interrupt_kind, to_interrupt_parts, to_parts, to_struct
from ...errors import StoreError
from ...log import keys
from ...messages import Content, Data, UserMessage, is_empty
from ...stores import FullStore, RecordPage, RunFilters, RunRecord, RunStatus, iter_records
from ...stores.records import parse_filters, select_page
from ..http.auth import Principal

Update: TypeAlias = pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent

MESSAGE_KEY = "a2a"
"""The key of a run's values that holds the id, metadata and sender of the last message."""

REPLY_KEY = "a2a.reply"
"""The key of a run's values that an agent sets to "message" to reply with a message instead of a task."""

FAILED_TEXT = "The task failed. The operator of the service has the details."
_REJECTIONS = ("TaskDeclinedError", "GuardrailTrippedError", "RemoteRejectedError")
_MAX_PATH = 16
STOPPED = TERMINAL | {pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED}


_SILENT_EVENTS = (
    events.AgentFinished,
    events.ResponseTruncated,
    events.HistoryCompacted,
    events.UnknownEvent,
)
"""Events without a counterpart in A2A."""


class TaskProjection:
    """A task, built from the events of its log."""

    def __init__(self, task_id: str, context_id: str, *, show_errors: bool = False) -> None:
        self.task = pb.Task(id=task_id, context_id=context_id, status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED))
        self.position = 0
        """The number of events that have been applied."""
        self.interrupts: dict[str, events.InterruptRaised] = {}
        """The open interrupts by id."""
        self.replies_with_message = False
        """True if the agent replies with a message instead of a task."""
        self._show_errors = show_errors
        self._artifacts: dict[str, pb.Artifact] = {}
        self._response_counts: dict[str, int] = {}
        self._open_tasks: list[str] = []
        """The agents that work on open tasks; the next message of the context goes to the last one."""
        self._streamed_text: dict[str, str] = {}

    @property
    def is_finished(self) -> bool:
        """True once the task has ended."""
        return self.task.status.state in TERMINAL

    def apply(self, event: events.Event) -> list[Update]:  # noqa: C901
        """Apply the next event of the log and return the resulting updates."""
        self.position += 1
        changes: events.ValueChanges | None = getattr(event, "value_changes", None)
        if changes is not None and REPLY_KEY in changes.written:
            self.replies_with_message = changes.written[REPLY_KEY] in ("message", True)
        match event:
            case events.AgentStarted():
                return [self._step(event)]
            case events.ControlTransferred():
                return [self._step(event, target=event.target)]
            case events.TaskOpened():
                if not keys.is_nested(event.origin.id):
                    self._open_tasks.append(event.task.agent)
                return [self._step(event, target=event.task.agent)]
            case events.TaskEnded():
                if not keys.is_nested(event.origin.id):
                    del self._open_tasks[-1:]
                return [self._step(event, target=event.task.return_to, outcome=event.outcome)]
            case events.UserMessageAdded():
                if not event.withheld:
                    self._add_user_message(event.key, event.message.content, {})
                return [self._step(event)]
            case events.StepCompleted():
                return [self._step(event, step=event.name)]
            case events.ToolReturned():
                return [self._step(event, tool=event.tool_name, isError=event.is_error)]
            case events.AgentResponded() if not is_empty(event.message) and not keys.is_in_call(event.origin.id):
                return self._add_response(event, event.message.content, is_answer=not event.message.tool_calls)
            case events.RunResumed():
                return [self._status(event, pb.TASK_STATE_WORKING)]
            case events.RunCompleted():
                facts = {"openTasks": [*self._open_tasks]} if self._open_tasks else None
                return [self._status(event, pb.TASK_STATE_COMPLETED, facts)]
            case events.RunCancelled():
                return [self._status(event, pb.TASK_STATE_CANCELED)]
            case events.RunFailed():
                return [self._fail(event)]
            case events.RunSuspended():
                return [self._suspend(event)]
            case events.RunStarted():
                self._start(event)
            case events.AgentResponded():
                self._close(event.origin)
            case events.InterruptRaised():
                self.interrupts[event.key] = event
            case events.InterruptAnswered():
                self._add_answer(event)
            case _ if not isinstance(event, _SILENT_EVENTS):
                raise TypeError(f"A2A has no case for {type(event).__name__}")
            case _:
                pass
        return []

    def copy_task(self) -> pb.Task:
        """Return a copy of the current state of the task."""
        copy = pb.Task()
        copy.CopyFrom(self.task)
        return copy

    def to_message(self) -> pb.Message:
        """Return the output of a completed task as a message."""
        message = self._message("reply", pb.ROLE_AGENT, "")
        message.ClearField("task_id")
        message.parts.extend(self.task.artifacts[-1].parts if self.task.artifacts else ())
        return message

    def apply_text(self, origin: events.Origin, text: str) -> pb.TaskArtifactUpdateEvent | None:
        """Append streamed text that is not in the log yet."""
        if keys.is_in_call(origin.id):
            return None
        id = self._artifact_id(origin)
        is_new = id not in self._artifacts
        artifact = self._artifact(id, origin)
        streamed = self._streamed_text.get(origin.id, "")
        self._streamed_text[origin.id] = streamed + text
        if is_new:
            artifact.parts.append(pb.Part(text=text))
        else:
            artifact.parts[0].text += text
        return self._chunk(artifact, [pb.Part(text=text)], append=bool(streamed), is_last=False)

    def discard_text(self, origin: events.Origin) -> None:
        """Discard the streamed text of a response that starts again; the next text replaces it."""
        if self._streamed_text.pop(origin.id, ""):
            self._artifacts[self._artifact_id(origin)].parts[0].text = ""

    def apply_progress(self, progress: events.ProgressDelta, at: float) -> pb.TaskStatusUpdateEvent | None:
        """Return a status update for a progress delta; progress is never stored."""
        if not progress.text:
            return None
        status = pb.TaskStatus(state=self.task.status.state, timestamp=_timestamp(at))
        status.message.CopyFrom(self._message(f"progress{at}", pb.ROLE_AGENT, progress.text))
        facts = {"event": "progress", **_location(progress), "done": progress.done, "total": progress.total}
        return self._status_update(status, facts)

    def _start(self, started: events.RunStarted) -> None:
        self.task.status.timestamp.CopyFrom(_timestamp(started.timestamp))
        self._open_tasks = [task.agent for task in started.tasks]
        messages = [message for message in started.input if isinstance(message, UserMessage)]
        if messages:
            self._add_user_message("input", messages[-1].content, started.values)

    def _add_user_message(self, key: str, content: Content, values: Mapping[str, Any]) -> None:
        info = cast("Mapping[str, Any]", values.get(MESSAGE_KEY) or {})
        message = self._message(key, pb.ROLE_USER, content)
        message.message_id = str(info.get("messageId") or message.message_id)
        if info.get("metadata"):
            message.metadata.CopyFrom(to_struct(info["metadata"]))
        self.task.history.append(message)

    def _add_response(self, event: events.Event, content: Content, *, is_answer: bool) -> list[Update]:
        origin = event.origin
        id = self._artifact_id(origin)
        streamed = self._streamed_text.get(origin.id, "")
        parts = to_parts(content)
        is_new = id not in self._artifacts
        artifact = self._artifact(id, origin)
        artifact.metadata.CopyFrom(to_struct({**_location(event), "answer": is_answer}))
        del artifact.parts[:]
        artifact.parts.extend(parts)
        self._close(origin)
        if not is_new and streamed and isinstance(content, str) and content.startswith(streamed):
            rest = content[len(streamed) :]
            return [self._chunk(artifact, [pb.Part(text=rest)], append=True, is_last=True)]
        # Nothing was streamed, or the final text differs: send the whole text.
        return [self._chunk(artifact, parts, append=False, is_last=True)]

    def _close(self, origin: events.Origin) -> None:
        self._response_counts[origin.id] = self._response_counts.get(origin.id, 0) + 1
        self._streamed_text.pop(origin.id, None)

    def _artifact_id(self, origin: events.Origin) -> str:
        return f"{origin.id}.{self._response_counts.get(origin.id, 0)}"

    def _artifact(self, id: str, origin: events.Origin) -> pb.Artifact:
        if id not in self._artifacts:
            artifact = self.task.artifacts.add(artifact_id=id, name=origin.agent)
            artifact.metadata.CopyFrom(to_struct(_location(origin)))
            self._artifacts[id] = artifact
        return self._artifacts[id]

    def _chunk(
        self, artifact: pb.Artifact, parts: list[pb.Part], *, append: bool, is_last: bool
    ) -> pb.TaskArtifactUpdateEvent:
        piece = pb.Artifact(
            artifact_id=artifact.artifact_id, name=artifact.name, parts=parts, metadata=artifact.metadata
        )
        return pb.TaskArtifactUpdateEvent(
            task_id=self.task.id, context_id=self.task.context_id, artifact=piece, append=append, last_chunk=is_last
        )

    def _step(self, event: events.Event, **facts: Any) -> pb.TaskStatusUpdateEvent:
        facts = {"event": type(event).__name__, **_location(event), **facts}
        return self._status(event, pb.TASK_STATE_WORKING, facts)

    def _add_answer(self, answered: events.InterruptAnswered) -> None:
        self.interrupts.pop(answered.interrupt_id, None)
        answer = answered.answer
        data = Data({"interruptId": answered.interrupt_id, "answer": answer})
        content: Content = answer if isinstance(answer, str) else (data,)
        self._add_user_message(answered.key, content, answered.values)

    def _fail(self, event: events.RunFailed) -> pb.TaskStatusUpdateEvent:
        is_rejected = event.error_type in _REJECTIONS
        state = pb.TASK_STATE_REJECTED if is_rejected else pb.TASK_STATE_FAILED
        text = event.public_message or ("The task was rejected." if is_rejected else FAILED_TEXT)
        if self._show_errors and not event.public_message:
            text = f"{event.error_type}: {event.message}"
        return self._status(event, state, message=self._message(event.key, pb.ROLE_AGENT, text))

    def _suspend(self, event: events.RunSuspended) -> pb.TaskStatusUpdateEvent:
        raised = [self.interrupts[id] for id in event.interrupt_ids if id in self.interrupts]
        message = self._message(event.key, pb.ROLE_AGENT, "")
        for interrupt in raised:
            message.parts.extend(to_interrupt_parts(interrupt))
        needs_auth = any(interrupt_kind(interrupt) == AUTH_REQUIRED for interrupt in raised)
        state = pb.TASK_STATE_AUTH_REQUIRED if needs_auth else pb.TASK_STATE_INPUT_REQUIRED
        self.task.history.append(message)
        return self._status(event, state, message=message)

    def _status(
        self,
        event: events.Event,
        state: pb.TaskState,
        facts: Mapping[str, Any] | None = None,
        *,
        message: pb.Message | None = None,
    ) -> pb.TaskStatusUpdateEvent:
        status = pb.TaskStatus(state=state, timestamp=_timestamp(event.timestamp), message=message)
        self.task.status.CopyFrom(status)
        return self._status_update(status, facts or {})

    def _status_update(self, status: pb.TaskStatus, facts: Mapping[str, Any]) -> pb.TaskStatusUpdateEvent:
        update = pb.TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status)
        if facts:
            update.metadata.CopyFrom(to_struct(facts))
        return update

    def _message(self, key: str, role: pb.Role, content: Content) -> pb.Message:
        return pb.Message(
            message_id=f"{self.task.id}-{key}",
            task_id=self.task.id,
            context_id=self.task.context_id,
            role=role,
            parts=to_parts(content),
        )


def _location(place: events.Event | events.Delta | events.Origin) -> dict[str, Any]:
    return {"agent": place.agent, "path": list(place.path[-_MAX_PATH:])}


def _timestamp(at: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMilliseconds(int(at * 1000))
    return timestamp


def to_thread(principal: Principal, context_id: str) -> str:
    """Return the thread of a principal's context."""
    if principal.name or ":" not in context_id:
        return principal.to_store_id(context_id)
    # The part before a colon would be taken for an owner.
    return f":{context_id}"


def parallel_thread(thread: str, run_id: str) -> str:
    """Return the thread of a task that runs at the same time as another one in its context."""
    return f"{thread}#{run_id}"


def to_context_id(record: RunRecord) -> str:
    """Return the context of a run; a run without a thread is a context of its own."""
    thread = record.thread.removesuffix(f"#{record.run_id}")
    return (Principal(record.owner).to_public_id(thread) if record.owner else thread.removeprefix(":")) or record.run_id


_STATUSES: dict[int, RunStatus] = {
    pb.TASK_STATE_SUBMITTED: "running",
    pb.TASK_STATE_WORKING: "running",
    pb.TASK_STATE_INPUT_REQUIRED: "suspended",
    pb.TASK_STATE_AUTH_REQUIRED: "suspended",
    pb.TASK_STATE_COMPLETED: "completed",
    pb.TASK_STATE_FAILED: "failed",
    pb.TASK_STATE_REJECTED: "failed",
    pb.TASK_STATE_CANCELED: "cancelled",
}
_AMBIGUOUS_STATES = frozenset(state for state, status in _STATUSES.items() if [*_STATUSES.values()].count(status) > 1)
"""States that share a run status with another state; only the log distinguishes them."""


class TaskReader:
    """Loads and lists the tasks of a store."""

    def __init__(self, store: FullStore, *, show_errors: bool = False) -> None:
        self.store = store
        self._show_errors = show_errors

    def new(self, task_id: str, context_id: str) -> TaskProjection:
        """Return a task without events."""
        return TaskProjection(task_id, context_id, show_errors=self._show_errors)

    async def load(self, record: RunRecord) -> TaskProjection:
        """Return the task of a stored run, up to the last event that its record knows."""
        projection = self.new(record.run_id, to_context_id(record))
        for event in events.decode_lines((await self.store.load(record.run_id))[: record.seq]):
            projection.apply(event)
        return projection

    async def list(self, request: pb.ListTasksRequest, principal: Principal) -> pb.ListTasksResponse:
        """Return a page of tasks, the most recently changed first.

        Raises:
            InvalidParamsError: The request is invalid.
        """
        validate_history_length(request)
        if request.HasField("page_size"):
            validate_page_size(request.page_size)
        records = await self._find(request, principal)
        size = request.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        page = pb.ListTasksResponse(page_size=size, total_size=records.total or 0)
        for record in records.records:
            # Some stores answer without waiting, and the leases of live runs must be renewed meanwhile.
            await asyncio.sleep(0)
            task = apply_history_length((await self.load(record)).task, request)
            if not request.include_artifacts:
                task.ClearField("artifacts")
            page.tasks.append(task)
        if records.next_cursor:
            page.next_page_token = urlsafe_b64encode(records.next_cursor.encode()).decode()
        return page

    async def _find(self, request: pb.ListTasksRequest, principal: Principal) -> RecordPage:
        base = RunFilters(owner=principal.owner_filter)
        if request.status in _STATUSES:
            base["status"] = [_STATUSES[request.status]]
        filters = base.copy()
        size = request.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        cursor = _parse_page_token(request.page_token)
        filters.update(order_by="changed", limit=size, cursor=cursor, count_total=True)
        if request.HasField("status_timestamp_after"):
            # Clients see milliseconds.
            filters["since"] = ceil(request.status_timestamp_after.ToNanoseconds() / 1e6) / 1000
        try:
            if not request.context_id and request.status not in _AMBIGUOUS_STATES:
                return await self.store.list(**filters)
            query = parse_filters(filters)
        except StoreError as error:
            if error.store:
                raise
            raise _invalid_page_token() from None
        # Filters that the store does not have are applied here.
        records = [record async for record in iter_records(self.store, **base) if await self._matches(record, request)]
        return select_page(query, records)

    async def _matches(self, record: RunRecord, request: pb.ListTasksRequest) -> bool:
        if request.context_id and to_context_id(record) != request.context_id:
            return False
        if request.status not in _AMBIGUOUS_STATES:
            return True
        await asyncio.sleep(0)
        return (await self.load(record)).task.status.state == request.status


def page_to_dict(page: pb.ListTasksResponse) -> dict[str, Any]:
    """Return a page as JSON; the fields of the page are always present."""
    return {
        "tasks": [MessageToDict(task) for task in page.tasks],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def _parse_page_token(token: str) -> str:
    try:
        return b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise _invalid_page_token() from None


def _invalid_page_token() -> InvalidParamsError:
    return InvalidParamsError("the page token is invalid; request the first page without one")
