"""The state of one remote task, and the exchange of messages with its service."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from time import monotonic
from typing import Any

from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError, InvalidAgentResponseError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict

from ..errors import RemoteError, RemoteUnavailableError
from ..log.events import payload_fields
from .a2a_client import A2AServiceClient, is_connect_error, reporting_invalid_responses
from .parts import TERMINAL, plain_value

_MIN_DELAY = 0.2
_MAX_DELAY = 3.0
_SUSPENDED = (pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED)


class RemoteTask:
    """The state of one remote task while its updates are received."""

    def __init__(
        self, agent: str, client: A2AServiceClient, unavailable_timeout: float, on_text: Callable[[str], Any]
    ) -> None:
        self._agent = agent
        self._client = client
        self._unavailable_timeout = unavailable_timeout
        self._on_text = on_text
        self._stream: AsyncGenerator[pb.StreamResponse] | None = None
        self._may_be_stale = False
        """True while the next task may still have the state before our message."""
        self._task = pb.Task()
        self._reply: pb.Message | None = None
        self._sent_lengths: dict[str, int] = {}
        self._reconnect_delay = _MIN_DELAY
        self._unavailable_since: float | None = None
        """The time of the first failure since the service responded."""

    async def send(self, message: pb.Message) -> dict[str, Any]:
        """Send a message and keep its stream open.

        Returns:
            The id of the task, or the reply if there is no task, and the id of the context.
        """
        deadline = monotonic() + self._unavailable_timeout
        delay = _MIN_DELAY
        may_have_arrived = False
        while True:
            try:
                if not may_have_arrived or not await self._has_moved_on(message):
                    await self._send_unless_answered(message)
                return self._receipt()
            except A2AClientError as error:
                # A message that was sent may have arrived; only an existing task can tell.
                may_have_arrived = may_have_arrived or not is_connect_error(error)
                if (may_have_arrived and not message.task_id) or monotonic() + delay > deadline:
                    raise self._unavailable(error) from error
            except InvalidAgentResponseError as error:
                raise RemoteError(self._agent, error.message, task_id=message.task_id) from error
            except A2AError as error:
                reason = f"the service rejected the message: {error.message}"
                raise RemoteError(self._agent, reason, task_id=message.task_id) from error
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_DELAY)

    def _receipt(self) -> dict[str, Any]:
        if self._reply is None:
            return {"task": self._task.id, "context": self._task.context_id}
        with reporting_invalid_responses():
            parts = [MessageToDict(part) for part in self._reply.parts]
        return {"reply": parts, "context": self._reply.context_id}

    async def outcome(self, task_id: str) -> dict[str, Any]:
        """Receive updates until the task stops, reconnecting as needed, and return its outcome."""
        self._task.id = task_id
        while not self._has_stopped():
            try:
                await self._receive_updates(task_id)
            except TaskNotFoundError as error:
                raise RemoteError(self._agent, "the service no longer has the task", task_id=task_id) from error
            except A2AClientError as error:
                if self._unavailable_since is None:
                    self._unavailable_since = monotonic()
                elif monotonic() - self._unavailable_since > self._unavailable_timeout:
                    raise self._unavailable(error) from error
            except A2AError as error:
                raise RemoteError(self._agent, error.message, task_id=task_id) from error
            if not self._has_stopped():
                await asyncio.sleep(self._reconnect_delay)
                self._reconnect_delay = min(self._reconnect_delay * 1.5, _MAX_DELAY)
        try:
            with reporting_invalid_responses():
                return self._summary()
        except InvalidAgentResponseError as error:
            raise RemoteError(self._agent, error.message, task_id=task_id) from error

    async def _receive_updates(self, task_id: str) -> None:
        """Receive the updates of one stream, then the state of the task unless it has stopped."""
        stream = self._stream or self._client.subscribe(task_id)
        self._stream = None
        try:
            async for response in stream:
                self._unavailable_since = None
                self._reconnect_delay = _MIN_DELAY
                await self._handle(response)
                if self._has_stopped():
                    return
            self._may_be_stale = False
        except UnsupportedOperationError:
            pass  # The task has ended since the last update.
        finally:
            await stream.aclose()
        task = await self._client.get(task_id)
        self._unavailable_since = None
        await self._handle(pb.StreamResponse(task=task))

    async def _send_unless_answered(self, message: pb.Message) -> None:
        try:
            await self._send_once(message)
        except (A2AClientError, InvalidAgentResponseError):
            raise
        except A2AError:
            # If the task has the answer already, we were stopped before we could record that.
            if not message.task_id or not await self._has_moved_on(message):
                raise

    async def _send_once(self, message: pb.Message) -> None:
        self._stream = self._client.send(message)
        self._may_be_stale = True
        response = await anext(self._stream, None)
        if response is None:
            raise InvalidAgentResponseError("the service closed the connection without a response")
        await self._handle(response)
        if self._reply is None and not self._task.id:
            raise InvalidAgentResponseError("the service sent an invalid response: neither a task nor a message")

    async def _has_moved_on(self, message: pb.Message) -> bool:
        """Return whether the task no longer needs the answers in a message."""
        self._stream = None
        self._may_be_stale = False
        self._task.CopyFrom(await self._client.get(message.task_id))
        answered = _interrupt_ids(message)
        raised = _interrupt_ids(self._task.status.message)
        return self._task.status.state not in _SUSPENDED or bool(answered and raised and not answered & raised)

    def _has_stopped(self) -> bool:
        state = self._task.status.state
        return state in TERMINAL or (state in _SUSPENDED and not self._may_be_stale)

    async def _handle(self, response: pb.StreamResponse) -> None:
        kind = response.WhichOneof("payload")
        if kind == "message":
            self._reply = response.message
        elif kind == "task":
            self._task.CopyFrom(response.task)
            is_suspended = response.task.status.state in _SUSPENDED
            self._may_be_stale = self._may_be_stale and is_suspended and self._client.supports_streaming
            for artifact in self._task.artifacts:
                _join_texts(artifact)
                await self._send_text(artifact)
        elif kind == "status_update":
            self._may_be_stale = False
            self._identify(response.status_update)
            self._task.status.CopyFrom(response.status_update.status)
        elif kind == "artifact_update":
            self._identify(response.artifact_update)
            await self._handle_artifact(response.artifact_update)

    def _identify(self, update: pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> None:
        """Take the ids from an update, for services whose streams do not begin with the task."""
        self._task.id = self._task.id or update.task_id
        self._task.context_id = self._task.context_id or update.context_id

    async def _handle_artifact(self, update: pb.TaskArtifactUpdateEvent) -> None:
        id = update.artifact.artifact_id
        artifact = next((each for each in self._task.artifacts if each.artifact_id == id), None)
        if artifact is None:
            artifact = self._task.artifacts.add()
            artifact.CopyFrom(update.artifact)
        elif update.append:
            artifact.parts.extend(update.artifact.parts)
            artifact.metadata.MergeFrom(update.artifact.metadata)
        else:
            artifact.CopyFrom(update.artifact)
        _join_texts(artifact)
        await self._send_text(artifact)

    async def _send_text(self, artifact: pb.Artifact) -> None:
        """Send the new text of an artifact; replaced text is not sent again."""
        text = "".join(part.text for part in artifact.parts)
        sent = self._sent_lengths.get(artifact.artifact_id, 0)
        if len(text) > sent:
            self._sent_lengths[artifact.artifact_id] = len(text)
            await self._on_text(text[sent:])

    def _summary(self) -> dict[str, Any]:
        status = self._task.status
        task = self._task
        answers = [each for each in task.artifacts if _is_answer(each)] or [*task.artifacts]
        parts = [part for artifact in answers for part in artifact.parts]
        if not parts and status.HasField("message"):
            parts = [*status.message.parts]
        return {
            "state": pb.TaskState.Name(status.state).removeprefix("TASK_STATE_").lower(),
            "parts": [MessageToDict(part) for part in parts],
            "said": "\n".join(part.text for part in status.message.parts if part.text),
            "questions": [plain_value(part.data) for part in status.message.parts if part.HasField("data")],
        }

    def _unavailable(self, error: A2AClientError) -> RemoteUnavailableError:
        reason = f"the service is unavailable: {error.message}"
        return RemoteUnavailableError(self._agent, reason, task_id=self._task.id)


def parse_parts(recorded: list[dict[str, Any]]) -> list[pb.Part]:
    """Return parts from the JSON in the log."""
    return [ParseDict(part, pb.Part()) for part in recorded]


def _join_texts(artifact: pb.Artifact) -> None:
    """Join consecutive text parts."""
    parts: list[pb.Part] = []
    for part in artifact.parts:
        if parts and part.WhichOneof("content") == "text" and parts[-1].WhichOneof("content") == "text":
            parts[-1].text += part.text
        else:
            copy = pb.Part()
            copy.CopyFrom(part)
            parts.append(copy)
    del artifact.parts[:]
    artifact.parts.extend(parts)


def _interrupt_ids(message: pb.Message) -> set[str]:
    data = [payload_fields(plain_value(part.data)) for part in message.parts if part.HasField("data")]
    return {str(fields["interruptId"]) for fields in data if fields.get("interruptId")}


def _is_answer(artifact: pb.Artifact) -> bool:
    # Services of Baton mark intermediate responses in the metadata.
    return "answer" not in artifact.metadata or bool(artifact.metadata["answer"])
