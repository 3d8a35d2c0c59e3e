"""Server-sent events: what they look like, and a sign of life when nothing happens."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TypeVar

from starlette.responses import StreamingResponse

T = TypeVar("T")

COMMENT = b": still here\n\n"


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One event as it is sent. `data` is one line, as JSON is."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + data + b"\n\n"


def event_stream(frames: AsyncIterable[bytes]) -> StreamingResponse:
    """An answer that sends frames as they come, and that nobody on the way may keep."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


async def with_heartbeat(source: AsyncGenerator[T], seconds: float) -> AsyncGenerator[T | None]:
    """What comes from the source; None whenever nothing has come for so many seconds. Closes the source."""
    coming: asyncio.Task[T] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(source))
            done, _ = await asyncio.wait([coming], timeout=seconds)
            if not done:
                yield None
                continue
            finished, coming = coming, None
            try:
                item = finished.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
        await source.aclose()


async def _next(source: AsyncGenerator[T]) -> T:
    return await anext(source)
