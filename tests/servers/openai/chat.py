"""Chat Completions: parsing and checking of requests, and responses, unstreamed or as server-sent events."""

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, ValidRequest
from tests.servers.openai.chat_schema import (
    UNSUPPORTED,
    Assistant,
    AudioPart,
    ChatMessage,
    ChatRequest,
    Developer,
    FilePart,
    Function,
    ImagePart,
    NamedTool,
    ReasoningField,
    RefusalPart,
    SchemaFormat,
    System,
    TextPart,
    Tool,
    User,
    UserPart,
    base64,
    file,
    image,
)
from tests.servers.openai.errors import (
    check_choice,
    check_length,
    check_name,
    check_range,
    check_schema,
    check_tools,
    empty_array,
    kind_and_code,
    rejection_of,
    wrong,
)
from tests.servers.validation import InvalidBodyError, decoded

from batonkit.errors import ContentFilterError, ModelError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Content,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    Text,
    TokenLogprob,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    media_of,
    text_of,
)
from batonkit.models import (
    Chunk,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)

_ids = count(1)
_encode = msgspec.json.Encoder().encode
_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
_DONE = b"data: [DONE]\n\n"


def completion(valid: ValidRequest, whole: ModelResponse, reasoning_field: ReasoningField) -> bytes:
    """Encode an unstreamed response."""
    answer = whole.message or AssistantMessage()
    text = answer_text(answer)
    is_refusal = whole.stop_reason == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if is_refusal or (not text and answer.tool_calls) else text,
        "refusal": text if is_refusal else None,
        "annotations": [],
    }
    reasoning = "".join([block.text for block in answer.reasoning])
    if reasoning_field and reasoning:
        message[reasoning_field] = reasoning
    if answer.tool_calls:
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    logprobs = logprobs_of(whole) if valid.wire.logprobs else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(whole)}
    return _encode({**_head(valid, "chat.completion"), "choices": [choice], "usage": usage_of(whole.usage)})


class ChatStream(AnswerStream):
    """A response as chunks."""

    def __init__(self, valid: ValidRequest, reasoning_field: ReasoningField) -> None:
        wire: ChatRequest = valid.wire
        self._reasoning_field = reasoning_field
        self._wants_usage = wire.stream_options is not None and bool(wire.stream_options.include_usage)
        self._wants_logprobs = bool(wire.logprobs)
        self._head = _head(valid, "chat.completion.chunk")
        # Only the delta differs between chunks, so the text around it is encoded once.
        self._before = b"data: " + _encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._no_usage = b',"usage":null' if self._wants_usage else b""
        self._after = b',"logprobs":null,"finish_reason":null}]' + self._no_usage + b"}\n\n"
        self._seen: set[int] = set()

    def begin(self) -> bytes:
        """Encode the chunk with the role."""
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, chunk: Chunk) -> bytes:
        """Encode a chunk of text, reasoning or a call."""
        if type(chunk) is TextChunk:
            return self._delta({"refusal" if self.is_refusal else "content": chunk.text})
        if type(chunk) is ToolCallChunk:
            return self._delta({"tool_calls": [self._call(chunk)]})
        if type(chunk) is ReasoningChunk:
            return self._delta({self._reasoning_field: chunk.text}) if self._reasoning_field and chunk.text else b""
        if type(chunk) is PartChunk:
            return self._delta({"content": answer_text(AssistantMessage((chunk.part,)))})
        return b""

    def end(self, whole: ModelResponse) -> bytes:
        """Encode the finish reason, the usage if requested, and the last line."""
        logprobs = logprobs_of(whole) if self._wants_logprobs else None
        return self._finished(finish_reason(whole), logprobs) + self._usage(whole.usage) + _DONE

    def failed(self, error: ModelError) -> bytes:
        """Encode an error in place of a chunk; a content filter has its own finish reason."""
        if isinstance(error, ContentFilterError):
            return self._finished("content_filter") + _DONE
        kind, code = kind_and_code(error)
        body = {"error": {"message": str(error), "type": kind, "param": None, "code": code}}
        return b"data: " + _encode(body) + b"\n\n"

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._before + _encode(delta) + self._after

    def _call(self, chunk: ToolCallChunk) -> dict[str, Any]:
        if chunk.index in self._seen:
            return {"index": chunk.index, "function": {"arguments": chunk.arguments}}
        self._seen.add(chunk.index)
        function = {"name": chunk.name, "arguments": chunk.arguments}
        return {"index": chunk.index, "id": chunk.id, "type": "function", "function": function}

    def _finished(self, reason: str, logprobs: dict[str, Any] | None = None) -> bytes:
        ending = b'{},"logprobs":' + _encode(logprobs) + b',"finish_reason":' + _encode(reason) + b"}]"
        return self._before + ending + self._no_usage + b"}\n\n"

    def _usage(self, usage: Usage | None) -> bytes:
        if not self._wants_usage:
            return b""
        return b"data: " + _encode({**self._head, "choices": [], "usage": usage_of(usage)}) + b"\n\n"


