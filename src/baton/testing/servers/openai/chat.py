"""Chat Completions: a request is read and checked."""

from collections.abc import Iterator, Sequence

import msgspec

from ....messages import (
    AssistantMessage,
    Audio,
    Content,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from ....models import ModelRequest, ModelResponse, ModelSettings, OutputSchema
from ..base import AnswerStream, APIEndpoint
from ..reading import InvalidBodyError, decoded
from ..received import ReceivedRequest, ValidRequest
from .chat_answers import ChatStream, completion
from .chat_checks import check_offer, check_options, check_pairs
from .chat_wire import (
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
)
from .errors import empty_array, told, wrong
from .media import base64, file, image

_DECODER = msgspec.json.Decoder(ChatRequest)


class ChatCompletions(APIEndpoint):
    """`/v1/chat/completions`."""

    def __init__(self, reasoning_field: ReasoningField = "") -> None:
        self._reasoning_field: ReasoningField = reasoning_field

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """The request, if it is in order."""
        try:
            wire = decoded(_DECODER, received.raw)
        except InvalidBodyError as invalid:
            raise told(invalid) from None
        check_options(wire)
        check_offer(wire)
        check_pairs(wire.messages)
        return ValidRequest(wire.model, bool(wire.stream), self._request(wire), wire)

    def whole(self, asked: ValidRequest, whole: ModelResponse) -> bytes:
        """A `chat.completion`."""
        return completion(asked, whole, self._reasoning_field)

    def stream(self, asked: ValidRequest) -> AnswerStream:
        """Chunks of a `chat.completion.chunk`."""
        return ChatStream(asked, self._reasoning_field)

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
        thoughts = {"reasoning": message.reasoning, "reasoning_content": message.reasoning_content}
        for name, thought in thoughts.items():
            if thought is not None and name != self._reasoning_field:
                raise told(InvalidBodyError("unknown", f"messages[{index}].{name}"))
        calls = message.tool_calls
        if calls is not None and not calls:
            raise empty_array(f"messages[{index}].tool_calls")
        if message.content is None and not calls and message.refusal is None:
            param = f"messages.[{index}].content"
            raise wrong("Invalid value for 'content': expected a string, got null.", param=param)
        thought = thoughts.get(self._reasoning_field)
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
            sound = part.input_audio
            media_type = "audio/wav" if sound.format == "wav" else "audio/mpeg"
            return Audio(data=base64(sound.data, f"{param}.input_audio.data"), media_type=media_type)
        case FilePart():
            return file(part.file.file_data, f"{param}.file.file_data", name=part.file.filename)


def _spec(function: Function) -> ToolSpec:
    parameters = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", parameters, bool(function.strict))


def _settings(wire: ChatRequest) -> ModelSettings:
    choice = wire.tool_choice
    return ModelSettings(
        temperature=wire.temperature,
        top_p=wire.top_p,
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        tool_choice=choice.function.name if isinstance(choice, NamedTool) else choice,
        parallel_tool_calls=wire.parallel_tool_calls,
        reasoning_effort=wire.reasoning_effort,
        stop_sequences=(wire.stop,)
        if isinstance(wire.stop, str)
        else tuple(wire.stop)
        if wire.stop is not None
        else None,
        seed=wire.seed,
    )


def _output(wire: ChatRequest) -> OutputSchema | None:
    wanted = wire.response_format
    if not isinstance(wanted, SchemaFormat):
        return None
    return OutputSchema(wanted.json_schema.name, wanted.json_schema.schema or {})
