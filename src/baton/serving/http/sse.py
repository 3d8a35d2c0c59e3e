"""Server-sent events: frames, heartbeats and responses."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import Response, StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Send

T = TypeVar("T")

HEARTBEAT = b": heartbeat\n\n"
"""A comment frame that keeps the connection open."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_HEARTBEAT_SECONDS = 15.0


def encode_frame(data: bytes | str, *, event: str = "", id: str = "") -> bytes:
    """Encode one event.

    Args:
        data: The event's data, on one line.
        event: The event's type.
        id: The event's id.
    """
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + (data.encode() if isinstance(data, str) else data) + b"\n\n"


class SSEResponse(StreamingResponse):
    """A response that streams frames and is never cached or buffered.

    Args:
        frames: The encoded frames.
        on_disconnect: Called if the client disconnects before the end, but not if the server shuts down.
    """

    def __init__(self, frames: AsyncIterable[bytes], *, on_disconnect: Callable[[], None] | None = None) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=_HEADERS)
        self._on_disconnect = on_disconnect

    async def listen_for_disconnect(self, receive: "Receive") -> None:
        """Wait until the client disconnects.

        Args:
            receive: The ASGI receive function.
        """
        await super().listen_for_disconnect(receive)
        self._disconnected()

    async def stream_response(self, send: "Send") -> None:
        """Send the frames.

        Args:
            send: The ASGI send function.
        """
        try:
            await super().stream_response(send)
        except OSError:
            self._disconnected()
            raise

    def _disconnected(self) -> None:
        if self._on_disconnect is not None:
            self._on_disconnect()


async def with_heartbeat(source: AsyncGenerator[T], seconds: float) -> AsyncGenerator[T | None]:
    """Yield the items of a source, and None after each silence. Closes the source.

    Args:
        source: The items.
        seconds: The silence after which None is yielded.
    """
    pending: asyncio.Task[T] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(_next(source))
            done, _ = await asyncio.wait([pending], timeout=seconds)
            if not done:
                yield None
                continue
            finished, pending = pending, None
            try:
                item = finished.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        await source.aclose()


async def _next(source: AsyncGenerator[T]) -> T:
    return await anext(source)


async def stream_response(
    updates: AsyncGenerator[T], encode: Callable[[T], str], encode_error: Callable[[Exception], str]
) -> SSEResponse:
    """Return a stream of updates. Raises the error of the first update, if any.

    Args:
        updates: The updates to send.
        encode: Encodes an update as the data of a frame.
        encode_error: Encodes an error that ends the stream early.
    """
    first = await anext(updates)

    async def frames() -> AsyncGenerator[bytes]:
        async with aclosing(with_heartbeat(updates, _HEARTBEAT_SECONDS)) as items:
            yield encode_frame(encode(first))
            try:
                async for update in items:
                    yield HEARTBEAT if update is None else encode_frame(encode(update))
            except Exception as error:  # noqa: BLE001 - the response has started: report the error in the stream
                yield encode_frame(encode_error(error), event="error")

    return SSEResponse(frames())


def single_event_response(data: str) -> Response:
    """Return an event stream with one event.

    Args:
        data: The event's data, on one line.
    """
    return Response(encode_frame(data), media_type="text/event-stream", headers=_HEADERS)
