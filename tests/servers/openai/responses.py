"""Responses: a request is read and checked."""

from collections.abc import Iterator, Sequence

import msgspec
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, ValidRequest
from tests.servers.openai.chat_schema import file, image
from tests.servers.openai.errors import empty_array, told
from tests.servers.openai.responses_schema import (
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputMessage,
    InputPart,
    InputText,
    Item,
    NamedTool,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ResponsesRequest,
    SchemaFormat,
    check_items,
    check_offer,
    check_options,
    items_of,
)
from tests.servers.openai.responses_stream import ResponseStream, response_object
from tests.servers.validation import InvalidBodyError, decoded

from baton.messages import (
    AssistantMessage,
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
    text_of,
)
from baton.models import ModelRequest, ModelResponse, ModelSettings, OutputSchema

_DECODER = msgspec.json.Decoder(ResponsesRequest)
PROVIDER = "openai"


class Responses(APIEndpoint):
    """`/v1/responses`. It keeps no responses: `previous_response_id` names one that it does not know."""

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """The request, if it is in order."""
        try:
            wire = decoded(_DECODER, received.raw)
            check_options(wire)
            check_offer(wire)
            items = items_of(wire)
        except InvalidBodyError as invalid:
            raise told(invalid) from None
        check_items(items)
        return ValidRequest(wire.model, bool(wire.stream), _request(wire, items), wire)

    def whole(self, asked: ValidRequest, whole: ModelResponse) -> bytes:
        """A `response`."""
        return response_object(asked, whole)

    def stream(self, asked: ValidRequest) -> AnswerStream:
        """The events of a response."""
        return ResponseStream(asked)


def _request(wire: ResponsesRequest, items: Sequence[Item]) -> ModelRequest:
    leading = 0
    for item in items:
        if not (isinstance(item, InputMessage) and item.role != "user"):
            break
        leading += 1
    first = [text_of(_content(each.content, "input")) for each in items[:leading] if isinstance(each, InputMessage)]
    return ModelRequest(
        tuple(_messages(items[leading:])),
        "\n\n".join([*([wire.instructions] if wire.instructions else []), *first]),
        tuple([_spec(tool.name, tool.description, tool.parameters, tool.strict) for tool in wire.tools or ()]),
        _settings(wire),
        _output(wire),
        tool_choice=_tool_choice(wire),
    )


def _messages(items: Sequence[Item]) -> Iterator[Message]:
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    turn = _Turn()
    for index, item in enumerate(items):
        if turn.takes(item):
            continue
        yield from turn.finished()
        match item:
            case InputMessage():
                content = _content(item.content, f"input[{index}].content")
                yield UserMessage(content) if item.role == "user" else SystemMessage(content)
            case FunctionCallOutput():
                content = _content(item.output, f"input[{index}].output")
                yield ToolMessage(item.call_id, names[item.call_id], content)
            case _:
                turn.takes(item)
    yield from turn.finished()


class _Turn:
    """Items of one assistant message: thoughts, then text, then calls. What comes out of that order begins another."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._has_text = False
        self._calls: list[ToolCall] = []
        self._thoughts: list[Reasoning] = []

    def takes(self, item: Item) -> bool:
        """Whether the item belongs to this message; it is added if so."""
        if isinstance(item, ReasoningItem) and not self._has_text and not self._calls:
            text = "".join([part.text for part in item.summary])
            self._thoughts.append(Reasoning(text, PROVIDER, {"id": item.id, "encrypted": item.encrypted_content}))
            return True
        if isinstance(item, OutputMessage) and not self._has_text and not self._calls:
            self._has_text = True
            self._text.append(_spoken(item))
            return True
        if isinstance(item, FunctionCall):
            self._calls.append(ToolCall(item.call_id, item.name, item.arguments))
            return True
        return False

    def finished(self) -> Iterator[AssistantMessage]:
        """The message, if there is anything in it; afterwards it is empty."""
        if self._has_text or self._calls or self._thoughts:
            yield AssistantMessage("".join(self._text), tuple(self._calls), tuple(self._thoughts))
        self.__init__()


def _spoken(item: OutputMessage) -> str:
    if isinstance(item.content, str):
        return item.content
    return "".join([part.text if isinstance(part, OutputText) else part.refusal for part in item.content])


def _content(content: str | Sequence[InputPart], param: str) -> Content:
    if isinstance(content, str):
        return content
    if not content:
        raise empty_array(param)
    parts = tuple([_part(part, f"{param}[{index}]") for index, part in enumerate(content)])
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else parts


def _part(part: InputPart, param: str) -> Part:
    match part:
        case InputText():
            return Text(part.text)
        case InputImage():
            return image(part.image_url or "", f"{param}.image_url", part.detail)
        case InputFile():
            return file(part.file_data, f"{param}.file_data", name=part.filename, url=part.file_url)


def _spec(name: str, description: str | None, parameters: dict[str, object] | None, strict: bool | None) -> ToolSpec:
    return ToolSpec(name, description or "", parameters or {"type": "object", "properties": {}}, bool(strict))


def _tool_choice(wire: ResponsesRequest) -> str | None:
    choice = wire.tool_choice
    return choice.name if isinstance(choice, NamedTool) else choice


def _settings(wire: ResponsesRequest) -> ModelSettings:
    return ModelSettings(
        temperature=wire.temperature,
        top_p=wire.top_p,
        max_tokens=wire.max_output_tokens,
        parallel_tool_calls=wire.parallel_tool_calls,
        reasoning_effort=wire.reasoning.effort if wire.reasoning is not None else None,
    )


def _output(wire: ResponsesRequest) -> OutputSchema | None:
    wanted = wire.text.format if wire.text is not None else None
    return OutputSchema(wanted.name, wanted.schema) if isinstance(wanted, SchemaFormat) else None
