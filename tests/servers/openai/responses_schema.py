"""The request body of the Responses API, and the checks that go beyond its fields. Other fields are unknown."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from tests.servers.openai.errors import (
    check_choice,
    check_length,
    check_name,
    check_range,
    check_schema,
    check_tools,
    wrong,
    wrong_value,
)
from tests.servers.validation import StrictStruct, converted

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
INCLUDABLE: TypeAlias = Literal[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
]


class InputText(StrictStruct, tag="input_text", tag_field="type"):
    text: str


class InputImage(StrictStruct, tag="input_image", tag_field="type"):
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class InputFile(StrictStruct, tag="input_file", tag_field="type"):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: Literal["low", "high"] | None = None


class OutputText(StrictStruct, tag="output_text", tag_field="type"):
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] | None = None


class Refused(StrictStruct, tag="refusal", tag_field="type"):
    refusal: str


InputPart: TypeAlias = InputText | InputImage | InputFile
OutputPart: TypeAlias = OutputText | Refused


class InputMessage(StrictStruct):
    role: Literal["user", "system", "developer"]
    content: str | list[InputPart]
    type: Literal["message"] = "message"
    id: str | None = None
    status: Status | None = None


class OutputMessage(StrictStruct):
    role: Literal["assistant"]
    content: str | list[OutputPart]
    type: Literal["message"] = "message"
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(StrictStruct):
    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"]
    id: str | None = None
    status: Status | None = None


class FunctionCallOutput(StrictStruct):
    call_id: str
    output: str | list[InputPart]
    type: Literal["function_call_output"]
    id: str | None = None
    status: Status | None = None


class Summary(StrictStruct, tag="summary_text", tag_field="type"):
    text: str


class ReasoningText(StrictStruct, tag="reasoning_text", tag_field="type"):
    text: str


class ReasoningItem(StrictStruct):
    id: str
    summary: list[Summary]
    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item: TypeAlias = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem


class FunctionTool(StrictStruct, tag="function", tag_field="type"):
    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    description: str | None = None


class NamedTool(StrictStruct, tag="function", tag_field="type"):
    name: str


class TextFormat(StrictStruct, tag="text", tag_field="type"):
    pass


class JsonFormat(StrictStruct, tag="json_object", tag_field="type"):
    pass


class SchemaFormat(StrictStruct, tag="json_schema", tag_field="type"):
    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class TextOptions(StrictStruct):
    format: TextFormat | JsonFormat | SchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(StrictStruct):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(StrictStruct):
    include_obfuscation: bool | None = None


class ResponsesRequest(StrictStruct):
    """All fields of a request. The last group is known, but not supported by this server."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[INCLUDABLE] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | int | None = None
    top_p: float | int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in-memory", "24h"] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    top_logprobs: int | None = None

    background: bool | None = None
    conversation: Any = None
    previous_response_id: str | None = None
    prompt: Any = None


UNSUPPORTED = ("background", "conversation", "prompt")

_KINDS: dict[str, type[Any]] = {
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "reasoning": ReasoningItem,
}
_PREFIXES: tuple[tuple[type[Any], str], ...] = ((OutputMessage, "msg"), (InputMessage, "msg"), (FunctionCall, "fc"))
_MIN_TOKENS = 16
_MAX_ID_LENGTH = 64
ENCRYPTED_PREFIX = "baton-sealed:"
"""The prefix of this server's own `encrypted_content`."""


def check_options(wire: ResponsesRequest) -> None:
    """Check the ranges of numbers, and options that exclude each other."""
    check_range("temperature", wire.temperature, 0, 2)
    check_range("top_p", wire.top_p, 0, 1)
    check_range("max_output_tokens", wire.max_output_tokens, _MIN_TOKENS)
    check_range("top_logprobs", wire.top_logprobs, 0, 20)
    if wire.stream_options is not None and not wire.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise wrong(message, param="stream_options")
    if wire.previous_response_id is not None:
        message = f"Previous response with id '{wire.previous_response_id}' not found."
        raise wrong(message, param="previous_response_id", code="previous_response_not_found")
    for name in UNSUPPORTED:
        if getattr(wire, name) not in (None, False):
            raise wrong(f"This test server does not support '{name}'.", param=name, code="unsupported_parameter")


