"""Responses: an answer as server-sent events, item by item."""

from typing import Any

import msgspec

from ....errors import ContentFilterError, ModelError
from ....messages import AssistantMessage, Reasoning
from ....models import Chunk, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..base import AnswerStream
from ..received import ValidRequest
from .chat_answers import spoken
from .responses_answers import called, ended, failed, is_told, message, new_id, spoken_part, started, thought

_encode = msgspec.json.Encoder().encode


class _Open:
    """An item that still grows."""

    __slots__ = ("id", "index", "item", "pieces")

    def __init__(self, index: int, item: dict[str, Any]) -> None:
        self.id: str = item["id"]
        self.index = index
        self.item = item
        self.pieces: list[str] = []

    @property
    def whole(self) -> str:
        """What has come so far."""
        return "".join(self.pieces)


class ResponseStream(AnswerStream):
    """The events of one response. An item is opened, grows, and is closed before another kind of item begins."""

    def __init__(self, asked: ValidRequest) -> None:
        self._asked = asked
        self._response = started(asked, new_id("resp"))
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._text: _Open | None = None
        self._thought: _Open | None = None
        self._calls: dict[int, _Open] = {}

    def begin(self) -> bytes:
        """That the response exists, and that it is under way."""
        return self._event("response.created", response=self._response) + self._event(
            "response.in_progress", response=self._response
        )

    def chunk(self, chunk: Chunk) -> bytes:
        """The events of one piece."""
        if type(chunk) is TextChunk:
            return self._spoken(chunk.text)
        if type(chunk) is ToolCallChunk:
            return self._called(chunk)
        if type(chunk) is ReasoningChunk:
            return self._thinks(chunk)
        if type(chunk) is PartChunk:
            return self._spoken(spoken(AssistantMessage((chunk.part,))))
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """What is open is closed, and the whole response follows."""
        before = self._close_all()
        response = ended(self._response, whole, self._output)
        return before + self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ModelError) -> bytes:
        """The response as far as it came, and why it goes no further."""
        before = self._close_all()
        if isinstance(error, ContentFilterError):
            response = ended(self._response, ModelResponse(stop_reason="content_filter"), self._output)
            return before + self._event("response.incomplete", response=response)
        return before + self._event("response.failed", response=failed(self._response, error))

    def _spoken(self, text: str) -> bytes:
        before = b""
        if self._text is None:
            before = self._close_thought() + self._close_calls()
            self._text, opened = self._open(message(new_id("msg"), [], "in_progress"))
            before += opened + self._in_part("response.content_part.added", part=self._part(""))
        self._text.pieces.append(text)
        return before + self._in_part(f"response.{self._kind}.delta", delta=text, **self._logprobs())

    def _close_text(self) -> bytes:
        if self._text is None:
            return b""
        whole = self._text.whole
        word = "refusal" if self.is_refusal else "text"
        done = self._in_part(f"response.{self._kind}.done", **{word: whole}, **self._logprobs())
        done += self._in_part("response.content_part.done", part=self._part(whole))
        item, self._text = self._text, None
        return done + self._close(item, message(item.id, [self._part(whole)]))

    def _called(self, chunk: ToolCallChunk) -> bytes:
        before = b""
        call = self._calls.get(chunk.index)
        if call is None:
            before = self._close_thought() + self._close_text() + self._close_calls(only_finished=True)
            call, opened = self._open(called(new_id("fc"), chunk.id, chunk.name, "", "in_progress"))
            self._calls[chunk.index] = call
            before += opened
        if not chunk.arguments:
            return before
        call.pieces.append(chunk.arguments)
        where = {"item_id": call.id, "output_index": call.index}
        return before + self._event("response.function_call_arguments.delta", **where, delta=chunk.arguments)

    def _close_calls(self, *, only_finished: bool = False) -> bytes:
        done = b""
        for index, call in list(self._calls.items()):
            if only_finished and not _is_json(call.whole):
                # The pieces of two calls may come in turns; this one has more to come.
                continue
            del self._calls[index]
            where = {"item_id": call.id, "output_index": call.index}
            item = {**call.item, "arguments": call.whole, "status": "completed"}
            done += self._event("response.function_call_arguments.done", **where, arguments=call.whole)
            done += self._close(call, item)
        return done

    def _thinks(self, chunk: ReasoningChunk) -> bytes:
        before = b""
        if self._thought is None:
            before = self._close_text() + self._close_calls()
            self._thought, opened = self._open({"type": "reasoning", "id": new_id("rs"), "summary": []})
            before += opened
            if is_told(self._asked):
                before += self._in_summary("part.added", part={"type": "summary_text", "text": ""})
        if chunk.text:
            self._thought.pieces.append(chunk.text)
            if is_told(self._asked):
                before += self._in_summary("text.delta", delta=chunk.text)
        return before + (self._close_thought() if chunk.whole is not None else b"")

    def _close_thought(self) -> bytes:
        if self._thought is None:
            return b""
        whole, done = self._thought.whole, b""
        if is_told(self._asked):
            done = self._in_summary("text.done", text=whole)
            done += self._in_summary("part.done", part={"type": "summary_text", "text": whole})
        item, self._thought = self._thought, None
        return done + self._close(item, thought(self._asked, Reasoning(whole), item.id))

    def _close_all(self) -> bytes:
        return self._close_thought() + self._close_text() + self._close_calls()

    def _open(self, item: dict[str, Any]) -> tuple[_Open, bytes]:
        opened = _Open(len(self._output), item)
        self._output.append(item)
        return opened, self._event("response.output_item.added", output_index=opened.index, item=item)

    def _close(self, opened: _Open, item: dict[str, Any]) -> bytes:
        self._output[opened.index] = item
        return self._event("response.output_item.done", output_index=opened.index, item=item)

    def _in_part(self, kind: str, **fields: Any) -> bytes:
        assert self._text is not None
        return self._event(kind, item_id=self._text.id, output_index=self._text.index, content_index=0, **fields)

    def _in_summary(self, kind: str, **fields: Any) -> bytes:
        assert self._thought is not None
        where = {"item_id": self._thought.id, "output_index": self._thought.index, "summary_index": 0}
        return self._event(f"response.reasoning_summary_{kind}", **where, **fields)

    @property
    def _kind(self) -> str:
        return "refusal" if self.is_refusal else "output_text"

    def _part(self, text: str) -> dict[str, Any]:
        return spoken_part(text, is_refusal=self.is_refusal)

    def _logprobs(self) -> dict[str, Any]:
        return {} if self.is_refusal else {"logprobs": []}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        data = _encode({"type": kind, "sequence_number": number, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
