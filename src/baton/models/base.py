"""The contract between agents and language models: a request in, a stream of chunks out."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..arguments import CheckedStructMeta
from ..messages import AssistantMessage, Message, Part, Reasoning, ToolSpec, Usage

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | str
"""`auto`, `required`, `none`, or the name of the tool that the model must call."""


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=CheckedStructMeta):
    """Sampling and transport settings of a model; None keeps the provider's default.

    Args:
        temperature: The sampling temperature.
        top_p: The probability mass to sample from.
        max_tokens: The maximum number of tokens in the response.
        parallel_tool_calls: Whether the model may call several tools in one response.
        reasoning_effort: The reasoning effort, such as `none`, `low`, `medium` or `high`.
        stop_sequences: Texts that end the response.
        seed: The sampling seed, for providers that support one.
        timeout: The seconds to wait for the next bytes of the response.
        extra_headers: HTTP headers to add to each request.
        extra_body: Fields to add to the body of each request as they are.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    stop_sequences: tuple[str, ...] | None = None
    seed: int | None = None
    timeout: float | None = None
    extra_headers: Mapping[str, str] | None = None
    extra_body: Mapping[str, Any] | None = None

    def merge(self, other: "ModelSettings | None") -> "ModelSettings":
        """Return a copy in which the values that `other` sets take precedence.

        Args:
            other: The settings to apply on top of these; None changes nothing.
        """
        if other is None:
            return self
        return replace(self, **{name: value for name, value in asdict(other).items() if value is not None})


class OutputSchema(Struct, frozen=True):
    """The JSON schema that a response must match.

    Args:
        name: The name of the schema.
        schema: The JSON schema.
        strict: Whether a provider can enforce it: every property is required and no other is allowed.
    """

    name: str
    schema: dict[str, Any]
    strict: bool = False


class ModelRequest(Struct, frozen=True, gc=False):
    """The input of one model call.

    Args:
        messages: The conversation; every tool call is followed by its result, as all providers require.
        instructions: The system prompt.
        tools: The tools that the model may call.
        settings: The settings of this call.
        output_schema: The schema that the response must match, if any.
        agent: The name of the agent that makes the call.
        stream: Whether chunks are read as they arrive; if not, the model may yield a single ModelResponse.
        tool_choice: The tool use to require: `auto`, `required`, `none` or the name of a tool.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    settings: ModelSettings = ModelSettings()
    output_schema: OutputSchema | None = None
    agent: str = ""
    stream: bool = True
    tool_choice: ToolChoice | None = None


class TextChunk(Struct, frozen=True, gc=False):
    """A piece of the response's text.

    Args:
        text: The text to append.
    """

    text: str


class ReasoningChunk(Struct, frozen=True):
    """A piece of the model's reasoning.

    Args:
        text: The text to append to the current block of reasoning.
        whole: The finished block; it ends the current one. If its text is empty, the pieces before it are its text.
    """

    text: str = ""
    whole: Reasoning | None = None


class ToolCallChunk(Struct, frozen=True, gc=False):
    """A piece of one tool call.

    Args:
        index: The position of the call in the response.
        id: The call's id, sent with its first piece.
        name: The tool's name, sent with its first piece.
        arguments: The text to append to the arguments, which are JSON.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class PartChunk(Struct, frozen=True):
    """A complete image, audio or file in the response.

    Args:
        part: The content part.
    """

    part: Part


class RestartChunk(Struct, frozen=True, gc=False):
    """The response starts again: all chunks before this one are discarded."""


class ModelResponse(Struct, frozen=True, gc=False):
    """The end of a response.

    Args:
        message: The complete message; None if the chunks before this one make up the message.
        usage: The tokens used.
        stop_reason: `stop`, `length`, `tool_calls`, `refusal`, or the provider's own value for anything else.
        model: The name of the model that responded.
    """

    message: AssistantMessage | None = None
    usage: Usage | None = None
    stop_reason: str = ""
    model: str = ""


Chunk: TypeAlias = TextChunk | ReasoningChunk | ToolCallChunk | PartChunk | RestartChunk | ModelResponse


class CompleteResponse:
    """A response that is already complete, for models that need not wait, such as a cache.

    Args:
        *chunks: The chunks of the response.
    """

    __slots__ = ("chunks",)

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        for chunk in self.chunks:
            yield chunk


@runtime_checkable
class Model(Protocol):
    """A language model. Wrap one in another to retry, fall back, cache or record."""

    @property
    def name(self) -> str:
        """The name used in the log, such as `openai:gpt-5`."""
        ...

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Stream the response to one request. Closing the iterator cancels the call.

        Args:
            request: The input of the call.
        """
        ...
