"""A request in the words of Chat Completions.

An answer of Chat Completions, as chunks. Servers that only resemble OpenAI's are read with patience.
"""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from ...errors import ModelError, OverloadedError
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
from ..provider_errors import cut_short, empty, filtered, malformed
from .encoding import (
    about,
    add_tools,
    as_json,
    chat_part,
    fitting_arguments,
    fitting_id,
    fitting_name,
    from_base64,
    instructions_with_schema,
    schema_format,
    split,
)
from .endpoint import StructuredOutputMode
from .errors import failed_inside

_LONGEST_ID = 40
_SEE_BELOW = "The result is in the message below."


class ChatDialect(Struct, frozen=True):
    """In what one endpoint differs from another."""

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    system_role: str = "system"
    includes_usage: bool = True
    returns_reasoning: bool = False


def chat_body(request: ModelRequest, manner: ChatDialect) -> dict[str, Any]:
    """The body of the request, as the official client would send it."""
    settings = request.settings
    body: dict[str, Any] = {"model": manner.model, "messages": _messages(request, manner)}
    add_tools(body, request, manner.structured, form=_tool, named=_named)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.top_p is not None:
        body["top_p"] = settings.top_p
    if settings.max_tokens is not None:
        body[manner.limit_name] = settings.max_tokens
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.stop_sequences is not None:
        body["stop"] = list(settings.stop_sequences)
    if settings.seed is not None:
        body["seed"] = settings.seed
    if request.output_schema is not None and manner.structured == "native":
        body["response_format"] = {"type": "json_schema", "json_schema": schema_format(request.output_schema)}
    elif request.output_schema is not None and manner.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    if request.stream:
        body["stream"] = True
        if manner.includes_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    if spec.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, manner: ChatDialect) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    instructions = instructions_with_schema(request, manner.structured)
    if instructions:
        written.append({"role": manner.system_role, "content": instructions})
    # Results take only text, and nothing may come between a call and its results: media waits until after them.
    waiting: list[Part] = []
    for message in request.messages:
        if waiting and not isinstance(message, ToolMessage):
            written.append(_from_user(tuple(waiting), manner))
            waiting.clear()
        written.append(_message(message, manner, waiting))
    if waiting:
        written.append(_from_user(tuple(waiting), manner))
    return written