def logprobs_of(whole: ModelResponse) -> dict[str, Any]:
    """Return the scripted log probabilities in the format of Chat Completions."""
    return {"content": [logprob_item(each) for each in whole.logprobs], "refusal": None}


def logprob_item(token: TokenLogprob) -> dict[str, Any]:
    """Return a token with its log probability as both APIs send it."""
    fields = {"token": token.token, "logprob": token.logprob, "bytes": list(token.token.encode())}
    return {**fields, "top_logprobs": [logprob_item(each) for each in token.top_logprobs]}


def finish_reason(whole: ModelResponse) -> str:
    """Return the scripted finish reason, or the one that follows from the response."""
    if whole.stop_reason in _REASONS:
        return whole.stop_reason
    return "tool_calls" if whole.message is not None and whole.message.tool_calls else "stop"


def answer_text(answer: AssistantMessage) -> str:
    """Return the text of a message; raise a ModelError if it has media, which this API cannot send."""
    media = media_of(answer.content)
    if media:
        kinds = ", ".join([type(part).__name__ for part in media])
        raise ModelError(f"the script answers with {kinds}, which OpenAI's models do not send on this address")
    return text_of(answer.content)


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Return the usage in the format of Chat Completions."""
    used = usage or Usage()
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(valid: ValidRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{next(_ids):024d}",
        "object": kind,
        "created": int(time.time()),
        "model": valid.model,
        "service_tier": "default",
        "system_fingerprint": "fp_baton",
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


_MAX_STOPS = 4
_MAX_ID_LENGTH = 40


def check_options(wire: ChatRequest) -> None:
    """Check the ranges of numbers, and options that exclude each other."""
    check_range("temperature", wire.temperature, 0, 2)
    check_range("top_p", wire.top_p, 0, 1)
    check_range("frequency_penalty", wire.frequency_penalty, -2, 2)
    check_range("presence_penalty", wire.presence_penalty, -2, 2)
    check_range("max_tokens", wire.max_tokens, 1)
    check_range("max_completion_tokens", wire.max_completion_tokens, 1)
    if wire.max_tokens is not None and wire.max_completion_tokens is not None:
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise wrong(message, code="invalid_parameter_combination")
    if isinstance(wire.stop, list) and len(wire.stop) > _MAX_STOPS:
        message = (
            f"Invalid 'stop': array too long. Expected an array with maximum length {_MAX_STOPS}, "
            f"but got an array with length {len(wire.stop)} instead."
        )
        raise wrong(message, param="stop", code="array_above_max_length")
    if wire.stream_options is not None and not wire.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise wrong(message, param="stream_options")
    if wire.n not in (None, 1) or (wire.modalities is not None and wire.modalities != ["text"]):
        raise wrong("This test server gives one answer, in text: leave out 'n' and 'modalities'.", param="n")
    if wire.top_logprobs is not None and not wire.logprobs:
        raise wrong("'top_logprobs' requires 'logprobs' to be enabled.", param="top_logprobs")
    check_range("top_logprobs", wire.top_logprobs, 0, 20)
    for name in UNSUPPORTED:
        if getattr(wire, name) not in (None, False):
            raise wrong(f"This test server does not support '{name}'.", param=name, code="unsupported_parameter")


def check_offer(wire: ChatRequest) -> None:
    """Check the tools, the tool choice and the output format."""
    functions = None if wire.tools is None else [tool.function for tool in wire.tools]
    tools = None if functions is None else [(each.name, each.parameters, each.strict) for each in functions]
    check_tools(tools, "tools[{}].function.name", "tools[{}].function.parameters")
    choice = wire.tool_choice
    named = choice.function.name if isinstance(choice, NamedTool) else None
    names = None if functions is None else [each.name for each in functions]
    check_choice(None if isinstance(choice, NamedTool) else choice, named, tools=names)
    if wire.parallel_tool_calls is not None and not wire.tools:
        message = "'parallel_tool_calls' is only allowed when 'tools' are specified."
        raise wrong(message, param="parallel_tool_calls")
    if isinstance(wire.response_format, SchemaFormat):
        output_format = wire.response_format.json_schema
        check_name(output_format.name, "response_format.json_schema.name")
        if output_format.schema is None:
            param = "response_format.json_schema.schema"
            raise wrong(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
        subject = f"response_format '{output_format.name}'"
        check_schema(output_format.schema, subject, param="response_format", is_strict=bool(output_format.strict))


def check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Check that every call is followed by exactly one result, and that there are no other results."""
    if not messages:
        raise empty_array("messages")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if isinstance(message, Tool):
            if message.tool_call_id not in waiting:
                message_of = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                raise wrong(f"Invalid parameter: {message_of}", param=f"messages.[{index}].role")
            waiting.remove(message.tool_call_id)
            continue
        _check_no_open_calls(waiting)
        if isinstance(message, Assistant):
            waiting = [call.id for call in message.tool_calls or ()]
            for position, call in enumerate(message.tool_calls or ()):
                place = f"messages[{index}].tool_calls[{position}]"
                check_name(call.function.name, f"{place}.function.name")
                check_length(call.id, f"{place}.id", _MAX_ID_LENGTH)
    _check_no_open_calls(waiting)


