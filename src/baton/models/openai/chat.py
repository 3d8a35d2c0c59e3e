"""Requests and responses of Chat Completions; deviations of compatible servers are tolerated."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from ...errors import OverloadedError
from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from ..base import Chunk, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..encoding import as_json
from ..provider_errors import cut_short, empty, filtered, malformed
from .encoding import (
    about,
    add_tools,
    chat_part,
    fitting_arguments,
    fitting_id,
    fitting_name,
    from_base64,
    instructions_with_schema,
    schema_format,
    split_media,
)
from .endpoint import StructuredOutputMode
from .errors import failed_inside

_MAX_ID = 40
_MEDIA_FOLLOWS = "The result is in the message below."


class ChatDialect(Struct, frozen=True):
    """The ways in which endpoints differ.

    Args:
        model: The provider's name for the model.
        name: The model's name in Baton, for errors.
        provider: The provider, to recognize its own reasoning.
        structured: The way to request structured output.
        limit_name: The field for the maximum number of tokens.
        system_role: The role of system messages.
        includes_usage: Whether to request the usage of streamed responses.
        returns_reasoning: Whether reasoning is sent back with its tool calls.
    """

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    system_role: str = "system"
    includes_usage: bool = True
    returns_reasoning: bool = False


def chat_body(request: ModelRequest, dialect: ChatDialect) -> dict[str, Any]:
    """Build the body of a request, as OpenAI's client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": dialect.model, "messages": _messages(request, dialect)}
    add_tools(body, request, dialect.structured, encode=_tool, encode_choice=_choice)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body[dialect.limit_name] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.stop_sequences is not None:
        body["stop"] = list(settings.stop_sequences)
    if settings.seed is not None:
        body["seed"] = settings.seed
    if request.output_schema is not None and dialect.structured == "native":
        body["response_format"] = {"type": "json_schema", "json_schema": schema_format(request.output_schema)}
    elif request.output_schema is not None and dialect.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    if request.stream:
        body["stream"] = True
        if dialect.includes_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _choice(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    if spec.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, dialect: ChatDialect) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    instructions = instructions_with_schema(request, dialect.structured)
    if instructions:
        written.append({"role": dialect.system_role, "content": instructions})
    # Results may contain only text, and nothing may stand between a call and its results: media follows them.
    pending: list[Part] = []
    for message in request.messages:
        if pending and not isinstance(message, ToolMessage):
            written.append(_from_user(tuple(pending), dialect))
            pending.clear()
        written.append(_message(message, dialect, pending))
    if pending:
        written.append(_from_user(tuple(pending), dialect))
    return written


def _message(message: Message, dialect: ChatDialect, pending: list[Part]) -> dict[str, Any]:
    # Results and calls first: a long conversation consists of them.
    if isinstance(message, ToolMessage):
        text, media = split_media(message.content)
        if media:
            pending.extend(about(message.name, media))
        id = fitting_id(message.tool_call_id, _MAX_ID)
        return {"role": "tool", "tool_call_id": id, "content": text or (_MEDIA_FOLLOWS if media else "")}
    if isinstance(message, AssistantMessage):
        return _from_assistant(message, dialect, pending)
    if isinstance(message, UserMessage):
        return _from_user(message.content, dialect)
    return _from_system(message, dialect, pending)


def _from_assistant(message: AssistantMessage, dialect: ChatDialect, pending: list[Part]) -> dict[str, Any]:
    text, media = split_media(message.content)
    if media:
        pending.extend(about("", media))
    written: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.tool_calls:
        written["tool_calls"] = [_call(call) for call in message.tool_calls]
        if dialect.returns_reasoning and message.reasoning:
            own = [block.text for block in message.reasoning if block.provider == dialect.provider]
            if own:
                written["reasoning_content"] = "\n\n".join(own)
    elif not text:
        written["content"] = ""
    return written


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": fitting_name(call.name), "arguments": fitting_arguments(call.arguments)}
    return {"id": fitting_id(call.id, _MAX_ID), "type": "function", "function": function}


def _from_system(message: SystemMessage, dialect: ChatDialect, pending: list[Part]) -> dict[str, Any]:
    text, media = split_media(message.content)
    pending.extend(media)
    return {"role": dialect.system_role, "content": text}


def _from_user(content: Content, dialect: ChatDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [chat_part(part, dialect.name) for part in content]}


_STOP_REASONS = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
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


