"""The parts of stream parsing that all providers share."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ..messages import Reasoning, TokenLogprob, Usage
from ..messages.valid_text import valid_text
from .encoding import replace_lone_surrogates
from .model import Chunk, ModelResponse, ReasoningChunk, TextChunk
from .provider_errors import empty, filtered, malformed

T = TypeVar("T")


class StreamParser:
    """Base of the parsers that convert the events of one response to chunks."""

    def __init__(self, model: str, provider: str) -> None:
        self.has_begun = False
        self._model = model
        self._provider = provider
        self._chunks: list[Chunk] = []
        self._calls: int = 0
        self._has_answer = False
        self._has_refused = False
        self._is_reasoning = False
        self._logprobs: list[TokenLogprob] = []
        self._response_id = ""

    def _begin(self) -> list[Chunk]:
        """Return the list to which the chunks of the next event are added."""
        self.has_begun = True
        self._chunks = []
        return self._chunks

    def _decode(self, decode: Callable[[bytes], T], payload: bytes) -> T:
        try:
            return decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            repaired = replace_lone_surrogates(payload.decode(errors="replace")).encode()
            if repaired == payload:
                raise malformed(self._model, error, payload) from None
        # Models split characters that take two tokens; the rest of the response is still good.
        return self._decode(decode, repaired)

    def _add_text(self, text: str, index: int = 0) -> None:
        if not text:
            return
        if self._is_reasoning:
            self._close_reasoning()
        self._has_answer = True
        self._chunks.append(TextChunk(valid_text(text), index))

    def _add_reasoning(self, text: str) -> None:
        if text:
            self._is_reasoning = True
            self._chunks.append(ReasoningChunk(valid_text(text)))

    def _close_reasoning(self, signature: Any = None) -> None:
        """End the block of reasoning, if one is open or has a signature."""
        if self._is_reasoning or signature is not None:
            self._is_reasoning = False
            self._chunks.append(ReasoningChunk(whole=Reasoning("", self._provider, signature)))

    def _finish(self, stop_reason: str, usage: Usage | None, model: str = "") -> None:
        """Add the final chunk. Raises ModelError if the response was filtered or is empty."""
        if stop_reason == "content_filter":
            raise filtered(self._model)
        if not self._has_answer and not self._calls:
            raise empty(self._model, stop_reason)
        if self._has_refused:
            stop_reason = "refusal"
        elif stop_reason in ("stop", "tool_calls"):
            stop_reason = "tool_calls" if self._calls else "stop"
        self._chunks.append(ModelResponse(None, usage, stop_reason, model, tuple(self._logprobs), self._response_id))
