"""The contract between an agent and a language model: a request in, a stream of chunks out."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import asdict

from ..messages import AssistantMessage, Message, Part, Reasoning, ToolSpec, Usage


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model should answer; None leaves it to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    tool_choice: Literal["auto", "required", "none"] | str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    stop_sequences: tuple[str, ...] | None = None
    seed: int | None = None
    timeout: float | None = None
    extra_headers: Mapping[str, str] | None = None
    extra_body: Mapping[str, Any] | None = None

    def merge(self, other: "ModelSettings | None") -> "ModelSettings":
        """These settings with whatever the other one sets."""
        if other is None:
            return self
        return ModelSettings(**{**asdict(self), **{k: v for k, v in asdict(other).items() if v is not None}})


class OutputSchema(Struct, frozen=True):
    """The JSON schema an answer must fit."""

    name: str
    schema: dict[str, Any]
    strict: bool = False
    """Whether it is one of those that a provider can hold a model to: every property required, nothing else allowed."""


class ModelRequest(Struct, frozen=True, gc=False):
    """Everything a model is told for one answer. `messages` is valid for every provider: calls and results in pairs."""

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    settings: ModelSettings = ModelSettings()
    output_schema: OutputSchema | None = None
    agent: str = ""
    stream: bool = True
    """Whether anybody listens to the pieces; if not, a model may give its answer as one Response."""


class TextChunk(Struct, frozen=True, gc=False):
    """A piece of the answer's text."""

    text: str


class ReasoningChunk(Struct, frozen=True):
    """A piece of what the model thinks; a chunk with `whole` closes one block of reasoning."""

    text: str = ""
    whole: Reasoning | None = None


class ToolCallChunk(Struct, frozen=True, gc=False):
    """A piece of one call: `index` says of which; id and name come with its first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class PartChunk(Struct, frozen=True):
    """A whole image, sound or file in the answer."""

    part: Part


class ModelResponse(Struct, frozen=True, gc=False):
    """The end of an answer. With `message`, it is the whole answer; without, the chunks before it are."""

    message: AssistantMessage | None = None
    usage: Usage | None = None
    stop_reason: str = ""
    """`stop`, `length`, `tool_calls`, `refusal`, or the provider's own word for something else."""
    model: str = ""


Chunk: TypeAlias = TextChunk | ReasoningChunk | ToolCallChunk | PartChunk | ModelResponse


class CompleteResponse:
    """An answer that is all there: what a model returns that need not wait, such as a cache."""

    __slots__ = ("chunks",)

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        for chunk in self.chunks:
            yield chunk


@runtime_checkable
class Model(Protocol):
    """Something that answers. Wrap one in another to retry, fail over, cache or record."""

    @property
    def name(self) -> str:
        """What it is called in the log, such as `openai:gpt-5`."""
        ...

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Answer one request, piece by piece. Closing the iterator cancels the call."""
        ...