def _message(message: Message, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    # Results and calls first: a long conversation consists of them.
    if isinstance(message, ToolMessage):
        text, media = split(message.content)
        if media:
            waiting.extend(about(message.name, media))
        id = fitting_id(message.tool_call_id, _LONGEST_ID)
        return {"role": "tool", "tool_call_id": id, "content": text or (_SEE_BELOW if media else "")}
    if isinstance(message, AssistantMessage):
        return _from_assistant(message, manner, waiting)
    if isinstance(message, UserMessage):
        return _from_user(message.content, manner)
    return _from_system(message, manner, waiting)


def _from_assistant(message: AssistantMessage, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    text, media = split(message.content)
    if media:
        waiting.extend(about("", media))
    written: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.tool_calls:
        written["tool_calls"] = [_call(call) for call in message.tool_calls]
        if manner.returns_reasoning and message.reasoning:
            own = [block.text for block in message.reasoning if block.provider == manner.provider]
            if own:
                written["reasoning_content"] = "\n\n".join(own)
    elif not text:
        written["content"] = ""
    return written


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": fitting_name(call.name), "arguments": fitting_arguments(call.arguments)}
    return {"id": fitting_id(call.id, _LONGEST_ID), "type": "function", "function": function}


def _from_system(message: SystemMessage, manner: ChatDialect, waiting: list[Part]) -> dict[str, Any]:
    text, media = split(message.content)
    waiting.extend(media)
    return {"role": manner.system_role, "content": text}


def _from_user(content: Content, manner: ChatDialect) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "user", "content": content}
    return {"role": "user", "content": [chat_part(part, manner.name) for part in content]}


STOP_REASONS = {
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


class _Sound(Struct):
    data: str | None = None
    transcript: str | None = None


class _Delta(Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    function_call: _Function | None = None
    audio: _Sound | None = None


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

    def as_ours(self) -> Usage:
        """The same as a value of Baton."""
        cached = self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None
        thought = self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None
        return Usage(
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            cached_tokens=cached or self.prompt_cache_hit_tokens or 0,
            reasoning_tokens=thought or 0,
        )


class _Payload(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    kind: str | None = field(default=None, name="object")


# Not strict: some servers write numbers as strings.
_decode = msgspec.json.Decoder(_Payload, strict=False).decode


class ChatStreamParser:
    """One answer, as far as it has come. Calls of `answer_tool` are the text of the answer."""

    is_complete = False
    """Never known before the mark of the end: usage comes after everything else."""

    def __init__(self, name: str, provider: str, *, answer_tool: str = "", sound_type: str = "audio/wav") -> None:
        self._name = name
        self._provider = provider
        self._answer_tool = answer_tool
        self._sound_type = sound_type
        self._calls: list[_PartialCall] = []
        self._usage: Usage | None = None
        self._stop_reason = ""
        self._has_begun = False
        self._has_answer = False
        self._has_choice = False
        self._is_thinking = False
        self._has_refused = False
        self._sound: list[bytes] = []
        self._transcript: list[str] = []

    def take(self, payload: bytes) -> list[Chunk]:
        """The chunks in one event."""
        try:
            read = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(self._name, error, payload) from None
        self._has_begun = True
        if read.error or read.kind == "error":
            raise failed_inside(self._name, read.error or msgspec.json.decode(payload))
        if read.usage is not None:
            self._usage = read.usage.as_ours()
        chunks: list[Chunk] = []
        for choice in read.choices or ():
            # Whoever asks for several answers at once gets the first of them.
            if not choice.index:
                self._take_choice(choice, chunks)
        return chunks

    def take_whole(self, payload: bytes) -> list[Chunk]:
        """The chunks in an answer that came in one piece."""
        chunks = self.take(payload)
        if not self._has_choice:
            raise malformed(self._name, "it has no choices", payload)
        # Where nothing can have been cut off, an end without a reason is an end.
        self._stop_reason = self._stop_reason or "stop"
        return chunks

    def ended(self, *, is_done: bool) -> list[Chunk]:
        """What is left to say at the end, and the end itself. Raises if the answer was cut, or says nothing.

        `is_done` says whether the mark of the end was there: some servers send it and no reason.
        """
        if not self._stop_reason:
            if not is_done:
                raise cut_short(self._name, has_begun=self._has_begun)
            self._stop_reason = "stop"
        if self._stop_reason == "content_filter":
            raise filtered(self._name)
        chunks: list[Chunk] = []
        self._close_thought(chunks)
        if self._sound:
            sound = Audio(None, b"".join(self._sound), self._sound_type, "".join(self._transcript) or None)
            chunks.append(PartChunk(sound))
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
                raise self._broken_off(reason)
            self._stop_reason = STOP_REASONS.get(reason, reason)

    def _take_delta(self, delta: _Delta, chunks: list[Chunk]) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought and isinstance(thought, str):
            self._is_thinking = True
            chunks.append(ReasoningChunk(thought))
        text = delta.content
        if text:
            self._say(text if isinstance(text, str) else _text_of(text), chunks)
        if delta.refusal:
            self._has_refused = True
            self._say(delta.refusal, chunks)
        for call in delta.tool_calls or ():
            self._take_call(call, chunks)
        if delta.function_call is not None:
            self._take_call(_Call(0, None, delta.function_call), chunks)
        if delta.audio is not None:
            if delta.audio.data:
                self._sound.append(from_base64(delta.audio.data, self._name))
            self._transcript.append(delta.audio.transcript or "")

    def _say(self, text: str, chunks: list[Chunk]) -> None:
        if not text:
            return
        if self._is_thinking:
            self._close_thought(chunks)
        self._has_answer = True
        chunks.append(TextChunk(text))

    def _take_call(self, call: _Call, chunks: list[Chunk]) -> None:
        function = call.function or _Function()
        name, arguments = function.name or "", function.arguments or ""
        if not isinstance(arguments, str):
            arguments = as_json(arguments)
        position = self._position(call, name)
        seen = self._calls[position]
        if name == self._answer_tool and name:
            seen.is_answer = True
        if seen.is_answer:
            self._say(arguments, chunks)
            return
        if self._is_thinking:
            self._close_thought(chunks)
        chunks.append(ToolCallChunk(position, call.id or "", name, arguments))

    def _position(self, call: _Call, name: str) -> int:
        """Which call this is a piece of; a new one, if it is of none so far."""
        calls = self._calls
        for position in reversed(range(len(calls))):
            if calls[position].goes_on_with(call, name):
                return position
        if calls and call.index is None and not name:
            return len(calls) - 1
        calls.append(_PartialCall(call.index, call.id or "", name))
        return len(calls) - 1

    def _close_thought(self, chunks: list[Chunk]) -> None:
        if self._is_thinking:
            self._is_thinking = False
            chunks.append(ReasoningChunk(whole=Reasoning(provider=self._provider)))

    def _broken_off(self, reason: str) -> ModelError:
        what = f"`{self._name}` broke its answer off ({reason}); ask again later"
        return OverloadedError(what, model=self._name, retryable=True)


class _PartialCall:
    """A call of which something has come."""

    __slots__ = ("_id", "_index", "_name", "is_answer")

    def __init__(self, index: int | None, id: str, name: str) -> None:
        self._index = index
        self._id = id
        self._name = name
        self.is_answer = False

    def goes_on_with(self, call: _Call, name: str) -> bool:
        """Whether this is a further piece of the same call."""
        if call.index is None:
            return bool(call.id) and call.id == self._id
        if call.index != self._index:
            return False
        # Some servers number every call 0, and some give each piece a new id; only a call that begins has a name.
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
