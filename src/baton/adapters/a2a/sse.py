"""Streams as server-sent events. What goes wrong before the first event is answered as if there were no stream."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from .telling import Update

if TYPE_CHECKING:
    from starlette.responses import Response

_SILENCE = 15.0


def only_event(data: str) -> "Response":
    """A stream of one event."""
    from starlette.responses import Response

    return Response(_event(data), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def streamed(
    updates: AsyncGenerator[Update], encode: Callable[[Update], str], failed: Callable[[Exception], str]
) -> "Response":
    """The response for a stream. Raises what its first step raises."""
    from starlette.responses import StreamingResponse

    first = await anext(updates)

    async def lines() -> AsyncGenerator[bytes]:
        waiting: asyncio.Future[Update] | None = None
        try:
            yield _event(encode(first))
            while True:
                waiting = asyncio.ensure_future(anext(updates))
                while not (await asyncio.wait([waiting], timeout=_SILENCE))[0]:
                    yield b": still here\n\n"
                try:
                    yield _event(encode(waiting.result()))
                except StopAsyncIteration:
                    return
                except Exception as error:  # noqa: BLE001 - the response has begun: all that is left is to say so in it.
                    yield b"event: error\n" + _event(failed(error))
                    return
        finally:
            if waiting is not None and not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
            await updates.aclose()

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def _event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()
