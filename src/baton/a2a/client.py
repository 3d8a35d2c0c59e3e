"""The client of an A2A service, and the state of one remote task."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from inspect import isawaitable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict

from ..errors import RemoteError, RemoteUnavailableError
from .parts import TERMINAL, plain_value

if TYPE_CHECKING:
    import httpx

_CONNECT_TIMEOUT = 10.0

Credentials: TypeAlias = str | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""A bearer token, or a function that returns headers and is called for each request."""


class A2AServiceClient:
    """A client of one service, for one event loop.

    Args:
        url_or_card: The URL of the service, or its agent card.
        auth: The credentials.
        headers: Headers of every request.
        timeout: Seconds without data after which a request fails.
    """

    def __init__(
        self, url_or_card: str | AgentCard, *, auth: Credentials | None, headers: Mapping[str, str], timeout: float
    ) -> None:
        import httpx

        self._url_or_card = url_or_card
        self._auth = auth
        # Responses may take long; a connection is established quickly or not at all.
        limits = httpx.Timeout(timeout, connect=_CONNECT_TIMEOUT)
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._authorize]}
        self._http = httpx.AsyncClient(timeout=limits, headers=dict(headers), event_hooks=hooks)
        self._sdk_client: Client | None = None
        self.card: AgentCard | None = url_or_card if isinstance(url_or_card, AgentCard) else None

    async def _authorize(self, request: "httpx.Request") -> None:
        if isinstance(self._auth, str):
            request.headers["Authorization"] = f"Bearer {self._auth}"
        elif self._auth is not None:
            headers = self._auth()
            request.headers.update(await headers if isawaitable(headers) else headers)

    async def client(self) -> Client:
        """Return the SDK's client; the card is fetched on first use."""
        if self._sdk_client is None:
            if self.card is None:
                self.card = await A2ACardResolver(self._http, cast("str", self._url_or_card)).get_agent_card()
            config = ClientConfig(
                httpx_client=self._http,
                supported_protocol_bindings=[TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON],
                streaming=self.supports_streaming,
                polling=not self.supports_streaming,
            )
            self._sdk_client = ClientFactory(config).create(self.card)
        return self._sdk_client

    @property
    def supports_streaming(self) -> bool:
        """True if the service streams updates."""
        return self.card is not None and self.card.capabilities.streaming

    async def send(self, message: Message) -> AsyncGenerator[StreamResponse]:
        """Send a message and yield the responses; without streaming, one task that must be polled.

        Args:
            message: The message.
        """
        client = await self.client()
        async for response in _closing(client.send_message(SendMessageRequest(message=message))):
            yield response

    async def subscribe(self, task_id: str) -> AsyncGenerator[StreamResponse]:
        """Yield the current state of a task, and its updates if the service streams.

        Args:
            task_id: The task.
        """
        client = await self.client()
        if not self.supports_streaming:
            yield StreamResponse(task=await self.get(task_id))
            return
        async for response in _closing(client.subscribe(SubscribeToTaskRequest(id=task_id))):
            yield response

    async def get(self, task_id: str) -> Task:
        """Return the current state of a task.

        Args:
            task_id: The task.
        """
        return await (await self.client()).get_task(GetTaskRequest(id=task_id))

    async def cancel(self, task_id: str) -> None:
        """Cancel a task.

        Args:
            task_id: The task.
        """
        await (await self.client()).cancel_task(CancelTaskRequest(id=task_id))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _closing(responses: AsyncIterator[StreamResponse]) -> AsyncGenerator[StreamResponse]:
    # The SDK's nested generators close the response only when they are garbage-collected.
    stream = cast("AsyncGenerator[StreamResponse]", responses)
    try:
        async for response in stream:
            yield response
    finally:
        await stream.aclose()


_MIN_DELAY = 0.2
_MAX_DELAY = 3.0
_SUSPENDED = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)


