"""A run told as a task: its log read from the beginning, one event at a time, and what each one changes.

The same reading makes the snapshot of a task that is stored and the updates of one that is under way. Ids and times
come from the log alone, so that every replica tells the same.

Which thread of the store a context of A2A is: callers that have names have threads of their own.

Lists the tasks of one caller: those that changed last come first, and pages neither repeat nor skip one.
"""

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from math import ceil
from typing import Any, TypeAlias, cast

from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from ...a2a.parts import AUTH_REQUIRED, TERMINAL, data_part, kind_of, parts_of, question_data, question_text, struct_of
from ...errors import StoreError, TaskDeclinedError
from ...events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
    decode_lines,
)
from ...messages import Content, Data, UserMessage, is_empty
from ...stores import RecordPage, RunFilters, RunRecord, RunStatus, Store, iter_records
from ...stores.records import parse_filters as query_for
from ...stores.records import select_page
from ..http import Principal

Update: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

ABOUT = "a2a"
"""The key in a run's values with what is known of the message that came last: its id, its metadata, its sender."""

REPLY = "a2a.reply"
"""The key in a run's values with which an agent says how it wants to answer: "message" for a message without a task."""

FAILED_TEXT = "The task failed. Whoever runs the service has the details."
_INSIDE_A_CALL = re.compile(r"/m\d+\.\d+/")
_REFUSALS = ("TaskDeclinedError", "GuardrailTrippedError", "RemoteRejectedError")
_LONGEST_PATH = 16
STOPPED = TERMINAL | {TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED}