def _check_no_open_calls(waiting: Sequence[str]) -> None:
    if waiting:
        rule = "An assistant message with 'tool_calls' must be followed by tool messages for each 'tool_call_id'."
        missing_ids = f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        raise wrong(f"{rule} {missing_ids}", param="messages")


_DECODER = msgspec.json.Decoder(ChatRequest)


class ChatCompletions(APIEndpoint):
    """`/v1/chat/completions`."""

    def __init__(self, reasoning_field: ReasoningField = "") -> None:
        self._reasoning_field: ReasoningField = reasoning_field

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """Parse and check a request."""
        try:
            wire = decoded(_DECODER, received.raw)
        except InvalidBodyError as invalid:
            raise rejection_of(invalid) from None
        check_options(wire)
        check_offer(wire)
        check_pairs(wire.messages)
        return ValidRequest(wire.model, bool(wire.stream), self._request(wire), wire)

    def whole(self, valid: ValidRequest, whole: ModelResponse) -> bytes:
        """Encode a `chat.completion`."""
        return completion(valid, whole, self._reasoning_field)

    def stream(self, valid: ValidRequest) -> AnswerStream:
        """Create the stream of `chat.completion.chunk` objects."""
        return ChatStream(valid, self._reasoning_field)

    def _request(self, wire: ChatRequest) -> ModelRequest:
        leading = 0
        while leading < len(wire.messages) and isinstance(wire.messages[leading], System | Developer):
            leading += 1
        instructions = [_text(each.content) for each in wire.messages[:leading] if isinstance(each, System | Developer)]
        return ModelRequest(
            tuple(self._messages(wire.messages, leading)),
            "\n\n".join(instructions),
            tuple([_spec(tool.function) for tool in wire.tools or ()]),
            _settings(wire),
            _output(wire),
            tool_choice=_tool_choice(wire),
        )

    def _messages(self, messages: Sequence[ChatMessage], start: int) -> Iterator[Message]:
        names: dict[str, str] = {}
        for index, message in enumerate(messages[start:], start=start):
            match message:
                case System() | Developer():
                    yield SystemMessage(_text(message.content))
                case User():
                    yield UserMessage(_content(message.content, f"messages[{index}].content"))
                case Assistant():
                    names |= {call.id: call.function.name for call in message.tool_calls or ()}
                    yield self._assistant(message, index)
                case Tool():
                    yield ToolMessage(message.tool_call_id, names[message.tool_call_id], _text(message.content))

    def _assistant(self, message: Assistant, index: int) -> AssistantMessage:
        reasoning = {"reasoning": message.reasoning, "reasoning_content": message.reasoning_content}
        for name, text in reasoning.items():
            if text is not None and name != self._reasoning_field:
                raise rejection_of(InvalidBodyError("unknown", f"messages[{index}].{name}"))
        calls = message.tool_calls
        if calls is not None and not calls:
            raise empty_array(f"messages[{index}].tool_calls")
        if message.content is None and not calls and message.refusal is None:
            param = f"messages.[{index}].content"
            raise wrong("Invalid value for 'content': expected a string, got null.", param=param)
        thought = reasoning.get(self._reasoning_field)
        return AssistantMessage(
            _text(message.content or message.refusal or ""),
            tuple([ToolCall(each.id, each.function.name, each.function.arguments) for each in calls or ()]),
            (Reasoning(thought),) if thought else (),
        )


