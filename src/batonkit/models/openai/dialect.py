"""The base of OpenAI's two APIs: history, tools and structured output in requests, and the usage in responses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from ...log.view import MessageWindow
from ...messages import (
    AssistantMessage,
    Content,
    Message,
    Part,
    TokenLogprob,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    media_of,
    text_of,
)
from ..encoding import Block, as_json, unused_name, without_none
from ..event_stream import EventParser
from ..model import ModelRequest
from ..settings import ModelSettings
from .chat_messages import about
from .endpoint import StructuredOutputMode

_MAX_CACHE_KEY = 64
_CHOICES = ("auto", "required", "none")
_SCHEMA_PROMPT = "Answer with one JSON object and nothing else. It must fit this JSON schema:"


class _EncodedHistory(Struct):
    """The first messages of a list, encoded."""

    dialect: "Dialect"
    """The dialect, whose identity is the key of this object."""
    blocks: list[Block] = []
    pending: list[Part] = []
    """Media that follows in the next user message."""
    count: int = 0
    """The number of messages."""


class Dialect(Struct, frozen=True):
    """The format of an API, and the ways in which its endpoints differ."""

    model: str
    name: str
    provider: str = "openai"
    structured: StructuredOutputMode = "native"
    system_role: str = "system"
    lacks: Mapping[str, str] = {}

    is_flat: ClassVar[bool]
    """True if an object has its fields beside its type, not below it."""

    def encode_part(self, part: Part) -> Block:
        """Encode a part of a user message."""
        raise NotImplementedError

    def encode_result(self, message: ToolMessage, pending: list[Part]) -> Block:
        """Encode a tool result; media that it may not contain is added to `pending`."""
        raise NotImplementedError

    def encode_response(self, message: AssistantMessage, text: str) -> list[Block]:
        """Encode a model's message, whose content without media is `text`."""
        raise NotImplementedError

    def cache_key(self, request: ModelRequest) -> str | None:
        """Return the cache key of a request; only OpenAI and Azure document it."""
        if request.prompt_cache is None or self.provider not in ("openai", "azure"):
            return None
        return request.prompt_cache.key[:_MAX_CACHE_KEY] or None

    def encode_history(self, messages: Sequence[Message]) -> list[Block]:
        """Encode messages; media that may not stand where it was produced follows in a user message.

        Of the conversation of an agent, only the messages since the last request are encoded.
        """
        history = _EncodedHistory(self)
        if type(messages) is MessageWindow:
            known: _EncodedHistory | None = messages.forms.get(id(self))
            if known is not None and known.count <= len(messages):
                history = known
            messages.forms[id(self)] = history
            blocks = list[Block]()
            pending = [*history.pending]
            self._encode(messages.source[history.count : len(messages)], blocks, pending)
            # Only now: an error leaves nothing half encoded.
            history.blocks += blocks
            history.pending = pending
            history.count = len(messages)
        else:
            self._encode(messages, history.blocks, history.pending)
        last = [self._encode_user(tuple(history.pending))] if history.pending else []
        return [*history.blocks, *last]

    def _encode(self, messages: Sequence[Message], encoded: list[Block], pending: list[Part]) -> None:
        """Encode further messages; media that may not stand here is added to `pending`."""
        for message in messages:
            # Results first: a long conversation consists of them. Nothing may stand between a call and its results.
            if isinstance(message, ToolMessage):
                encoded.append(self.encode_result(message, pending))
                continue
            if pending:
                encoded.append(self._encode_user(tuple(pending)))
                pending.clear()
            if isinstance(message, UserMessage):
                encoded.append(self._encode_user(message.content))
                continue
            text = text_of(message.content)
            media = media_of(message.content)
            if isinstance(message, AssistantMessage):
                pending += about("", media)
                encoded += self.encode_response(message, text)
            else:
                pending += media
                encoded += [{"role": self.system_role, "content": text}] if text else []

    def _encode_user(self, content: Content) -> Block:
        parts = content if isinstance(content, str) else [self.encode_part(part) for part in content]
        return {"role": "user", "content": parts}

    def instructions(self, request: ModelRequest) -> str:
        """Return the instructions, with the schema appended in JSON mode."""
        if request.output_schema is None or self.structured != "json_object":
            return request.instructions
        prompt = f"{_SCHEMA_PROMPT}\n{as_json(request.output_schema.schema)}"
        return f"{request.instructions}\n\n{prompt}" if request.instructions else prompt

    def output_format(self, request: ModelRequest) -> Block | None:
        """Return the format that the response must have, None for any text."""
        output = request.output_schema
        if output is None or self.structured == "tool":
            return None
        if self.structured == "json_object":
            return {"type": "json_object"}
        return self._typed("json_schema", {"name": output.name, "schema": output.schema, "strict": output.strict})

    def output_tool(self, request: ModelRequest) -> ToolSpec | None:
        """Return the tool whose call is the final answer, for the mode `tool`."""
        output = request.output_schema
        if output is None or self.structured != "tool":
            return None
        name = unused_name("final_answer", [tool.name for tool in request.tools])
        description = "Give the final answer. Call it once everything is known."
        return ToolSpec(name, description, output.schema, output.strict)

    def shared_fields(self, request: ModelRequest, settings: ModelSettings) -> Block:
        """Return the fields of a request that both APIs have; those that are not set are None."""
        return {
            "model": self.model,
            **self._tool_fields(request),
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "top_logprobs": settings.top_logprobs,
            "metadata": dict(settings.metadata) if settings.metadata else None,
            "service_tier": settings.service_tier,
            "prompt_cache_key": self.cache_key(request),
            "stream": request.stream or None,
        }

    def _tool_fields(self, request: ModelRequest) -> Block:
        """Return the fields for the tools, the output tool and the tool choice."""
        answer = self.output_tool(request)
        tools = request.tools if answer is None else (*request.tools, answer)
        if not tools:
            return {}
        choice: Any = _tool_choice(request, answer)
        if choice is not None and choice not in _CHOICES:
            choice = self._typed("function", {"name": choice})
        encoded = [self._encode_tool(spec) for spec in tools]
        parallel = request.settings.parallel_tool_calls
        return {"tools": encoded, "tool_choice": choice, "parallel_tool_calls": parallel}

    def _encode_tool(self, spec: ToolSpec) -> Block:
        function = {
            "name": spec.name,
            "parameters": spec.parameters,
            "description": spec.description or None,
            # Always sent to Responses, where it is true by default; some servers with Chat Completions do not know it.
            "strict": spec.strict if self.is_flat else spec.strict or None,
        }
        return self._typed("function", without_none(function))

    def _typed(self, kind: str, fields: Block) -> Block:
        return {"type": kind, **fields} if self.is_flat else {"type": kind, kind: fields}