class TaskProjection:
    """One task while its log is read."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task = Task(id=task_id, context_id=context_id, status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
        self.heard = 0
        """How many events of the log have been read."""
        self.questions: dict[str, InterruptRaised] = {}
        """Those that are open, by id."""
        self.wants_message = False
        """Whether the agent wants to answer with a message, for callers who wait for the answer."""
        self._artifacts: dict[str, Artifact] = {}
        self._spoken: dict[str, int] = {}
        self._streamed: dict[str, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether the task has come to an end, and can change no more."""
        return self.task.status.state in TERMINAL

    def hear(self, event: Event) -> list[Update]:
        """Take the next event of the log; what it changes."""
        self.heard += 1
        if (
            isinstance(event, AgentResponded | StepCompleted | ControlTransferred | AgentFinished)
            and event.value_changes is not None
        ):
            self.wants_message = event.value_changes.written.get(REPLY, self.wants_message) in ("message", True)
        match event:
            case RunStarted():
                self._begin(event)
                return []
            case AgentResponded() if not is_empty(event.message) and not _INSIDE_A_CALL.search(event.origin.id):
                return self._said(event, event.message.content, is_answer=not event.message.tool_calls)
            case AgentResponded():
                self._close(event.origin)
                return []
            case ToolReturned() if event.is_final and not _INSIDE_A_CALL.search(event.origin.id):
                return [self._step(event), *self._said(event, event.content, is_answer=True)]
            case AgentStarted() | ControlTransferred() | ToolReturned() | StepCompleted():
                return [self._step(event)]
            case InterruptRaised():
                self.questions[event.key] = event
                return []
            case InterruptAnswered():
                self._answer(event)
                return []
            case RunResumed():
                return [self._status(event, TaskState.TASK_STATE_WORKING)]
            case RunCompleted() | RunSuspended() | RunFailed() | RunCancelled():
                return [self._stopped(event)]
            case _:
                return []

    def as_message(self) -> Message:
        """The answer as a message, once the task is completed."""
        parts = self.task.artifacts[-1].parts if self.task.artifacts else ()
        return Message(
            message_id=f"{self.task.id}-reply",
            context_id=self.task.context_id,
            role=Role.ROLE_AGENT,
            parts=parts,
        )

    def hear_text(self, origin: Origin, text: str) -> TaskArtifactUpdateEvent | None:
        """Take some more of a text that an agent is writing, before the log has it."""
        if _INSIDE_A_CALL.search(origin.id):
            return None
        id = self._artifact_id(origin)
        is_new = id not in self._artifacts
        artifact = self._artifact(id, origin)
        self._streamed[origin.id] = self._streamed.get(origin.id, "") + text
        if is_new:
            artifact.parts.append(Part(text=text))
        else:
            artifact.parts[0].text += text
        return self._chunk(artifact, [Part(text=text)], append=not is_new, is_last=False)

    def hear_progress(self, progress: ProgressDelta, at: float) -> TaskStatusUpdateEvent | None:
        """Take word of how far something has come; it is told and not kept."""
        if not progress.text:
            return None
        status = TaskStatus(state=self.task.status.state, timestamp=_timestamp(at))
        status.message.CopyFrom(self._message(f"progress{at}", Role.ROLE_AGENT, progress.text))
        facts = {"event": "progress", "agent": progress.agent, "path": list(progress.path[-_LONGEST_PATH:])}
        return self._status_update(status, {**facts, "done": progress.done, "total": progress.total})

    def _begin(self, started: RunStarted) -> None:
        self.task.status.timestamp.CopyFrom(_timestamp(started.timestamp))
        given = [message for message in started.input if isinstance(message, UserMessage)]
        if given:
            self._receive("input", given[-1].content, started.values)

    def _receive(self, key: str, content: Content, values: Mapping[str, Any]) -> None:
        """Take in a message from outside, under the id that it came with."""
        about = cast("Mapping[str, Any]", values.get(ABOUT) or {})
        message = self._message(key, Role.ROLE_USER, content)
        message.message_id = str(about.get("messageId") or message.message_id)
        if about.get("metadata"):
            message.metadata.CopyFrom(struct_of(about["metadata"]))
        self.task.history.append(message)

    def _said(self, event: Event, content: Content, *, is_answer: bool) -> list[Update]:
        origin, id = event.origin, self._artifact_id(event.origin)
        streamed, parts = self._streamed.get(origin.id, ""), parts_of(content)
        is_new = id not in self._artifacts
        artifact = self._artifact(id, origin)
        artifact.metadata.CopyFrom(struct_of({**_where(event), "answer": is_answer}))
        del artifact.parts[:]
        artifact.parts.extend(parts)
        self._close(origin)
        if not is_new and isinstance(content, str) and content.startswith(streamed):
            rest = content[len(streamed) :]
            return [self._chunk(artifact, [Part(text=rest)], append=True, is_last=True)]
        # Nothing was streamed; or some of it was missed, or taken back: then the whole stands in its place.
        return [self._chunk(artifact, parts, append=False, is_last=True)]

    def _close(self, origin: Origin) -> None:
        self._spoken[origin.id] = self._spoken.get(origin.id, 0) + 1
        self._streamed.pop(origin.id, None)

    def _artifact_id(self, origin: Origin) -> str:
        return f"{origin.id}.{self._spoken.get(origin.id, 0)}"

    def _artifact(self, id: str, origin: Origin) -> Artifact:
        if id not in self._artifacts:
            artifact = self.task.artifacts.add(artifact_id=id, name=origin.agent)
            artifact.metadata.CopyFrom(struct_of({"agent": origin.agent, "path": list(origin.path[-_LONGEST_PATH:])}))
            self._artifacts[id] = artifact
        return self._artifacts[id]

    def _chunk(self, artifact: Artifact, parts: list[Part], *, append: bool, is_last: bool) -> TaskArtifactUpdateEvent:
        piece = Artifact(artifact_id=artifact.artifact_id, name=artifact.name, parts=parts, metadata=artifact.metadata)
        return TaskArtifactUpdateEvent(
            task_id=self.task.id, context_id=self.task.context_id, artifact=piece, append=append, last_chunk=is_last
        )

    def _step(self, event: AgentStarted | ControlTransferred | ToolReturned | StepCompleted) -> TaskStatusUpdateEvent:
        facts: dict[str, Any] = {"event": type(event).__name__, **_where(event)}
        match event:
            case ControlTransferred():
                facts["target"] = event.target
            case ToolReturned():
                facts |= {"tool": event.tool_name, "isError": event.is_error}
            case StepCompleted():
                facts["step"] = event.name
            case _:
                pass
        return self._status(event, TaskState.TASK_STATE_WORKING, facts)

    def _answer(self, answered: InterruptAnswered) -> None:
        self.questions.pop(answered.interrupt_id, None)
        answer = answered.answer
        said = answer if isinstance(answer, str) else (Data({"interruptId": answered.interrupt_id, "answer": answer}),)
        self._receive(answered.key, said, answered.values)

    def _stopped(self, event: RunCompleted | RunSuspended | RunFailed | RunCancelled) -> TaskStatusUpdateEvent:
        match event:
            case RunCompleted():
                return self._status(event, TaskState.TASK_STATE_COMPLETED)
            case RunCancelled():
                return self._status(event, TaskState.TASK_STATE_CANCELED)
            case RunFailed():
                is_refused = event.error_type in _REFUSALS
                state = TaskState.TASK_STATE_REJECTED if is_refused else TaskState.TASK_STATE_FAILED
                text = "The task was refused." if is_refused else FAILED_TEXT
                if event.error_type == TaskDeclinedError.__name__ and event.message:
                    text = event.message  # The only words of an error that are meant for whoever asked.
                return self._status(event, state, message=self._message(event.key, Role.ROLE_AGENT, text))
            case RunSuspended():
                asked = [self.questions[id] for id in event.interrupt_ids if id in self.questions]
                message = self._message(event.key, Role.ROLE_AGENT, "")
                for question in asked:
                    message.parts.extend([Part(text=question_text(question)), data_part(question_data(question))])
                wants_auth = any(kind_of(question) == AUTH_REQUIRED for question in asked)
                state = TaskState.TASK_STATE_AUTH_REQUIRED if wants_auth else TaskState.TASK_STATE_INPUT_REQUIRED
                self.task.history.append(message)
                return self._status(event, state, message=message)

    def _status(
        self, event: Event, state: TaskState, facts: Mapping[str, Any] | None = None, *, message: Message | None = None
    ) -> TaskStatusUpdateEvent:
        status = TaskStatus(state=state, timestamp=_timestamp(event.timestamp), message=message)
        self.task.status.CopyFrom(status)
        return self._status_update(status, facts or {})

    def _status_update(self, status: TaskStatus, facts: Mapping[str, Any]) -> TaskStatusUpdateEvent:
        update = TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status)
        if facts:
            update.metadata.CopyFrom(struct_of(facts))
        return update

    def _message(self, key: str, role: Role, content: Content) -> Message:
        return Message(
            message_id=f"{self.task.id}-{key}",
            task_id=self.task.id,
            context_id=self.task.context_id,
            role=role,
            parts=parts_of(content),
        )


