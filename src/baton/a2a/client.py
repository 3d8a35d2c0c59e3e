"""The connection to a remote service: its card, and the SDK's client on an HTTP client of our own.

One turn of a remote task: what is sent, what is heard until it stops, and what it comes to.
"""

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

_CONNECT = 10.0

Credentials: TypeAlias = str | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""A bearer token, or a function that gives the headers for the next request."""


class A2AServiceClient:
    """One service, in one event loop."""

    def __init__(
        self, where: str | AgentCard, *, auth: Credentials | None, headers: Mapping[str, str], timeout: float
    ) -> None:
        import httpx

        self._where = where
        self._auth = auth
        # Answers may take long; that there is no connection is known soon.
        limits = httpx.Timeout(timeout, connect=_CONNECT)
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._sign]}
        self._http = httpx.AsyncClient(timeout=limits, headers=dict(headers), event_hooks=hooks)
        self._client: Client | None = None
        self.card: AgentCard | None = where if isinstance(where, AgentCard) else None

    async def _sign(self, request: "httpx.Request") -> None:
        if isinstance(self._auth, str):
            request.headers["Authorization"] = f"Bearer {self._auth}"
        elif self._auth is not None:
            given = self._auth()
            request.headers.update(await given if isawaitable(given) else given)

    async def client(self) -> Client:
        """The SDK's client; the card is fetched when it is first needed."""
        if self._client is None:
            if self.card is None:
                self.card = await A2ACardResolver(self._http, cast("str", self._where)).get_agent_card()
            config = ClientConfig(
                httpx_client=self._http,
                supported_protocol_bindings=[TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON],
                streaming=self.streams,
                polling=not self.streams,
            )
            self._client = ClientFactory(config).create(self.card)
        return self._client

    @property
    def streams(self) -> bool:
        """Whether the service tells what happens while it happens."""
        return self.card is not None and self.card.capabilities.streaming

    async def send(self, message: Message) -> AsyncGenerator[StreamResponse]:
        """Say something; what comes of it. If the service does not stream, that is a task to look at again."""
        client = await self.client()
        async for response in _closing(client.send_message(SendMessageRequest(message=message))):
            yield response

    async def listen(self, task_id: str) -> AsyncGenerator[StreamResponse]:
        """How a task stands, and what happens in it if the service streams."""
        client = await self.client()
        if not self.streams:
            yield StreamResponse(task=await self.get(task_id))
            return
        async for response in _closing(client.subscribe(SubscribeToTaskRequest(id=task_id))):
            yield response

    async def get(self, task_id: str) -> Task:
        """How a task stands."""
        return await (await self.client()).get_task(GetTaskRequest(id=task_id))

    async def cancel(self, task_id: str) -> None:
        """Have a task stopped."""
        await (await self.client()).cancel_task(CancelTaskRequest(id=task_id))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _closing(responses: AsyncIterator[StreamResponse]) -> AsyncGenerator[StreamResponse]:
    # The SDK's generators, one inside the other, would close the response only when they are collected.
    stream = cast("AsyncGenerator[StreamResponse]", responses)
    try:
        async for response in stream:
            yield response
    finally:
        await stream.aclose()


_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0
_WAITS = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)


