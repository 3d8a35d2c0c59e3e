"""The system under test for A2A's conformance kit: an agent whose behaviour depends on the id of the message.

`python -m tests.serve.a2a.sut 9999 10000` serves it at two local ports, over HTTP and gRPC. With `0.3` as third
argument it also supports 0.3, and asks for more input on unknown ids, as the older kit expects.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import grpc.aio
from tests.serve.a2a.clients import served

from batonkit import BaseAgent
from batonkit.agents import AgentContext
from batonkit.errors import TaskDeclinedError
from batonkit.messages import Content, Data, File
from batonkit.serve.a2a import A2AApp, a2a_app, allow_any_url

OUTPUT = "output.txt"


class Sut(BaseAgent):
    """An agent that acts by the prefix of the message id."""

    name = "Sut"
    description = "Acts by the id of a message."

    def __init__(self, *, delay: float | None = None, asks_for_more: bool = False) -> None:
        super().__init__()
        self.delay = delay
        """Seconds after which slow actions complete; None if they wait for `may_complete` only."""
        self.may_complete = asyncio.Event()
        """Lets slow actions complete."""
        self.asks_for_more = asks_for_more
        """If true, it asks for more input on unknown ids instead of completing."""

    async def run(self, ctx: AgentContext) -> None:
        while self._asks_on(id := message_id(ctx)):
            kind = "auth_required" if id.startswith("tck-auth-required") else "question"
            await ctx.interrupt({"kind": kind, "question": "What else?"})
        for prefix, act in _ACTIONS.items():
            if id.startswith(prefix):
                return await act(self, ctx)
        return await ctx.say(f"unknown id {id}")

    def _asks_on(self, id: str) -> bool:
        is_unknown = not id.startswith(tuple(_ACTIONS))
        return id.startswith(("tck-input-required", "tck-auth-required")) or (self.asks_for_more and is_unknown)

    async def complete_late(self, ctx: AgentContext) -> None:
        """Complete when it may. The step is recorded immediately, because streams wait for the first event."""
        await ctx.step("set to work", lambda: None)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.delay):
                await self.may_complete.wait()
        await ctx.say("done after a while")


def message_id(ctx: AgentContext) -> str:
    """Return the id of the last message."""
    return str(ctx.values["a2a"]["messageId"])


def _reply_with(content: Content) -> Callable[[Sut, AgentContext], Awaitable[None]]:
    async def act(sut: Sut, ctx: AgentContext) -> None:
        await ctx.say(content)

    return act


async def _stream_chunks(sut: Sut, ctx: AgentContext) -> None:
    await ctx.stream_text("chunk-1 ")
    await ctx.stream_text("chunk-2")
    await ctx.say("chunk-1 chunk-2")


async def _reply(sut: Sut, ctx: AgentContext) -> None:
    ctx.values.set("a2a.reply", "message")
    await ctx.say("Direct message response")


async def _decline(sut: Sut, ctx: AgentContext) -> None:
    raise TaskDeclinedError("rejected")


async def _fail(sut: Sut, ctx: AgentContext) -> None:
    raise RuntimeError("the secret is hunter2")


async def _send_several(sut: Sut, ctx: AgentContext) -> None:
    await ctx.say("first")
    await ctx.say((File(data=b"tck", media_type="text/plain", name=OUTPUT), Data({"n": 1})))


_FILE = (File(data=b"tck", media_type="text/plain", name=OUTPUT),)
_ACTIONS: dict[str, Callable[[Sut, AgentContext], Awaitable[None]]] = {
    "tck-complete-task": _reply_with("Hello from TCK"),
    "tck-artifact-text": _reply_with("Generated text content"),
    "tck-artifact-file-url": _reply_with(
        (File(url="https://example.com/output.txt", media_type="text/plain", name=OUTPUT),)
    ),
    "tck-artifact-file": _reply_with(_FILE),
    "tck-artifact-data": _reply_with((Data({"key": "value", "count": 42}),)),
    "tck-artifact-several": _send_several,
    "tck-message-response": _reply,
    "tck-reject-task": _decline,
    "tck-fail-task": _fail,
    "tck-delayed-complete": Sut.complete_late,
    "test-resubscribe-message-id": Sut.complete_late,
    "tck-stream-001": _reply_with("Stream hello from TCK"),
    "tck-stream-002": _reply,
    "tck-stream-003": _reply_with("Stream task lifecycle"),
    "tck-stream-ordering-001": _reply_with("Ordered output"),
    "tck-stream-artifact-text": _reply_with("Streamed text content"),
    "tck-stream-artifact-file": _reply_with(_FILE),
    "tck-stream-artifact-chunked": _stream_chunks,
}


class Endpoints(NamedTuple):
    """The URLs of the service, its app and its agent."""

    http: str
    grpc: str
    app: A2AApp
    sut: Sut


@asynccontextmanager
async def serve_sut(
    port: int = 0, grpc_port: int = 0, *, delay: float | None = None, asks_for_more: bool = False, **options: Any
) -> AsyncGenerator[Endpoints]:
    """Serve the agent with all bindings."""
    sut = Sut(delay=delay, asks_for_more=asks_for_more)
    server = grpc.aio.server()
    grpc_address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{grpc_port}')}"
    defaults: dict[str, Any] = {
        "allow_message_replies": True,
        "push_policy": allow_any_url,
        "push_retry_delays": (0.05,),
        "grpc_url": grpc_address,
    }
    app = a2a_app(sut, **defaults | options)
    app.add_to_grpc(server)
    await server.start()
    try:
        async with served(app, port) as url:
            yield Endpoints(url, grpc_address, app, sut)
    finally:
        await server.stop(0.5)


async def _main(port: int, grpc_port: int, *, is_legacy: bool) -> None:
    async with serve_sut(port, grpc_port, delay=2.0, asks_for_more=is_legacy, compat_03=is_legacy) as endpoints:
        print(f"serving at {endpoints.http} and {endpoints.grpc}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), is_legacy="0.3" in sys.argv[3:]))
