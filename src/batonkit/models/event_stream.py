"""Response streams of HTTP APIs: server-sent events, or one JSON document, parsed to chunks."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from ..errors import ModelError
from .assembly import assemble_response
from .model import Chunk, ModelRequest
from .provider_errors import malformed
from .stream_parser import StreamParser

SECONDS_TO_DRAIN = 0.1
"""Seconds to wait for the end of a stream after its last event; only then can the connection be reused."""


class BaseResponseStream:
    """Base of response streams: checks the first bytes, drains the rest and translates errors."""

    __slots__ = ("_has_begun", "_name", "_seconds", "is_whole")

    def __init__(self, name: str, seconds: float | None, is_whole: bool) -> None:
        self._name = name
        self._seconds = seconds
        self._has_begun = False
        self.is_whole = is_whole

    async def piece(self) -> bytes:
        """Return the next bytes; of a whole response, all of it."""
        try:
            piece = await self._read()
        except Exception as error:
            raise self._translate(error) from error
        if not self._has_begun:
            self._has_begun = True
            if piece.lstrip()[:1] == b"<":
                raise malformed(self._name, "it is an HTML page", piece)
        return piece

    async def end(self) -> None:
        """Read the end of the stream, so that the connection can be reused."""
        try:
            async with asyncio.timeout(SECONDS_TO_DRAIN):
                while await self.piece():
                    pass
        except (ModelError, TimeoutError):
            # The response is complete; only the connection cannot be reused.
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    async def _read(self) -> bytes:
        raise NotImplementedError

    def _translate(self, error: Exception) -> ModelError:
        """Return the ModelError for a broken connection; raise any other error again."""
        raise NotImplementedError


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SSEDecoder:
    """Decodes server-sent events from bytes, however the network has split them."""

    __slots__ = ("_data", "_has_begun", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._has_begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in this piece."""
        # A "\r" at the very end may be half of a "\r\n", so it does not end a line yet.
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if self._unfinished:
            if not end and not self._unfinished[-1].endswith(b"\r"):
                # Joined only when a line ends, so that a long line is not copied for each of its pieces.
                self._unfinished.append(piece)
                return []
            piece = b"".join([*self._unfinished, piece])
            self._unfinished.clear()
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if end < len(piece):
            self._unfinished.append(piece[end:])
        return self._events(piece[:end].splitlines())

    def rest(self) -> list[bytes]:
        """Return the data of an event whose last line was not terminated."""
        lines = b"".join(self._unfinished).splitlines()
        self._unfinished.clear()
        return self._events([*lines, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if lines and not self._has_begun:
            self._has_begun = True
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return events


_DONE = b"[DONE]"


class EventParser(StreamParser):
    """Base of the parsers whose events are JSON documents."""

    is_complete = False
    """True once the last event was received, for APIs without another end marker."""

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event."""
        raise NotImplementedError

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of a response that is one JSON document."""
        return self.take(payload)

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the last chunks. Raises ModelError if the response is incomplete or empty."""
        raise NotImplementedError


async def _read_whole(stream: BaseResponseStream, first: bytes) -> bytes:
    """Return all bytes of a response whose first ones were read."""
    pieces = [first]
    while not stream.is_whole and pieces[-1]:
        pieces.append(await stream.piece())
    return b"".join(pieces)


async def stream_response(
    request: ModelRequest,
    send: Callable[[ModelRequest], Awaitable[BaseResponseStream]],
    make_parser: Callable[[ModelRequest], EventParser],
) -> AsyncGenerator[Chunk]:
    """Send a request and stream its response, or yield it whole if it is one JSON document."""
    parser = make_parser(request)
    stream = await send(request)
    try:
        piece = await stream.piece()
        # Some servers ignore the `stream` flag, so the response decides.
        if stream.is_whole or piece.lstrip()[:1] == b"{":
            chunks = parser.take_whole(await _read_whole(stream, piece))
            yield assemble_response([*chunks, *parser.end(is_done=True)])
            return
        events = SSEDecoder()
        is_done = False
        while not is_done:
            for payload in events.feed(piece) if piece else events.rest():
                if payload.startswith(_DONE):
                    is_done = True
                    break
                for chunk in parser.take(payload):
                    yield chunk
                is_done = parser.is_complete
            if not piece:
                break
            if not is_done:
                piece = await stream.piece()
        await stream.end()
    finally:
        await stream.close()
    for chunk in parser.end(is_done=is_done):
        yield chunk