class RemoteTask:
    """The state of one remote task while its updates are received.

    Args:
        agent: The agent's name, for error messages.
        client: The client of the service.
        unavailable_timeout: Seconds that the service may be unavailable.
        on_text: Called with new text of the task's artifacts.
    """

    def __init__(
        self, agent: str, client: A2AServiceClient, unavailable_timeout: float, on_text: Callable[[str], Any]
    ) -> None:
        self._agent = agent
        self._client = client
        self._unavailable_timeout = unavailable_timeout
        self._on_text = on_text
        self._stream: AsyncGenerator[StreamResponse] | None = None
        self._may_be_stale = False
        """True while the next task may still have the state before our message."""
        self._task = Task()
        self._reply: Message | None = None
        self._sent_lengths: dict[str, int] = {}

    async def send(self, message: Message) -> dict[str, Any]:
        """Send a message and keep its stream open.

        Args:
            message: The message.

        Returns:
            The ids of the task and its context, or the reply if there is no task.
        """
        deadline, delay, may_have_arrived = monotonic() + self._unavailable_timeout, _MIN_DELAY, False
        while True:
            try:
                if not may_have_arrived or not await self._has_moved_on(message):
                    await self._send_once(message)
                break
            except StopAsyncIteration:
                raise RemoteError(self._agent, "the service closed the connection without a response") from None
            except A2AClientError as error:
                # A message that was sent may have arrived; only an existing task can tell.
                may_have_arrived = may_have_arrived or not _is_connect_error(error)
                if (may_have_arrived and not message.task_id) or monotonic() + delay > deadline:
                    raise self._unavailable(error) from error
            except A2AError as error:
                # If the task has the answer already, we were stopped before we could record that.
                if message.task_id and await self._has_moved_on(message):
                    break
                raise RemoteError(self._agent, f"the service rejected the message: {error.message}") from error
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_DELAY)
        if self._reply is not None:
            return {"reply": [MessageToDict(part) for part in self._reply.parts]}
        return {"task": self._task.id, "context": self._task.context_id}

    async def outcome(self, task_id: str) -> dict[str, Any]:
        """Receive updates until the task stops, reconnecting as needed, and return its outcome.

        Args:
            task_id: The task.
        """
        self._task.id = task_id
        last_response, delay = monotonic(), _MIN_DELAY
        while not self._has_stopped():
            stream, self._stream = self._stream or self._client.subscribe(task_id), None
            try:
                async for response in stream:
                    last_response, delay = monotonic(), _MIN_DELAY
                    await self._handle(response)
                    if self._has_stopped():
                        break
                else:
                    self._may_be_stale = False
                    await self._handle(StreamResponse(task=await self._client.get(task_id)))
            except TaskNotFoundError as error:
                raise RemoteError(self._agent, "the service no longer has the task", task_id=task_id) from error
            except UnsupportedOperationError:
                # It has ended since the last update.
                await self._handle(StreamResponse(task=await self._client.get(task_id)))
            except A2AClientError as error:
                if monotonic() - last_response > self._unavailable_timeout:
                    raise self._unavailable(error) from error
            except A2AError as error:
                raise RemoteError(self._agent, error.message, task_id=task_id) from error
            finally:
                await stream.aclose()
            if not self._has_stopped():
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, _MAX_DELAY)
        return self._summary()

    async def _send_once(self, message: Message) -> None:
        self._stream = self._client.send(message)
        self._may_be_stale = True
        await self._handle(await anext(self._stream))

    async def _has_moved_on(self, message: Message) -> bool:
        """Return whether the task no longer needs the answers in a message."""
        self._stream, self._may_be_stale = None, False
        self._task.CopyFrom(await self._client.get(message.task_id))
        answered, raised = _interrupt_ids(message), _interrupt_ids(self._task.status.message)
        return self._task.status.state not in _SUSPENDED or bool(answered and raised and not answered & raised)

    def _has_stopped(self) -> bool:
        state = self._task.status.state
        return state in TERMINAL or (state in _SUSPENDED and not self._may_be_stale)

    async def _handle(self, response: StreamResponse) -> None:
        kind = response.WhichOneof("payload")
        if kind == "message":
            self._reply = response.message
        elif kind == "task":
            self._task.CopyFrom(response.task)
            self._may_be_stale = (
                self._may_be_stale and response.task.status.state in _SUSPENDED and self._client.supports_streaming
            )
            for artifact in self._task.artifacts:
                _join_texts(artifact)
                await self._send_text(artifact)
        elif kind == "status_update":
            self._may_be_stale = False
            self._task.status.CopyFrom(response.status_update.status)
        elif kind == "artifact_update":
            await self._handle_artifact(response.artifact_update)

    async def _handle_artifact(self, update: TaskArtifactUpdateEvent) -> None:
        id = update.artifact.artifact_id
        known = next((each for each in self._task.artifacts if each.artifact_id == id), None)
        if known is None:
            known = self._task.artifacts.add()
            known.CopyFrom(update.artifact)
        elif update.append:
            known.parts.extend(update.artifact.parts)
            known.metadata.MergeFrom(update.artifact.metadata)
        else:
            known.CopyFrom(update.artifact)
        _join_texts(known)
        await self._send_text(known)

    async def _send_text(self, artifact: Artifact) -> None:
        """Send the new text of an artifact; replaced text is not sent again."""
        text = "".join(part.text for part in artifact.parts)
        sent = self._sent_lengths.get(artifact.artifact_id, 0)
        if len(text) > sent:
            self._sent_lengths[artifact.artifact_id] = len(text)
            await self._on_text(text[sent:])

    def _summary(self) -> dict[str, Any]:
        status, task = self._task.status, self._task
        answers = [each for each in task.artifacts if _is_answer(each)] or [*task.artifacts]
        parts = [part for artifact in answers for part in artifact.parts]
        if not parts and status.HasField("message"):
            parts = [*status.message.parts]
        return {
            "state": TaskState.Name(status.state).removeprefix("TASK_STATE_").lower(),
            "parts": [MessageToDict(part) for part in parts],
            "said": "\n".join(part.text for part in status.message.parts if part.text),
            "questions": [plain_value(part.data) for part in status.message.parts if part.HasField("data")],
        }

    def _unavailable(self, error: A2AClientError) -> RemoteUnavailableError:
        return RemoteUnavailableError(
            self._agent, f"the service is unavailable: {error.message}", task_id=self._task.id
        )


def parse_parts(recorded: list[dict[str, Any]]) -> list[Part]:
    """Return parts from the JSON in the log.

    Args:
        recorded: The parts as JSON.
    """
    return [ParseDict(part, Part()) for part in recorded]


def _join_texts(artifact: Artifact) -> None:
    """Join consecutive text parts."""
    parts: list[Part] = []
    for part in artifact.parts:
        if parts and part.WhichOneof("content") == "text" and parts[-1].WhichOneof("content") == "text":
            parts[-1].text += part.text
        else:
            copy = Part()
            copy.CopyFrom(part)
            parts.append(copy)
    del artifact.parts[:]
    artifact.parts.extend(parts)


def _interrupt_ids(message: Message) -> set[str]:
    values = [plain_value(part.data) for part in message.parts if part.HasField("data")]
    data = [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]
    return {str(item["interruptId"]) for item in data if item.get("interruptId")}


def _is_answer(artifact: Artifact) -> bool:
    # Services of Baton mark intermediate responses in the metadata.
    return "answer" not in artifact.metadata or bool(artifact.metadata["answer"])


def _is_connect_error(error: A2AClientError) -> bool:
    import httpx

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
