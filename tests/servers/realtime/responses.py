"""One response: what the script says, as events; item by item, each opened, filled and closed.

How many tokens a response has used, by rule where the script does not say.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from logging import getLogger
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct
from tests.servers.openai.errors import kind_and_code
from tests.servers.realtime.connection import ServedConnection
from tests.servers.realtime.conversation import ServedConversation, ServedItem, SpokenAudio, new_id
from tests.servers.realtime.request_schema import FORMATS
from tests.servers.server import pieces_of

from baton.errors import ContentFilterError, MalformedResponseError, ModelConnectionError, ModelError, ModelTimeoutError
from baton.messages import Audio, Usage, text_of
from baton.models import Chunk, ModelResponse, PartChunk, TextChunk, ToolCallChunk
from baton.realtime.settings import AudioFormat, bytes_for, milliseconds_of
from baton.testing.audio import spoken_word

_CHARACTERS_OF_A_TOKEN = 4
_HEARD_MS_OF_A_TOKEN = 100
_SPOKEN_MS_OF_A_TOKEN = 50


def counted(items: Sequence[ServedItem], output: Sequence[ServedItem], said: Usage | None) -> dict[str, Any]:
    """The `usage` of a response; `said` is what the script says it has used."""
    own = {item.id for item in output}
    before = [item for item in items if item.id not in own]
    heard = sum(int(item.audio_ms) for item in before) // _HEARD_MS_OF_A_TOKEN
    spoken = sum(int(item.audio_ms) for item in output) // _SPOKEN_MS_OF_A_TOKEN
    usage = said or Usage(heard + _text_tokens(before), spoken + _text_tokens(output))
    cached = usage.cached_tokens
    heard, spoken = min(heard, usage.input_tokens), min(spoken, usage.output_tokens)
    return {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens - heard,
            "audio_tokens": heard,
            "image_tokens": 0,
            "cached_tokens": cached,
            "cached_tokens_details": {"text_tokens": cached, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": usage.output_tokens - spoken, "audio_tokens": spoken},
    }


def _text_tokens(items: Sequence[ServedItem]) -> int:
    return sum(len(msgspec.json.encode(item.wire)) for item in items) // _CHARACTERS_OF_A_TOKEN


_log = getLogger(__name__)
T = TypeVar("T")
_PIECE_MS = 100
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter", "refusal": "content_filter"}


class ResponsePace(Struct, frozen=True):
    """How fast a response comes."""

    ms_per_word: int = 200
    factor: float | None = None
    """1 speaks as fast as it can be listened to, 10 ten times as fast; None as fast as the machine can."""
    delay: float = 0.0
    """Seconds between two pieces, beside that."""


class _OpenItem(Struct):
    """An item that still grows."""

    item: ServedItem
    index: int
    pieces: list[str] = []

    @property
    def whole(self) -> str:
        """What has come so far."""
        return "".join(self.pieces)


class ResponseWriter:
    """A response under way."""

    def __init__(
        self,
        line: ServedConnection,
        conversation: ServedConversation,
        *,
        settings: dict[str, Any],
        metadata: Any,
        pace: ResponsePace,
    ) -> None:
        self.id = new_id("resp")
        self.is_ending = False
        """Whether it has said all it will say: too late to cancel it."""
        self.has_spoken = False
        """Whether there is any audio in it."""
        self._is_waiting = False
        self._is_stopped = False
        self._line = line
        self._conversation = conversation
        self._settings = settings
        self._metadata = metadata
        self._pace = pace
        self._format: AudioFormat = FORMATS[settings["audio"]["output"]["format"]["type"]]
        self._speaks = settings["output_modalities"] == ["audio"]
        self._output: list[ServedItem] = []
        self._words: _OpenItem | None = None
        self._calls: dict[int, _OpenItem] = {}
        self._usage: Usage | None = None
        self._stop_reason = ""
        self._spoken_ms = 0.0
        self._began_to_speak = 0.0

    async def begin(self) -> None:
        """Say that there is a response."""
        await self._line.tell("response.created", response=self._shown("in_progress"))
        await self._line.tell("rate_limits.updated", rate_limits=_RATE_LIMITS)

    def stop(self, playing: asyncio.Task[None]) -> None:
        """Let the task that plays it end where it is, but never between two events that belong together."""
        self._is_stopped = True
        if self._is_waiting:
            playing.cancel()

    async def play(self, ask: Callable[[], AsyncIterator[Chunk]]) -> None:
        """Say all of it. ConnectionError if the line is gone or the script cuts it."""
        try:
            async with aclosing(cast("AsyncGenerator[Chunk, None]", ask())) as chunks:
                await self._say_all(chunks)
        except ConnectionError:
            raise
        except ModelError as error:
            await self._failed(error)
        except Exception as error:  # noqa: BLE001 - a step that raises fails the response, or the client would wait
            _log.exception("a step failed")
            await self._failed(ModelError(f"{type(error).__name__}: {error}"))
        else:
            reason = _REASONS.get(self._stop_reason, "")
            await self.end("incomplete" if reason else "completed", reason)

    async def end(
        self,
        status: Literal["completed", "cancelled", "incomplete", "failed"],
        reason: str = "",
        error: dict[str, Any] | None = None,
    ) -> None:
        """Close what is open, and say how it ended."""
        self.is_ending = True
        item_status = "completed" if status == "completed" else "incomplete"
        await self._close_words(item_status)
        await self._close_calls(item_status)
        details: dict[str, Any] | None = None
        if status != "completed":
            details = {"type": status, **({"reason": reason} if reason else {}), **({"error": error} if error else {})}
        whole = {**self._shown(status), "status_details": details}
        whole["usage"] = counted(self._conversation.items, self._output, self._usage)
        await self._line.tell("response.done", response=whole)

    async def _say_all(self, chunks: AsyncIterator[Chunk]) -> None:
        has_begun = False
        while (chunk := await self._interruptibly(lambda: anext(chunks, None))) is not None:
            if isinstance(chunk, ModelResponse):
                self._usage, self._stop_reason = chunk.usage, chunk.stop_reason
                if has_begun or chunk.message is None:
                    continue
            for piece in pieces_of(chunk):
                has_begun = True
                await self._piece(piece)
                # Even as fast as possible, whoever wants to interrupt gets a turn.
                await self._interruptibly(lambda: asyncio.sleep(self._pace.delay))

    async def _interruptibly(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait, and be stopped if somebody wants that now or has wanted it since the last time."""
        if self._is_stopped:
            raise asyncio.CancelledError
        self._is_waiting = True
        try:
            return await wait()
        finally:
            self._is_waiting = False

    async def _failed(self, error: ModelError) -> None:
        match error:
            case ModelConnectionError():
                await self._line.cut()
            case ModelTimeoutError():
                # Nothing more comes; whoever cancels the response, or closes the line, ends it.
                await self._interruptibly(asyncio.get_running_loop().create_future)
            case MalformedResponseError():
                await self._line.raw(str(error))
                await self.end("failed", error={"type": "server_error", "code": None, "message": str(error)})
            case ContentFilterError():
                await self.end("incomplete", "content_filter")
            case _:
                kind, code = kind_and_code(error)
                await self.end("failed", error={"type": kind, "code": code or kind, "message": str(error)})

    async def _piece(self, piece: Chunk) -> None:
        if isinstance(piece, TextChunk):
            await (self._say(piece.text) if self._speaks else self._write(piece.text))
        elif isinstance(piece, ToolCallChunk):
            await self._call(piece)
        elif isinstance(piece, PartChunk):
            if isinstance(piece.part, Audio) and self._speaks:
                await self._sound(piece.part.data or b"", piece.part.transcript or "")
            else:
                text = text_of((piece.part,))
                await (self._say(text) if self._speaks else self._write(text))

    async def _say(self, text: str) -> None:
        ms = self._pace.ms_per_word
        audio = b"".join(spoken_word(word, ms, self._format) for word in text.split())
        await self._sound(audio, text)

    async def _sound(self, audio: bytes, transcript: str) -> None:
        words = await self._open_words()
        assert words.item.spoken is not None
        words.item.spoken.announce(transcript, milliseconds_of(len(audio), self._format))
        if transcript:
            words.pieces.append(transcript)
            await self._in_part(words, "response.output_audio_transcript.delta", delta=transcript)
        size = max(bytes_for(self._pace.ms_per_word, self._format), bytes_for(_PIECE_MS, self._format))
        for start in range(0, len(audio), size):
            piece = audio[start : start + size]
            await self._in_part(words, "response.output_audio.delta", delta=b64encode(piece).decode())
            self.has_spoken = True
            words.item.spoken.audio += piece
            await self._keep_pace(milliseconds_of(len(piece), self._format))

    async def _keep_pace(self, milliseconds: float) -> None:
        if self._pace.factor is None:
            return
        now = asyncio.get_running_loop().time()
        if not self._spoken_ms:
            self._began_to_speak = now
        self._spoken_ms += milliseconds
        due = self._began_to_speak + self._spoken_ms / 1000 / self._pace.factor
        await self._interruptibly(lambda: asyncio.sleep(max(0.0, due - now)))

    async def _write(self, text: str) -> None:
        words = await self._open_words()
        words.pieces.append(text)
        await self._in_part(words, "response.output_text.delta", delta=text)

    async def _call(self, chunk: ToolCallChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None:
            await self._close_words("completed")
            await self._close_calls("completed")
            wire = {"type": "function_call", "name": chunk.name, "call_id": chunk.id, "arguments": ""}
            call = self._calls[chunk.index] = await self._open(wire)
        if chunk.arguments:
            call.pieces.append(chunk.arguments)
            where = {**self._where(call), "call_id": call.item.wire["call_id"]}
            await self._line.tell("response.function_call_arguments.delta", **where, delta=chunk.arguments)

    async def _close_calls(self, status: str) -> None:
        for index, call in list(self._calls.items()):
            del self._calls[index]
            wire = call.item.wire
            where = {**self._where(call), "call_id": wire["call_id"], "name": wire["name"]}
            # Also of a call that was broken off: its arguments are "done", only its item says that it is incomplete.
            await self._line.tell("response.function_call_arguments.done", **where, arguments=call.whole)
            await self._close(call, {"arguments": call.whole}, status)

    async def _open_words(self) -> _OpenItem:
        if self._words is None:
            await self._close_calls("completed")
            self._words = await self._open({"type": "message", "role": "assistant", "content": []})
            if self._speaks:
                self._words.item.spoken = SpokenAudio(self._format, bytearray())
            part = {"type": "audio", "transcript": ""} if self._speaks else {"type": "text", "text": ""}
            await self._in_part(self._words, "response.content_part.added", part=part)
        return self._words

    async def _close_words(self, status: str) -> None:
        if self._words is None:
            return
        words, self._words = self._words, None
        whole = words.whole
        if self._speaks:
            await self._in_part(words, "response.output_audio.done")
            await self._in_part(words, "response.output_audio_transcript.done", transcript=whole)
            part, content = {"type": "audio", "transcript": whole}, {"type": "output_audio", "transcript": whole}
        else:
            await self._in_part(words, "response.output_text.done", text=whole)
            part, content = {"type": "text", "text": whole}, {"type": "output_text", "text": whole}
        await self._in_part(words, "response.content_part.done", part=part)
        await self._close(words, {"content": [content]}, status)

    async def _open(self, wire: dict[str, Any]) -> _OpenItem:
        item = ServedItem(new_id("item"), {})
        item.wire = {"id": item.id, "object": "realtime.item", "status": "in_progress", **wire}
        opened = _OpenItem(item, len(self._output))
        self._output.append(item)
        before = self._conversation.add(item)
        where = {"response_id": self.id, "output_index": opened.index}
        await self._line.tell("response.output_item.added", **where, item=item.wire)
        await self._line.tell("conversation.item.added", previous_item_id=before, item=item.wire)
        return opened

    async def _close(self, opened: _OpenItem, fields: dict[str, Any], status: str) -> None:
        item = opened.item
        item.wire = {**item.wire, **fields, "status": status}
        where = {"response_id": self.id, "output_index": opened.index}
        await self._line.tell("response.output_item.done", **where, item=item.wire)
        await self._line.tell("conversation.item.done", item=item.wire)

    def _where(self, opened: _OpenItem) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": opened.item.id, "output_index": opened.index}

    async def _in_part(self, words: _OpenItem, kind: str, **fields: Any) -> None:
        await self._line.tell(kind, **self._where(words), content_index=0, **fields)

    def _shown(self, status: str) -> dict[str, Any]:
        output = self._settings["audio"]["output"]
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": None,
            "output": [item.wire for item in self._output],
            "conversation_id": self._conversation.id,
            "output_modalities": self._settings["output_modalities"],
            "max_output_tokens": self._settings["max_output_tokens"],
            "audio": {"output": {"format": output["format"], "voice": output["voice"]}},
            "usage": None,
            "metadata": self._metadata,
        }


_RATE_LIMITS = [
    {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 60.0},
    {"name": "tokens", "limit": 50_000, "remaining": 45_000, "reset_seconds": 4.0},
]
