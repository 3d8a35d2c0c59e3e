"""A run told as a task: its log read from the beginning, one event at a time, and what each one changes.

The same reading makes the snapshot of a task that is stored and the updates of one that is under way. Ids and times
come from the log alone, so that every replica tells the same.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp

from ...errors import TaskDeclinedError
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
)
from ...messages import Content, Data, UserMessage, is_empty
from .parts import data_part, parts_of, struct_of
from .questions import AUTH_REQUIRED, kind_of, question_data, question_text

Update: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

ABOUT = "a2a"
"""The key in a run's values with what is known of the message that came last: its id, its metadata, its sender."""

REPLY = "a2a.reply"
"""The key in a run's values with which an agent says how it wants to answer: "message" for a message without a task."""

FAILED_TEXT = "The task failed. Whoever runs the service has the details."
_INSIDE_A_CALL = re.compile(r"/m\d+\.\d+/")
_REFUSALS = ("TaskDeclinedError", "GuardrailTrippedError", "RemoteRejectedError")
_LONGEST_PATH = 16
TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)

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
