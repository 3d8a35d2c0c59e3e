"""The Responses API: parsing and checking of requests."""

from collections.abc import Iterator, Sequence

import msgspec
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, ValidRequest
from tests.servers.openai.chat_schema import file, image
from tests.servers.openai.errors import empty_array, rejection_of
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

from batonkit.messages import (
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
from batonkit.models import ModelRequest, ModelResponse, ModelSettings, OutputSchema

_DECODER = msgspec.json.Decoder(ResponsesRequest)
PROVIDER = "openai"


class Responses(APIEndpoint):
    """`/v1/responses`. It stores no responses, so every `previous_response_id` is unknown."""

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """Parse and check a request."""
        try:
            wire = decoded(_DECODER, received.raw)
            check_options(wire)
            check_offer(wire)
            items = items_of(wire)
        except InvalidBodyError as invalid:
            raise rejection_of(invalid) from None
        check_items(items)
        return ValidRequest(wire.model, bool(wire.stream), _request(wire, items), wire)

    def whole(self, valid: ValidRequest, whole: ModelResponse) -> bytes:
        """Encode a `response`."""
        return response_object(valid, whole)

    def stream(self, valid: ValidRequest) -> AnswerStream:
        """Create the stream of events."""
        return ResponseStream(valid)


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
        if turn.add(item):
            continue
        yield from turn.flush()
        match item:
            case InputMessage():
                content = _content(item.content, f"input[{index}].content")
                yield UserMessage(content) if item.role == "user" else SystemMessage(content)
            case FunctionCallOutput():
                content = _content(item.output, f"input[{index}].output")
                yield ToolMessage(item.call_id, names[item.call_id], content)
            case _:
                turn.add(item)
    yield from turn.flush()


class _Turn:
    """The items of one assistant message: reasoning, then text, then calls. Any other order starts a new message."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._has_text = False
        self._calls: list[ToolCall] = []
        self._reasoning: list[Reasoning] = []

    def add(self, item: Item) -> bool:
        """Add the item if it belongs to this message; return whether it does."""
        if isinstance(item, ReasoningItem) and not self._has_text and not self._calls:
            text = "".join([part.text for part in item.summary])
            self._reasoning.append(Reasoning(text, PROVIDER, {"id": item.id, "encrypted": item.encrypted_content}))
            return True
        if isinstance(item, OutputMessage) and not self._has_text and not self._calls:
            self._has_text = True
            self._text.append(_output_text(item))
            return True
        if isinstance(item, FunctionCall):
            self._calls.append(ToolCall(item.call_id, item.name, item.arguments))
            return True
        return False

    def flush(self) -> Iterator[AssistantMessage]:
        """Yield the message if it is not empty, and reset it."""
        if self._has_text or self._calls or self._reasoning:
            yield AssistantMessage("".join(self._text), tuple(self._calls), tuple(self._reasoning))
        self.__init__()


def _output_text(item: OutputMessage) -> str:
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
        verbosity=wire.text.verbosity if wire.text is not None else None,
        truncation=wire.truncation,
        logprobs="message.output_text.logprobs" in (wire.include or ()) or None,
        top_logprobs=wire.top_logprobs,
        metadata=wire.metadata,
        service_tier=wire.service_tier,
    )


def _output(wire: ResponsesRequest) -> OutputSchema | None:
    output_format = wire.text.format if wire.text is not None else None
    return OutputSchema(output_format.name, output_format.schema) if isinstance(output_format, SchemaFormat) else None
