"""The body of a request to Responses, field by field; what is not here is not known."""

from typing import Any, Literal, TypeAlias

from ..reading import StrictStruct

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


class Thought(StrictStruct, tag="reasoning_text", tag_field="type"):
    text: str


class ReasoningItem(StrictStruct):
    id: str
    summary: list[Summary]
    type: Literal["reasoning"]
    content: list[Thought] | None = None
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
    """Everything a request may have. The last group is known, but this server cannot do it."""

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

    background: bool | None = None
    conversation: Any = None
    previous_response_id: str | None = None
    prompt: Any = None
    top_logprobs: int | None = None


UNSUPPORTED = ("background", "conversation", "prompt", "top_logprobs")
