"""Serve apps on real sockets, and use them with the official client."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from tests.sockets import http_client

from batonkit.serve import serve_in_background

COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
CANCELED = TaskState.TASK_STATE_CANCELED
FAILED = TaskState.TASK_STATE_FAILED
REJECTED = TaskState.TASK_STATE_REJECTED


@asynccontextmanager
async def served(app: Any, port: int = 0, *, host: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Serve an app on this machine; yield its URL."""
    async with serve_in_background(app, host=host, port=port, drain=0, log_level="error", lifespan="on") as url:
        yield url


@asynccontextmanager
async def client_at(
    url: str, *, binding: str = "JSONRPC", streams: bool = True, headers: dict[str, str] | None = None
) -> AsyncGenerator[Client]:
    """Create the official client from a service's card."""
    async with http_client(headers=headers) as http:
        config = ClientConfig(streaming=streams, httpx_client=http, supported_protocol_bindings=[binding])
        config.use_client_preference = True
        client = await ClientFactory(config).create_from_url(url)
        yield client
        await client.close()


def message_request(
    text: str = "",
    *,
    task: str = "",
    context: str = "",
    data: Any = None,
    return_immediately: bool = False,
    **more: Any,
) -> Any:
    """Create a request with a user message."""
    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=ParseDict(data, Value())))
    message = Message(
        message_id=str(uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task, context_id=context, **more
    )
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = return_immediately
    return request


async def send(client: Client, *args: Any, **options: Any) -> Task:
    """Send a message with a client that does not stream, and return the task."""
    (answer,) = [each async for each in client.send_message(message_request(*args, **options))]
    return answer.task


async def read_stream(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    """Return all items of a stream."""
    return [each async for each in stream]


def text_in(task: Task) -> str:
    """Return the text of a task's last artifact."""
    return "".join(part.text for part in task.artifacts[-1].parts)


class TaskView:
    """A client's view of a task, assembled from updates."""

    def __init__(self) -> None:
        self.task = Task()
        self.states: list[int] = []
        self.chunks = 0

    def apply(self, answer: StreamResponse) -> None:
        """Apply one update as the protocol defines it."""
        kind = answer.WhichOneof("payload")
        if kind == "task":
            self.task.CopyFrom(answer.task)
            self.states.append(answer.task.status.state)
        elif kind == "status_update":
            self.task.status.CopyFrom(answer.status_update.status)
            self.states.append(answer.status_update.status.state)
        elif kind == "artifact_update":
            self.chunks += 1
            update = answer.artifact_update
            known = [each for each in self.task.artifacts if each.artifact_id == update.artifact.artifact_id]
            if not known:
                self.task.artifacts.append(update.artifact)
            elif update.append:
                known[0].parts.extend(update.artifact.parts)
            else:
                known[0].CopyFrom(update.artifact)


def task_view(answers: list[StreamResponse]) -> TaskView:
    """Assemble a view from these updates."""
    view = TaskView()
    for answer in answers:
        view.apply(answer)
    return view
