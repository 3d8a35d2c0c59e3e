"""A service written with the official SDK only."""

import json
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette

ASK_WITH = "ask with the schema "
"""The beginning of a message after which the service asks a question with this schema."""


class _Executor(AgentExecutor):
    """An executor whose behaviour depends on the text of the message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        task_id, context_id = context.task_id or "", context.context_id or ""
        if text == "just say it":
            reply = Message(message_id="m", role=Role.ROLE_AGENT, parts=[Part(text="said")], context_id=context_id)
            await event_queue.enqueue_event(reply)
            return
        updater = TaskUpdater(event_queue, task_id, context_id)
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=task_id, context_id=context_id, status=status))
        await updater.start_work()
        if text == "ask":
            await updater.requires_input(updater.new_agent_message([Part(text="Which city?")]))
        elif text.startswith(ASK_WITH):
            data = ParseDict({"interruptId": "1", "schema": json.loads(text.removeprefix(ASK_WITH))}, Value())
            await updater.requires_input(updater.new_agent_message([Part(text="Which city?"), Part(data=data)]))
        elif text == "fail":
            await updater.failed(updater.new_agent_message([Part(text="no")]))
        elif text == "refuse":
            await updater.reject(updater.new_agent_message([Part(text="not mine")]))
        else:
            for number, word in enumerate(("it ", "is ", text)):
                await updater.add_artifact(
                    [Part(text=word)], artifact_id="a", append=number > 0, last_chunk=number == 2
                )
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def sdk_service(port: int, *, streams: bool = True) -> Any:
    """Create the app for the port at which it will be served."""
    card = AgentCard(
        name="Plain",
        description="A plain service.",
        version="1",
        capabilities=AgentCapabilities(streaming=streams),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
    )
    handler = DefaultRequestHandler(agent_executor=_Executor(), task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