def _where(event: Event) -> dict[str, Any]:
    return {"agent": event.agent, "path": list(event.path[-_LONGEST_PATH:])}


def _timestamp(at: float) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(int(at * 1000))
    return made


def thread_of(caller: Principal, context_id: str) -> str:
    """The thread of a caller's context; the context id itself, if the caller has no name."""
    if caller.name or ":" not in context_id:
        return caller.inside(context_id)
    # What is before a colon would pass for a caller's name.
    return f":{context_id}"


def parallel_thread(thread: str, run_id: str) -> str:
    """A thread for a task that runs beside another in the same context."""
    return f"{thread}#{run_id}"


def context_of(record: RunRecord) -> str:
    """The context that a run is part of; a run that has no thread is a context of its own."""
    thread = record.thread.removesuffix(f"#{record.run_id}")
    return (Principal(record.owner).outside(thread) if record.owner else thread.removeprefix(":")) or record.run_id


def can_be_context(context_id: str) -> bool:
    """Whether a caller may choose this id: only what any store can keep."""
    return "\0" not in context_id


_STATUSES: dict[int, RunStatus] = {
    TaskState.TASK_STATE_SUBMITTED: "running",
    TaskState.TASK_STATE_WORKING: "running",
    TaskState.TASK_STATE_INPUT_REQUIRED: "suspended",
    TaskState.TASK_STATE_AUTH_REQUIRED: "suspended",
    TaskState.TASK_STATE_COMPLETED: "completed",
    TaskState.TASK_STATE_FAILED: "failed",
    TaskState.TASK_STATE_REJECTED: "failed",
    TaskState.TASK_STATE_CANCELED: "cancelled",
}
_ONE_OF_TWO = frozenset(state for state, status in _STATUSES.items() if [*_STATUSES.values()].count(status) > 1)
"""States that share the status of a run with another: only the log tells them apart."""


async def told_from(store: Store, record: RunRecord) -> TaskProjection:
    """A stored run, told as a task, up to where the record knows it."""
    telling = TaskProjection(record.run_id, context_of(record))
    for event in decode_lines((await store.load(record.run_id))[: record.seq]):
        telling.hear(event)
    return telling


async def listed_tasks(store: Store, asked: ListTasksRequest, caller: Principal) -> ListTasksResponse:
    """The page of tasks that was asked for."""
    validate_history_length(asked)
    if asked.HasField("page_size"):
        validate_page_size(asked.page_size)
    found = await _page(store, asked, caller)
    page = ListTasksResponse(page_size=asked.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, total_size=found.total or 0)
    for record in found.records:
        task = apply_history_length((await told_from(store, record)).task, asked)
        if not asked.include_artifacts:
            task.ClearField("artifacts")
        page.tasks.append(task)
    if found.next_cursor:
        page.next_page_token = urlsafe_b64encode(found.next_cursor.encode()).decode()
    return page


def page_as_json(page: ListTasksResponse) -> dict[str, Any]:
    """A page as it goes out: it always says how many tasks there are, and what of them is not set is left out."""
    return {
        "tasks": [MessageToDict(task) for task in page.tasks],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


async def _page(store: Store, asked: ListTasksRequest, caller: Principal) -> RecordPage:
    whose = RunFilters(owner=caller.whose)
    if asked.status in _STATUSES:
        whose["status"] = [_STATUSES[asked.status]]
    wanted = whose.copy()
    size, after = asked.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, _place_in(asked.page_token)
    wanted.update(order_by="updated", limit=size, cursor=after, count_total=True)
    if asked.HasField("status_timestamp_after"):
        # Callers are told milliseconds, and ask in them.
        wanted["since"] = ceil(asked.status_timestamp_after.ToNanoseconds() / 1e6) / 1000
    try:
        if not asked.context_id and asked.status not in _ONE_OF_TWO:
            return await store.list(**wanted)
        query = query_for(wanted)
    except StoreError as error:
        if error.store:
            raise
        raise _no_such_page() from None
    # What the store cannot tell apart is looked for among all that it can.
    return select_page(
        query, [record async for record in iter_records(store, **whose) if await _fits(store, record, asked)]
    )


async def _fits(store: Store, record: RunRecord, asked: ListTasksRequest) -> bool:
    if asked.context_id and context_of(record) != asked.context_id:
        return False
    return asked.status not in _ONE_OF_TWO or (await told_from(store, record)).task.status.state == asked.status


def _place_in(token: str) -> str:
    try:
        return b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise _no_such_page() from None


def _no_such_page() -> InvalidParamsError:
    return InvalidParamsError(message="the page token is none of this service's; begin again without one")