class RemoteTask:
    """What is known of one remote task while we listen to it. `hear` is called with text that is new."""

    def __init__(self, agent: str, link: A2AServiceClient, patience: float, hear: Callable[[str], Any]) -> None:
        self._agent = agent
        self._link = link
        self._patience = patience
        self._hear = hear
        self._open: AsyncGenerator[StreamResponse] | None = None
        self._is_fresh = False
        """Whether the next task that comes may still show the state before our message."""
        self._task = Task()
        self._reply: Message | None = None
        self._told: dict[str, int] = {}

    async def send(self, message: Message) -> dict[str, Any]:
        """Say something, and keep listening. The ids of the task, or the reply if there is no task."""
        latest, pause, may_be_there = monotonic() + self._patience, _FIRST_PAUSE, False
        while True:
            try:
                if not may_be_there or not await self._is_past(message):
                    await self._begin(message)
                break
            except StopAsyncIteration:
                raise RemoteError(self._agent, "it closed the connection and said nothing") from None
            except A2AClientError as error:
                # What has left may have arrived. If there is a task already, it tells; if not, nobody does.
                may_be_there = may_be_there or not _never_left(error)
                if (may_be_there and not message.task_id) or monotonic() + pause > latest:
                    raise self._unavailable(error) from error
            except A2AError as error:
                # If it has the answer already, we were stopped before we could write that down.
                if message.task_id and await self._is_past(message):
                    break
                raise RemoteError(self._agent, f"it does not take the message: {error.message}") from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if self._reply is not None:
            return {"reply": [MessageToDict(part) for part in self._reply.parts]}
        return {"task": self._task.id, "context": self._task.context_id}

    async def outcome(self, task_id: str) -> dict[str, Any]:
        """Listen until the task stops; what it has come to. A connection that is lost is made anew."""
        self._task.id = task_id
        since, pause = monotonic(), _FIRST_PAUSE
        while not self._has_stopped():
            stream, self._open = self._open or self._link.listen(task_id), None
            try:
                async for response in stream:
                    since, pause = monotonic(), _FIRST_PAUSE
                    await self._take(response)
                    if self._has_stopped():
                        break
                else:
                    self._is_fresh = False
                    await self._take(StreamResponse(task=await self._link.get(task_id)))
            except TaskNotFoundError as error:
                raise RemoteError(self._agent, "it does not know the task any more", task_id=task_id) from error
            except UnsupportedOperationError:
                # It has ended between two looks at it.
                await self._take(StreamResponse(task=await self._link.get(task_id)))
            except A2AClientError as error:
                if monotonic() - since > self._patience:
                    raise self._unavailable(error) from error
            except A2AError as error:
                raise RemoteError(self._agent, error.message, task_id=task_id) from error
            finally:
                await stream.aclose()
            if not self._has_stopped():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)
        return self._summary()

    async def _begin(self, message: Message) -> None:
        self._open = self._link.send(message)
        self._is_fresh = True
        await self._take(await anext(self._open))

    async def _is_past(self, message: Message) -> bool:
        """Whether a task waits no more for what a message answers."""
        self._open, self._is_fresh = None, False
        self._task.CopyFrom(await self._link.get(message.task_id))
        answered, asked = _interrupts_in(message), _interrupts_in(self._task.status.message)
        return self._task.status.state not in _WAITS or bool(answered and asked and not answered & asked)

    def _has_stopped(self) -> bool:
        state = self._task.status.state
        return state in TERMINAL or (state in _WAITS and not self._is_fresh)

    async def _take(self, response: StreamResponse) -> None:
        kind = response.WhichOneof("payload")
        if kind == "message":
            self._reply = response.message
        elif kind == "task":
            was_fresh, self._is_fresh = self._is_fresh, False
            self._task.CopyFrom(response.task)
            self._is_fresh = was_fresh and response.task.status.state in _WAITS and self._link.streams
            for artifact in self._task.artifacts:
                _joined(artifact)
                await self._tell(artifact)
        elif kind == "status_update":
            self._is_fresh = False
            self._task.status.CopyFrom(response.status_update.status)
        elif kind == "artifact_update":
            await self._take_artifact(response.artifact_update)

    async def _take_artifact(self, update: TaskArtifactUpdateEvent) -> None:
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
        _joined(known)
        await self._tell(known)

    async def _tell(self, artifact: Artifact) -> None:
        """Pass on what is new of an artifact's text; what was replaced is not told again."""
        text = "".join(part.text for part in artifact.parts)
        told = self._told.get(artifact.artifact_id, 0)
        if len(text) > told:
            self._told[artifact.artifact_id] = len(text)
            await self._hear(text[told:])

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
        return RemoteUnavailableError(self._agent, f"it cannot be reached: {error.message}", task_id=self._task.id)


def parts_from(given: list[dict[str, Any]]) -> list[Part]:
    """Parts as they were recorded."""
    return [ParseDict(each, Part()) for each in given]


def _joined(artifact: Artifact) -> None:
    """Make one text of chunks of text that follow one another."""
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


def _interrupts_in(message: Message) -> set[str]:
    """The ids of questions that a message asks or answers; none if it does so in words alone."""
    given = [plain_value(part.data) for part in message.parts if part.HasField("data")]
    known = [cast("dict[str, Any]", each) for each in given if isinstance(each, dict)]
    return {str(each["interruptId"]) for each in known if each.get("interruptId")}


def _is_answer(artifact: Artifact) -> bool:
    """Whether it is not only a remark on the way: services of Baton say so, others say nothing about it."""
    return "answer" not in artifact.metadata or bool(artifact.metadata["answer"])


def _never_left(error: A2AClientError) -> bool:
    import httpx

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
