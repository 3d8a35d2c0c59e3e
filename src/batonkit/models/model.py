"""The contract between agents and language models: a request in, a stream of chunks out."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..messages import AssistantMessage, Message, Part, Phase, Reasoning, TokenLogprob, ToolSpec, Usage
from .settings import ModelSettings

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | str
"""`auto`, `required`, `none`, or the name of the tool that the model must call."""


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


class PromptCaching(Struct, frozen=True):
    """A hint that the beginning of a request will come again, so that the provider caches it.

    Args:
        key: Identifies requests with a common beginning, for OpenAI; at most 64 characters are sent.
        ttl: How long the beginning is kept after its last use, for Anthropic: `5m` or `1h`.
    """

    key: str = ""
    ttl: Literal["5m", "1h"] = "5m"


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
        model: In middleware, the model that will be called: a model or its string. Models ignore it.
        prompt_cache: A hint for the provider's cache; models without one ignore it.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    settings: ModelSettings = ModelSettings()
    output_schema: OutputSchema | None = None
    agent: str = ""
    stream: bool = True
    tool_choice: ToolChoice | None = None
    model: "Model | str | None" = None
    prompt_cache: PromptCaching | None = None


class TextChunk(Struct, frozen=True, gc=False):
    """A piece of the response's text.

    Args:
        text: The text to append.
        index: The position of its message, in a response of several messages; the last of them is the answer.
        phase: Whether the message is commentary or the final answer, if the model says so; once is enough.
    """

    text: str
    index: int = 0
    phase: Phase | None = None


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
        logprobs: The tokens of the response with their log probabilities, if they were requested.
        id: The provider's id of the response; "" if it has none.
    """

    message: AssistantMessage | None = None
    usage: Usage | None = None
    stop_reason: str = ""
    model: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    id: str = ""


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