class _Delta(Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    function_call: _Function | None = None
    audio: _Audio | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None

    def to_usage(self) -> Usage:
        cached = self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None
        reasoning = self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None
        return Usage(
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            cached_tokens=cached or self.prompt_cache_hit_tokens or 0,
            reasoning_tokens=reasoning or 0,
        )


class _Payload(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    kind: str | None = field(default=None, name="object")


# Not strict: some servers write numbers as strings.
_decode = msgspec.json.Decoder(_Payload, strict=False).decode


class ChatStreamParser:
    """Converts the events of one response to chunks.

    Args:
        name: The model's name, for errors.
        provider: The provider, stored with reasoning.
        answer_tool: The output tool, whose arguments are the text of the response.
        audio_type: The media type of audio in the response.
    """

    is_complete = False
    """Only the end marker completes a response: the usage comes last."""

    def __init__(self, name: str, provider: str, *, answer_tool: str = "", audio_type: str = "audio/wav") -> None:
        self._name = name
        self._provider = provider
        self._answer_tool = answer_tool
        self._audio_type = audio_type
        self._calls: list[_PartialCall] = []
        self._usage: Usage | None = None
        self._stop_reason = ""
        self._has_begun = False
        self._has_answer = False
        self._has_choice = False
        self._is_reasoning = False
        self._has_refused = False
        self._audio: list[bytes] = []
        self._transcript: list[str] = []

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event."""
        try:
            event = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        self._has_begun = True
        if event.error or event.kind == "error":
            raise failed_inside(self._name, event.error or msgspec.json.decode(payload))
        if event.usage is not None:
            self._usage = event.usage.to_usage()
        chunks: list[Chunk] = []
        for choice in event.choices or ():
            # Of several choices only the first one is used.
            if not choice.index:
                self._take_choice(choice, chunks)
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of a response that is one JSON document."""
        chunks = self.take(payload)
        if not self._has_choice:
            raise malformed(self._name, "it has no choices", payload)
        # A complete document needs no stop reason to be complete.
        self._stop_reason = self._stop_reason or "stop"
        return chunks

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the last chunks. Raises ModelError if the response is incomplete or empty.

        Args:
            is_done: Whether the end marker was received; some servers send it without a stop reason.
        """
        if not self._stop_reason:
            if not is_done:
                raise cut_short(self._name, has_begun=self._has_begun)
            self._stop_reason = "stop"
        if self._stop_reason == "content_filter":
            raise filtered(self._name)
        chunks: list[Chunk] = []
        self._close_reasoning(chunks)
        if self._audio:
            audio = Audio(None, b"".join(self._audio), self._audio_type, "".join(self._transcript) or None)
            chunks.append(PartChunk(audio))
        elif not self._has_answer and not self._calls:
            raise empty(self._name, self._stop_reason)
        reason = self._stop_reason
        if self._has_refused:
            reason = "refusal"
        elif reason == "stop" and any(not call.is_answer for call in self._calls):
            reason = "tool_calls"
        elif reason == "tool_calls" and all(call.is_answer for call in self._calls):
            reason = "stop"
        chunks.append(ModelResponse(None, self._usage, reason))
        return chunks

    def _take_choice(self, choice: _Choice, chunks: list[Chunk]) -> None:
        self._has_choice = True
        if choice.error:
            raise failed_inside(self._name, choice.error)
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta, chunks)
        reason = choice.finish_reason
        if reason:
            if reason in ("insufficient_system_resource", "error"):
                what = f"`{self._name}` stopped its response early ({reason}); retry later"
                raise OverloadedError(what, model=self._name, retryable=True)
            self._stop_reason = _STOP_REASONS.get(reason, reason)

    def _take_delta(self, delta: _Delta, chunks: list[Chunk]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning and isinstance(reasoning, str):
            self._is_reasoning = True
            chunks.append(ReasoningChunk(reasoning))
        text = delta.content
        if text:
            self._add_text(text if isinstance(text, str) else _text_of(text), chunks)
        if delta.refusal:
            self._has_refused = True
            self._add_text(delta.refusal, chunks)
        for call in delta.tool_calls or ():
            self._take_call(call, chunks)
        if delta.function_call is not None:
            self._take_call(_Call(0, None, delta.function_call), chunks)
        if delta.audio is not None:
            if delta.audio.data:
                self._audio.append(from_base64(delta.audio.data, self._name))
            self._transcript.append(delta.audio.transcript or "")

    def _add_text(self, text: str, chunks: list[Chunk]) -> None:
        if not text:
            return
        if self._is_reasoning:
            self._close_reasoning(chunks)
        self._has_answer = True
        chunks.append(TextChunk(text))

    def _take_call(self, call: _Call, chunks: list[Chunk]) -> None:
        function = call.function or _Function()
        name, arguments = function.name or "", function.arguments or ""
        if not isinstance(arguments, str):
            arguments = as_json(arguments)
        position = self._position(call, name)
        known = self._calls[position]
        if name == self._answer_tool and name:
            known.is_answer = True
        if known.is_answer:
            self._add_text(arguments, chunks)
            return
        if self._is_reasoning:
            self._close_reasoning(chunks)
        chunks.append(ToolCallChunk(position, call.id or "", name, arguments))

    def _position(self, call: _Call, name: str) -> int:
        """Return the position of the call of this piece, which may be a new one."""
        calls = self._calls
        for position in reversed(range(len(calls))):
            if calls[position].matches(call, name):
                return position
        if calls and call.index is None and not name:
            return len(calls) - 1
        calls.append(_PartialCall(call.index, call.id or "", name))
        return len(calls) - 1

    def _close_reasoning(self, chunks: list[Chunk]) -> None:
        if self._is_reasoning:
            self._is_reasoning = False
            chunks.append(ReasoningChunk(whole=Reasoning(provider=self._provider)))


class _PartialCall:
    __slots__ = ("_id", "_index", "_name", "is_answer")

    def __init__(self, index: int | None, id: str, name: str) -> None:
        self._index = index
        self._id = id
        self._name = name
        self.is_answer = False

    def matches(self, call: _Call, name: str) -> bool:
        """Check whether a piece belongs to this call."""
        if call.index is None:
            return bool(call.id) and call.id == self._id
        if call.index != self._index:
            return False
        # Some servers number every call 0, some give each piece a new id; only the first piece has a name.
        is_other_id = bool(call.id and self._id) and call.id != self._id
        is_other_name = bool(self._name) and name != self._name
        return not name or not (is_other_id or is_other_name)


def _text_of(parts: list[Any]) -> str:
    texts: list[str] = []
    for part in parts:
        text: Any = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)