def _text(content: str | Sequence[TextPart | RefusalPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join([part.text if isinstance(part, TextPart) else part.refusal for part in content])


def _content(content: str | Sequence[UserPart], param: str) -> Content:
    if isinstance(content, str):
        return content
    if not content:
        raise empty_array(param)
    return tuple([_part(part, f"{param}[{index}]") for index, part in enumerate(content)])


def _part(part: UserPart, param: str) -> Part:
    match part:
        case TextPart():
            return Text(part.text)
        case ImagePart():
            return image(part.image_url.url, f"{param}.image_url.url", part.image_url.detail)
        case AudioPart():
            audio = part.input_audio
            media_type = "audio/wav" if audio.format == "wav" else "audio/mpeg"
            return Audio(data=base64(audio.data, f"{param}.input_audio.data"), media_type=media_type)
        case FilePart():
            return file(part.file.file_data, f"{param}.file.file_data", name=part.file.filename)


def _spec(function: Function) -> ToolSpec:
    parameters = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", parameters, bool(function.strict))


def _tool_choice(wire: ChatRequest) -> str | None:
    choice = wire.tool_choice
    return choice.function.name if isinstance(choice, NamedTool) else choice


def _settings(wire: ChatRequest) -> ModelSettings:
    return ModelSettings(
        temperature=wire.temperature,
        top_p=wire.top_p,
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        parallel_tool_calls=wire.parallel_tool_calls,
        reasoning_effort=wire.reasoning_effort,
        stop_sequences=(wire.stop,)
        if isinstance(wire.stop, str)
        else tuple(wire.stop)
        if wire.stop is not None
        else None,
        seed=wire.seed,
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        verbosity=wire.verbosity,
        logprobs=wire.logprobs,
        top_logprobs=wire.top_logprobs,
        metadata=wire.metadata,
        service_tier=wire.service_tier,
    )


def _output(wire: ChatRequest) -> OutputSchema | None:
    output_format = wire.response_format
    if not isinstance(output_format, SchemaFormat):
        return None
    return OutputSchema(output_format.json_schema.name, output_format.json_schema.schema or {})
