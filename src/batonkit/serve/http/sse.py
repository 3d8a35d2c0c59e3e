"""Server-sent events: frames, heartbeats and responses."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, nullcontext
from typing import TypeVar

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...runs.background.broadcast import iter_batches
from .application import SHUTDOWN, Shutdown

T = TypeVar("T")

HEARTBEAT = b": heartbeat\n\n"
"""A comment frame that keeps the connection open."""
RECONNECT = b": the server is shutting down\nretry: 1000\n\n"
"""The last frame of a stream that the server ends early: clients reconnect after a second."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_HEARTBEAT_SECONDS = 15.0


def encode_frame(data: bytes | str, *, event: str = "", id: str = "") -> bytes:
    """Encode one event."""
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + (data.encode() if isinstance(data, str) else data) + b"\n\n"


class SSEResponse(StreamingResponse):
    """A response that streams frames and is never cached or buffered.

    When the server shuts down, the stream ends at once and asks the client to reconnect.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        *,
        on_disconnect: Callable[[], None] | None = None,
        on_shutdown: Callable[[], Iterable[bytes]] | None = None,
    ) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=_HEADERS)
        self._frames = frames
        self._on_disconnect = on_disconnect
        self._on_shutdown = on_shutdown
        self._shutdown: Shutdown | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._shutdown = scope.get("state", {}).get(SHUTDOWN)
        await super().__call__(scope, receive, send)

    async def listen_for_disconnect(self, receive: Receive) -> None:
        """Wait until the client disconnects."""
        await super().listen_for_disconnect(receive)
        self._disconnected()

    async def stream_response(self, send: Send) -> None:
        """Send the frames."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async with (
                    aclosing(self._frames),
                    self._shutdown.interrupts_stream() if self._shutdown is not None else nullcontext(),
                ):
                    async for frame in self._frames:
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
            except TimeoutError:
                if self._shutdown is None or not self._shutdown.has_started:
                    raise
                last = b"".join(() if self._on_shutdown is None else self._on_shutdown())
                await send({"type": "http.response.body", "body": last + RECONNECT, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # Raised by the frames: the client is still there.
            raise
        except OSError:
            self._disconnected()
            raise

    def _disconnected(self) -> None:
        # Some servers raise an error and report the disconnect too.
        callback = self._on_disconnect
        self._on_disconnect = None
        if callback is not None:
            callback()


async def iter_frames(
    batches: AsyncGenerator[Sequence[T]], encode: Callable[[T], Iterable[bytes]]
) -> AsyncGenerator[bytes]:
    """Yield each batch as one piece of the response, and a heartbeat for an empty one.

    Closes the source.
    """
    async with aclosing(batches):
        async for batch in batches:
            frames = b"".join([frame for item in batch for frame in encode(item)])
            if frames or not batch:
                yield frames or HEARTBEAT


async def stream_response(
    updates: AsyncGenerator[T], encode: Callable[[T], str], encode_error: Callable[[Exception], str]
) -> SSEResponse:
    """Return a stream of updates. Raises the error of the first update, if any."""
    first = await anext(updates)

    async def frames() -> AsyncGenerator[bytes]:
        rest = iter_frames(iter_batches(updates, _HEARTBEAT_SECONDS), lambda update: (encode_frame(encode(update)),))
        async with aclosing(rest):
            yield encode_frame(encode(first))
            try:
                async for frame in rest:
                    yield frame
            except Exception as error:  # noqa: BLE001 - the response has started: report the error in the stream
                yield encode_frame(encode_error(error), event="error")

    return SSEResponse(frames())


def single_event_response(data: str) -> Response:
    """Return an event stream with one event."""
    return Response(encode_frame(data), media_type="text/event-stream", headers=_HEADERS)
