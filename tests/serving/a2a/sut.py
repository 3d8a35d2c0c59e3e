"""The system under test that the conformance kit of A2A wants: an agent that does what the id of a message says.

`python -m tests.serving.a2a.sut 9999 10000` serves it at two ports of this machine, over HTTP and gRPC. With `0.3`
after them it speaks 0.3 as well, and does what the older kit wants: where an id says nothing, it asks for more.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc.aio
from tests.serving.a2a.stage import served

from baton import BaseAgent
from baton.agents import AgentContext
from baton.errors import TaskDeclinedError
from baton.messages import Content, Data, File
from baton.serving.a2a import A2AApp, a2a_app, allow_any_url

OUTPUT = "output.txt"


class Sut(BaseAgent):
    """Acts by prefix."""

    name = "Sut"
    description = "Does what the id of a message says."
    delay: float = 2.0
    """How long the actions that take their time take."""
    asks_on: bool = False
    """Whether it asks for more where an id says nothing, instead of being done."""

    async def run(self, ctx: AgentContext) -> None:
        while self._asks_at(id := message_id(ctx)):
            kind = "auth_required" if id.startswith("tck-auth-required") else "question"
            await ctx.interrupt({"kind": kind, "question": "What else?"})
        for prefix, act in _ACTIONS.items():
            if id.startswith(prefix):
                return await act(self, ctx)
        return await ctx.say(f"nothing is known of {id}")

    def _asks_at(self, id: str) -> bool:
        is_unknown = not id.startswith(tuple(_ACTIONS))
        return id.startswith(("tck-input-required", "tck-auth-required")) or (self.asks_on and is_unknown)

    async def linger(self, ctx: AgentContext) -> None:
        """Work for a while, then be done. The step is recorded at once: streams wait for what an agent does first."""
        await ctx.step("set to work", lambda: None)
        await asyncio.sleep(self.delay)
        await ctx.say("done after a while")


def message_id(ctx: AgentContext) -> str:
    """The id of the message that came last."""
    return str(ctx.values["a2a"]["messageId"])


def _saying(content: Content) -> Callable[[Sut, AgentContext], Awaitable[None]]:
    async def act(sut: Sut, ctx: AgentContext) -> None:
        await ctx.say(content)

    return act


async def _write(sut: Sut, ctx: AgentContext) -> None:
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


async def _several(sut: Sut, ctx: AgentContext) -> None:
    await ctx.say("first")
    await ctx.say((File(data=b"tck", media_type="text/plain", name=OUTPUT), Data({"n": 1})))


_FILE = (File(data=b"tck", media_type="text/plain", name=OUTPUT),)
_ACTIONS: dict[str, Callable[[Sut, AgentContext], Awaitable[None]]] = {
    "tck-complete-task": _saying("Hello from TCK"),
    "tck-artifact-text": _saying("Generated text content"),
    "tck-artifact-file-url": _saying(
        (File(url="https://example.com/output.txt", media_type="text/plain", name=OUTPUT),)
    ),
    "tck-artifact-file": _saying(_FILE),
    "tck-artifact-data": _saying((Data({"key": "value", "count": 42}),)),
    "tck-artifact-several": _several,
    "tck-message-response": _reply,
    "tck-reject-task": _decline,
    "tck-fail-task": _fail,
    "tck-delayed-complete": Sut.linger,
    "test-resubscribe-message-id": Sut.linger,
    "tck-stream-001": _saying("Stream hello from TCK"),
    "tck-stream-002": _reply,
    "tck-stream-003": _saying("Stream task lifecycle"),
    "tck-stream-ordering-001": _saying("Ordered output"),
    "tck-stream-artifact-text": _saying("Streamed text content"),
    "tck-stream-artifact-file": _saying(_FILE),
    "tck-stream-artifact-chunked": _write,
}


class Place(NamedTuple):
    """Where the service is reached."""

    http: str
    grpc: str
    app: A2AApp


@asynccontextmanager
async def served_sut(
    port: int = 0, grpc_port: int = 0, *, delay: float = 2.0, asks_on: bool = False, **options: Any
) -> AsyncGenerator[Place]:
    """Serve it over all bindings until left."""
    sut = Sut()
    sut.delay, sut.asks_on = delay, asks_on
    server = grpc.aio.server()
    at = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{grpc_port}')}"
    given: dict[str, Any] = {
        "allow_message_replies": True,
        "push_policy": allow_any_url,
        "push_retry_delays": (0.05,),
        "grpc_url": at,
    }
    app = a2a_app(sut, **given | options)
    app.add_to_grpc(server)
    await server.start()
    try:
        async with served(app, port) as url:
            yield Place(url, at, app)
    finally:
        await server.stop(0.5)


async def _main(port: int, grpc_port: int, *, is_old: bool) -> None:
    async with served_sut(port, grpc_port, asks_on=is_old, compat_03=is_old) as place:
        print(f"serving at {place.http} and {place.grpc}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), is_old="0.3" in sys.argv[3:]))