def check_offer(wire: ResponsesRequest) -> None:
    """Check the tools, the tool choice and the output format."""
    if wire.tools:
        tools = [(tool.name, tool.parameters, tool.strict) for tool in wire.tools]
        check_tools(tools, "tools[{}].name", "tools[{}].parameters")
    choice = wire.tool_choice
    is_named = isinstance(choice, NamedTool)
    if choice not in (None, "auto", "none"):
        names = [tool.name for tool in wire.tools or ()]
        check_choice(None if is_named else choice, choice.name if is_named else None, tools=names)
    output_format = wire.text.format if wire.text is not None else None
    if isinstance(output_format, SchemaFormat):
        check_name(output_format.name, "text.format.name")
        subject = f"response_format '{output_format.name}'"
        check_schema(output_format.schema, subject, param="text.format.schema", is_strict=bool(output_format.strict))


def items_of(wire: ResponsesRequest) -> list[Item]:
    """Parse the input as items."""
    if not wire.input:
        output_format = "One of 'input', 'previous_response_id', 'prompt' or 'conversation' must be provided."
        raise wrong(f"Missing required parameter. {output_format}", param="input", code="missing_required_parameter")
    if isinstance(wire.input, str):
        return [InputMessage(role="user", content=wire.input)]
    return [_item(item, f"input[{index}]") for index, item in enumerate(wire.input)]


def _item(item: dict[str, Any], place: str) -> Item:
    kind = item.get("type", "message")
    if kind != "message":
        if kind not in _KINDS:
            raise wrong_value(f"{place}.type", kind, ["message", *_KINDS])
        return converted(item, _KINDS[kind], place)
    # The role determines the types of the parts: output parts have other names than input parts.
    return converted(item, OutputMessage if item.get("role") == "assistant" else InputMessage, place)


def check_items(items: Sequence[Item]) -> None:
    """Check ids, pairs of calls and outputs, and that reasoning is followed by its item."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        _check_id(item, index)
        if isinstance(item, FunctionCall):
            check_name(item.name, f"input[{index}].name")
            check_length(item.call_id, f"input[{index}].call_id", _MAX_ID_LENGTH)
            if item.call_id in seen:
                raise wrong(f"Duplicate function call with call_id {item.call_id}.", param=f"input[{index}].call_id")
            seen.add(item.call_id)
            open_calls.append(item.call_id)
        elif isinstance(item, FunctionCallOutput):
            if item.call_id not in open_calls:
                raise wrong(f"No tool call found for function call output with call_id {item.call_id}.", param="input")
            open_calls.remove(item.call_id)
        elif isinstance(item, ReasoningItem):
            _check_reasoning(item, items[index + 1 : index + 2])
    if open_calls:
        raise wrong(f"No tool output found for function call {open_calls[0]}.", param="input")


def _check_id(item: Item, index: int) -> None:
    for kind, prefix in _PREFIXES:
        if isinstance(item, kind) and item.id is not None and not item.id.startswith(prefix):
            message = f"Invalid 'input[{index}].id': '{item.id}'. Expected an ID that begins with '{prefix}'."
            raise wrong(message, param=f"input[{index}].id", code="invalid_value")


def _check_reasoning(item: ReasoningItem, following: Sequence[Item]) -> None:
    if item.encrypted_content is None:
        advice = "Items are not kept by this server: ask for 'reasoning.encrypted_content' and send it back."
        raise wrong(f"Item with id '{item.id}' not found. {advice}", param="input", status=404)
    if not item.encrypted_content.startswith(ENCRYPTED_PREFIX):
        message = f"The encrypted content for item {item.id} could not be verified."
        raise wrong(message, code="invalid_encrypted_content")
    if not following or isinstance(following[0], InputMessage | FunctionCallOutput):
        message = f"Item '{item.id}' of type 'reasoning' was provided without its required following item."
        raise wrong(message, param="input")
