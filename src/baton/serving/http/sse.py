"""Server-sent events: what they look like, and a sign of life when nothing happens.

Streams as server-sent events. What goes wrong before the first event is answered as if there were no stream.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Send

T = TypeVar("T")

COMMENT = b": still here\n\n"


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One event as it is sent. `data` is one line, as JSON is."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + data + b"\n\n"


class SSEResponse(StreamingResponse):
    """An answer that sends frames as they come, and that nobody on the way may keep.

    `on_leave` is called if the client goes away before the end: not if it is the server that ends.
    """

    def __init__(self, frames: AsyncIterable[bytes], *, on_leave: Callable[[], None] | None = None) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._on_leave = on_leave

    async def listen_for_disconnect(self, receive: "Receive") -> None:
        """Return when the client has gone."""
        await super().listen_for_disconnect(receive)
        self._left()

    async def stream_response(self, send: "Send") -> None:
        """Send the frames."""
        try:
            await super().stream_response(send)
        except OSError:
            self._left()
            raise

    def _left(self) -> None:
        if self._on_leave is not None:
            self._on_leave()


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


_SILENCE = 15.0


def only_event(data: str) -> "Response":
    """A stream of one event."""
    from starlette.responses import Response

    return Response(_event(data), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


_T = TypeVar("_T")


async def streamed(
    updates: AsyncGenerator[_T], encode: Callable[[_T], str], failed: Callable[[Exception], str]
) -> "Response":
    """The response for a stream. Raises what its first step raises."""
    from starlette.responses import StreamingResponse

    first = await anext(updates)

    async def lines() -> AsyncGenerator[bytes]:
        waiting: asyncio.Future[_T] | None = None
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