def _tool_choice(request: ModelRequest, answer: ToolSpec | None) -> str | None:
    """Return the tool choice; with an output tool, some tool must be called."""
    choice = request.tool_choice
    if answer is None:
        return choice
    if not request.tools or choice == "none":
        return answer.name
    return "required" if choice in (None, "auto") else choice


class OpenAIStreamParser(EventParser):
    """Base of the parsers of both APIs."""

    def __init__(self, dialect: Dialect, request: ModelRequest) -> None:
        super().__init__(dialect.name, dialect.provider)
        tool = dialect.output_tool(request)
        self._answer_tool = tool.name if tool is not None else None


class LogprobItem(Struct):
    """A token with its log probability in a response."""

    token: str | None = None
    logprob: float | None = None
    top_logprobs: "list[LogprobItem] | None" = None


_NEVER = -9999.0
"""The log probability that OpenAI gives for tokens that are very unlikely."""


def to_logprobs(items: "Sequence[LogprobItem] | None") -> Iterator[TokenLogprob]:
    """Return the tokens in Baton's format."""
    for item in items or ():
        logprob = _NEVER if item.logprob is None else item.logprob
        yield TokenLogprob(item.token or "", logprob, tuple(to_logprobs(item.top_logprobs)))


class TokenDetails(Struct):
    """The tokens that were read from the cache or spent on reasoning."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class TokenUsage(Struct):
    """The usage in a response, in the words of all APIs and of DeepSeek."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    input_token_details: TokenDetails | None = None
    """The name in the Realtime API."""
    output_tokens_details: TokenDetails | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None

    def to_usage(self) -> Usage:
        """Return the usage in Baton's format."""
        read = self.input_tokens_details or self.input_token_details or self.prompt_tokens_details or TokenDetails()
        written = self.output_tokens_details or self.completion_tokens_details or TokenDetails()
        return Usage(
            input_tokens=self.input_tokens or self.prompt_tokens or 0,
            output_tokens=self.output_tokens or self.completion_tokens or 0,
            cached_tokens=read.cached_tokens or self.prompt_cache_hit_tokens or 0,
            reasoning_tokens=written.reasoning_tokens or 0,
        )
