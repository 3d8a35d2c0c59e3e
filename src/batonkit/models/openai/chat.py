"""Requests and responses of Chat Completions; deviations of compatible servers are tolerated."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from ...errors import OverloadedError
from ...messages import AssistantMessage, Audio, Part, ToolCall, ToolMessage, media_of, text_of
from ..encoding import Block, as_json, without_none
from ..model import Chunk, ModelRequest, PartChunk, ToolCallChunk
from ..provider_errors import cut_short, malformed
from ..settings import require_supported
from .chat_messages import about, chat_part, fitting_arguments, fitting_id, fitting_name, from_base64, is_json_object
from .dialect import Dialect, LogprobItem, OpenAIStreamParser, TokenUsage, to_logprobs
from .errors import failed_inside

_MAX_ID = 40
_ANSWER_INDEX = 1
_MEDIA_FOLLOWS = "The result is in the message below."
_AUDIO_TYPES = {
    "mp3": "audio/mpeg",
    "pcm16": "audio/pcm",
    "opus": "audio/opus",
    "flac": "audio/flac",
    "aac": "audio/aac",
}


class ChatDialect(Dialect, frozen=True):
    """Chat Completions, and the ways in which compatible servers differ."""

    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    includes_usage: bool = True
    returns_reasoning: bool = False

    is_flat = False

    def body(self, request: ModelRequest) -> Block:
        """Build the body of a request, as OpenAI's client would send it. Raises ModelRequestError."""
        settings = require_supported(request.settings, self.name, self.lacks)
        instructions = self.instructions(request)
        system = [{"role": self.system_role, "content": instructions}] if instructions else []
        fields = {
            **self.shared_fields(request, settings),
            "messages": [*system, *self.encode_history(request.messages)],
            self.limit_name: settings.max_tokens,
            "presence_penalty": settings.presence_penalty,
            "frequency_penalty": settings.frequency_penalty,
            "stop": None if settings.stop_sequences is None else list(settings.stop_sequences),
            "seed": settings.seed,
            "reasoning_effort": settings.reasoning_effort,
            "verbosity": settings.verbosity,
            "logprobs": settings.wants_logprobs or None,
            "response_format": self.output_format(request),
            "stream_options": {"include_usage": True} if request.stream and self.includes_usage else None,
        }
        return without_none(fields)

    def parser(self, request: ModelRequest) -> "ChatStreamParser":
        """Create the parser of the response to a request."""
        return ChatStreamParser(self, request)

    def encode_part(self, part: Part) -> Block:
        """Encode a part of a user message."""
        return chat_part(part, self.name)

    def encode_result(self, message: ToolMessage, pending: list[Part]) -> Block:
        """Encode a tool result; its media is added to `pending`, because it may contain only text."""
        text = text_of(message.content)
        media = media_of(message.content)
        pending += about(message.name, media)
        id = fitting_id(message.tool_call_id, _MAX_ID)
        return {"role": "tool", "tool_call_id": id, "content": text or (_MEDIA_FOLLOWS if media else "")}

    def encode_response(self, message: AssistantMessage, text: str) -> list[Block]:
        """Encode a model's message, whose content without media is `text`."""
        if not message.tool_calls:
            # Media follows in a user message, and reasoning is not sent without calls; nothing else may be left.
            return [{"role": "assistant", "content": text}] if text else []
        encoded: Block = {"role": "assistant", "content": text or None}
        encoded["tool_calls"] = [_encode_call(call) for call in message.tool_calls]
        if self.returns_reasoning:
            own = [block.text for block in message.reasoning if block.provider == self.provider]
            if own:
                encoded["reasoning_content"] = "\n\n".join(own)
        return [encoded]


def _encode_call(call: ToolCall) -> Block:
    function = {"name": fitting_name(call.name), "arguments": fitting_arguments(call.arguments)}
    return {"id": fitting_id(call.id, _MAX_ID), "type": "function", "function": function}


_STOP_REASONS = {
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "function_call": "tool_calls",
}


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Audio(Struct):
    data: str | None = None
    transcript: str | None = None


class ChatDelta(Struct, gc=False):
    """A piece of a message, or a whole one."""

    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    function_call: _Function | None = None
    audio: _Audio | None = None
    thinking_blocks: list[Any] | None = None
    """Reasoning of Anthropic's models, as LiteLLM passes it on."""


class _Logprobs(Struct):
    content: list[LogprobItem] | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    error: Any = None


class ChatEvent(Struct, gc=False):
    """An event of the stream, or a whole response."""

    choices: list[_Choice] | None = None
    usage: TokenUsage | None = None
    error: Any = None
    kind: str | None = field(default=None, name="object")
    id: Any = None


# Not strict: some servers write numbers as strings.
_decode = msgspec.json.Decoder(ChatEvent, strict=False).decode


