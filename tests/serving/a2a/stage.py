"""Services on real sockets, and the official client on the other side of them."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import uvicorn
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
CANCELED = TaskState.TASK_STATE_CANCELED
FAILED = TaskState.TASK_STATE_FAILED
REJECTED = TaskState.TASK_STATE_REJECTED


@asynccontextmanager
async def served(app: Any, port: int = 0) -> AsyncGenerator[str]:
    """Serve an app on a port of this machine; its address."""
    listening = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, lifespan="on"))
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@asynccontextmanager
async def client_at(
    url: str, *, binding: str = "JSONRPC", streams: bool = True, headers: dict[str, str] | None = None
) -> AsyncGenerator[Client]:
    """The official client, made from the card that a service shows."""
    async with httpx.AsyncClient(timeout=30, headers=headers) as http:
        config = ClientConfig(streaming=streams, httpx_client=http, supported_protocol_bindings=[binding])
        config.use_client_preference = True
        client = await ClientFactory(config).create_from_url(url)
        yield client
        await client.close()


def said(
    text: str = "", *, task: str = "", context: str = "", data: Any = None, at_once: bool = False, **more: Any
) -> Any:
    """A request that says something."""
    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=ParseDict(data, Value())))
    message = Message(
        message_id=str(uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task, context_id=context, **more
    )
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = at_once
    return request


async def sent(client: Client, *args: Any, **options: Any) -> Task:
    """Say something; the task that comes of it, from a client that does not stream."""
    (answer,) = [each async for each in client.send_message(said(*args, **options))]
    return answer.task


async def streamed(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    """All that a stream gives."""
    return [each async for each in stream]


def text_in(task: Task) -> str:
    """The text of a task's last artifact."""
    return "".join(part.text for part in task.artifacts[-1].parts)


class Assembled:
    """A client's view of a task, put together from what it was sent."""

    def __init__(self) -> None:
        self.task = Task()
        self.states: list[int] = []
        self.chunks = 0

    def take(self, answer: StreamResponse) -> None:
        """Take one update as the protocol says."""
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


def assembled(answers: list[StreamResponse]) -> Assembled:
    """The view that these updates make."""
    view = Assembled()
    for answer in answers:
        view.take(answer)
    return view