class ChatStreamParser(OpenAIStreamParser):
    """Converts the events of one response to chunks."""

    def __init__(self, dialect: Dialect, request: ModelRequest) -> None:
        super().__init__(dialect, request)
        audio: Any = (request.settings.extra_body or {}).get("audio")
        audio_format: Any = audio.get("format", "") if hasattr(audio, "get") else ""
        self._audio_type = _AUDIO_TYPES.get(audio_format, "audio/wav")
        self._partial_calls: list[_PartialCall] = []
        self._usage: TokenUsage | None = None
        self._stop_reason = ""
        self._has_choice = False
        self._audio: list[bytes] = []
        self._transcript: list[str] = []

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event."""
        event = self._decode(_decode, payload)
        if event.error or event.kind == "error":
            raise failed_inside(self._model, event.error or msgspec.json.decode(payload))
        return self.take_event(event)

    def take_event(self, event: ChatEvent) -> list[Chunk]:
        """Return the chunks of one decoded event."""
        chunks = self._begin()
        self._usage = event.usage or self._usage
        if not self._response_id and event.id:
            self._response_id = str(event.id)
        for choice in event.choices or ():
            # Of several choices only the first one is used.
            if not choice.index:
                self._take_choice(choice)
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of a response that is one JSON document."""
        chunks = self.take(payload)
        if not self._has_choice:
            raise malformed(self._model, "it has no choices", payload)
        # A complete document needs no stop reason to be complete.
        self._stop_reason = self._stop_reason or "stop"
        return chunks

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the last chunks. Raises ModelError if the response is incomplete or empty."""
        if not self._stop_reason and not is_done:
            raise cut_short(self._model, has_begun=self.has_begun)
        chunks = self._begin()
        self._close_reasoning()
        if self._audio:
            self._has_answer = True
            audio = Audio(None, b"".join(self._audio), self._audio_type, "".join(self._transcript) or None)
            chunks.append(PartChunk(audio))
        self._calls = sum(not call.is_answer for call in self._partial_calls)
        usage = self._usage.to_usage() if self._usage is not None else None
        self._finish(self._stop_reason or "stop", usage)
        return chunks

    def _take_choice(self, choice: _Choice) -> None:
        self._has_choice = True
        if choice.error:
            raise failed_inside(self._model, choice.error)
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        if choice.logprobs is not None:
            self._logprobs += to_logprobs(choice.logprobs.content)
        reason = choice.finish_reason
        if reason:
            if reason in ("insufficient_system_resource", "error"):
                what = f"`{self._model}` stopped its response early ({reason}); retry later"
                raise OverloadedError(what, model=self._model, retryable=True)
            self._stop_reason = _STOP_REASONS.get(reason, reason)

    def _take_delta(self, delta: ChatDelta) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning and isinstance(reasoning, str):
            self._add_reasoning(reasoning)
        text = delta.content
        if text:
            self._add_text(text if isinstance(text, str) else _text_of(text))
        if delta.refusal:
            self._has_refused = True
            self._add_text(delta.refusal)
        for call in delta.tool_calls or ():
            self._take_call(call)
        if delta.function_call is not None:
            self._take_call(_Call(0, None, delta.function_call))
        if delta.audio is not None:
            if delta.audio.data:
                self._audio.append(from_base64(delta.audio.data, self._model))
            self._transcript.append(delta.audio.transcript or "")

    def _take_call(self, call: _Call) -> None:
        function = call.function or _Function()
        name = function.name or ""
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = as_json(arguments)
        position = self._position(call, name)
        known = self._partial_calls[position]
        known.arguments.append(arguments)
        known.is_answer = known.is_answer or name == self._answer_tool
        self._has_answer = True
        if known.is_answer:
            # A message of its own: text before the call is no part of the answer.
            self._add_text(arguments, _ANSWER_INDEX)
            return
        if self._is_reasoning:
            self._close_reasoning()
        self._chunks.append(ToolCallChunk(position, call.id or "", name, arguments))

    def _position(self, call: _Call, name: str) -> int:
        """Return the position of the call of this piece, which may be a new one."""
        calls = self._partial_calls
        for position in reversed(range(len(calls))):
            if calls[position].matches(call, name):
                return position
        if calls and call.index is None and not name:
            return len(calls) - 1
        calls.append(_PartialCall(call.index, call.id or "", name))
        return len(calls) - 1


class _PartialCall(Struct):
    index: int | None
    id: str
    name: str
    is_answer: bool = False
    arguments: list[str] = []

    def matches(self, call: _Call, name: str) -> bool:
        """Check whether a piece belongs to this call."""
        if call.index is None:
            return bool(call.id) and call.id == self.id
        if call.index != self.index:
            return False
        # Some servers number every call 0, some give each piece a new id; only the first piece has a name.
        is_other_id = bool(call.id and self.id) and call.id != self.id
        is_other_name = bool(self.name) and name != self.name
        return not name or not (is_other_id or is_other_name or self._is_followed_by(call))

    def _is_followed_by(self, call: _Call) -> bool:
        """Check whether a piece with the same name and no id begins another call."""
        return not call.id and not self.id and is_json_object("".join(self.arguments))


def _text_of(parts: list[Any]) -> str:
    texts: list[str] = []
    for part in parts:
        text: Any = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)
