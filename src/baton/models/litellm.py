"""Any model that LiteLLM knows: `"litellm:bedrock/…"`, for providers that Baton has no file for."""

import os
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec

from ..errors import ModelError
from ..messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    SystemMessage,
    Text,
    ToolMessage,
    ToolSpec,
    Usage,
    media_of,
    pair_calls_with_results,
    text_of,
)
from .base import Chunk, ModelRequest, ModelResponse, ModelSettings, ReasoningChunk, TextChunk, ToolCallChunk
from .provider_errors import (
    BY_STATUS,
    Objection,
    cut_short,
    empty,
    filtered,
    refused,
    retry_after,
    timed_out,
    unfit,
    unreachable,
)
from .sdk_clients import require_extra

_STOP_REASONS = {"eos": "stop", "function_call": "tool_calls", "end_turn": "stop"}
# The first that fits counts: LiteLLM derives several of these from one another.
_OBJECTIONS: tuple[tuple[str, Objection], ...] = (
    ("ContextWindowExceededError", "too long"),
    ("ContentPolicyViolationError", "filtered"),
    ("PaymentRequiredError", "no credit"),
    ("BudgetExceededError", "no credit"),
    ("AuthenticationError", "key"),
    ("PermissionDeniedError", "key"),
    ("NotFoundError", "no model"),
    ("LiteLLMUnknownProvider", "no model"),
    ("RateLimitError", "too many"),
    ("ServiceUnavailableError", "overloaded"),
    ("BadGatewayError", "overloaded"),
    ("InternalServerError", "overloaded"),
    ("BadRequestError", "bad request"),
    ("UnprocessableEntityError", "bad request"),
)


class LiteLLMModel:
    """A model by the name that LiteLLM gives it, such as `bedrock/anthropic.claude-opus-5-5`.

    Keys are where LiteLLM looks for them, or `api_key`; `options` go to each call of `litellm.acompletion` as they are.
    """

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None, **options: Any) -> None:
        self.model = model
        require_extra("litellm", model=self.name, what="LiteLLM", extra="litellm")
        given = {"api_key": api_key, "api_base": base_url, **options}
        self._options = {key: value for key, value in given.items() if value is not None}

    @property
    def name(self) -> str:
        """`litellm:` and the model's name."""
        return f"litellm:{self.model}"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer one request, piece by piece. Closing the iterator closes the stream."""
        answer = _Answer(self.name)
        stream: Any = None
        try:
            stream = await _litellm().acompletion(**self._options, **self._asked(request))
            async for piece in stream:
                for chunk in answer.chunks(piece):
                    yield chunk
        except ModelError:
            raise
        except Exception as error:
            raise self._told(error, request.settings, answer.has_begun) from error
        finally:
            if stream is not None:
                await stream.aclose()
        for chunk in answer.end():
            yield chunk

    def _asked(self, request: ModelRequest) -> dict[str, Any]:
        settings, output = request.settings, request.output_schema
        format = None
        if output is not None:
            format = {"type": "json_schema", "json_schema": {"name": output.name, "schema": output.schema}}
        tools = [_tool(spec) for spec in request.tools] or None
        named = settings.tool_choice not in (None, "auto", "required", "none")
        choice = {"type": "function", "function": {"name": settings.tool_choice}} if named else settings.tool_choice
        asked = {
            "model": self.model,
            "messages": list(_messages(request, self.name)),
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
            "max_retries": 0,
            # What a provider does not know is left out, as LiteLLM's users expect of it.
            "drop_params": True,
            "tools": tools,
            "tool_choice": choice if tools else None,
            "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
            "reasoning_effort": settings.reasoning_effort,
            "stop": list(settings.stop_sequences) if settings.stop_sequences else None,
            "seed": settings.seed,
            "timeout": settings.timeout,
            "extra_headers": dict(settings.extra_headers) if settings.extra_headers else None,
            "extra_body": dict(settings.extra_body) if settings.extra_body else None,
            "response_format": format,
        }
        return {key: value for key, value in asked.items() if value is not None}

    def _told(self, error: Exception, settings: ModelSettings, has_begun: bool) -> Exception:
        """The error as one of ours; what does not come from LiteLLM or the network stays what it is."""
        cause: Exception = getattr(error, "original_exception", None) or error
        family = [kind.__name__ for kind in type(cause).__mro__]
        if "Connection error" in str(cause):
            return unreachable(self.name, cause.__cause__ or cause)
        if "Timeout" in family or "TimeoutException" in family:
            return timed_out(self.name, settings.timeout)
        for name, objection in _OBJECTIONS:
            if name in family:
                status, headers = _beneath(cause)
                said = str(getattr(error, "message", error))[:500]
                known = BY_STATUS.get(status, objection) if objection == "bad request" else objection
                return refused(self.name, known, said, retry_after=retry_after(headers))
        if {"APIConnectionError", "APIError", "TransportError", "ClientError"} & set(family):
            return cut_short(self.name, has_begun=has_begun, because=error)
        return error


class _Answer:
    """An answer, as far as it has come."""

    def __init__(self, model: str) -> None:
        self.has_begun = False
        self._model = model
        self._has_content = False
        self._reason: str = ""
        self._usage: Usage | None = None
        self._thoughts: list[Any] = []

    def chunks(self, piece: Any) -> Iterator[Chunk]:
        """What this piece adds to the answer."""
        self.has_begun = True
        if getattr(piece, "usage", None) is not None:
            self._usage = _usage(piece.usage)
        for choice in piece.choices[:1]:
            yield from self._delta(choice.delta)
            reason: str | None = choice.finish_reason
            if reason:
                self._reason = _STOP_REASONS.get(reason, reason)

    def end(self) -> Iterator[Chunk]:
        """What comes last. Raises a ModelError if nothing was said, or the answer was cut."""
        if self._thoughts:
            yield ReasoningChunk(whole=Reasoning("", "litellm", {"thinking_blocks": self._thoughts}))
        if self._reason == "content_filter":
            raise filtered(self._model)
        if not self._has_content:
            raise empty(self._model, self._reason)
        yield ModelResponse(None, self._usage, self._reason, self._model)

    def _delta(self, delta: Any) -> Iterator[Chunk]:
        thought = getattr(delta, "reasoning_content", None)
        if thought:
            yield ReasoningChunk(thought)
        # Signed thoughts come piece by piece, too; only whole ones can be sent back.
        blocks: Sequence[Any] = getattr(delta, "thinking_blocks", None) or ()
        self._thoughts += [block for block in blocks if block.get("signature") or block.get("data")]
        if delta.content:
            self._has_content = True
            yield TextChunk(delta.content)
        for call in delta.tool_calls or ():
            self._has_content = True
            function = call.function
            yield ToolCallChunk(call.index, call.id or "", function.name or "", function.arguments or "")


def _beneath(error: BaseException) -> tuple[int, Mapping[str, str]]:
    """Status and headers of what the provider sent, which LiteLLM keeps only in the error that it wraps."""
    inner: BaseException | None = error
    status = 0
    headers: Mapping[str, str] = {}
    while inner is not None:
        status = getattr(inner, "status_code", None) or status
        headers = getattr(getattr(inner, "response", None), "headers", None) or headers
        inner = inner.__cause__ or inner.__context__
    return status, headers


def _litellm() -> Any:
    # Without this, importing it fetches a list of prices from the internet.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = import_module("litellm")
    # It would print advice on each error, into the terminal of whoever uses this.
    litellm.suppress_debug_info = True
    return litellm


def _messages(request: ModelRequest, model: str) -> Iterator[dict[str, Any]]:
    if request.instructions:
        yield {"role": "system", "content": request.instructions}
    for message in pair_calls_with_results(request.messages):
        yield from _message(message, model)


def _message(message: Message, model: str) -> Iterator[dict[str, Any]]:
    match message:
        case AssistantMessage():
            said: dict[str, Any] = {"role": "assistant", "content": text_of(message.content) or None}
            if message.tool_calls:
                said["tool_calls"] = [
                    {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                    for each in message.tool_calls
                ]
            blocks = [each.signature["thinking_blocks"] for each in message.reasoning if each.provider == "litellm"]
            if blocks:
                said["thinking_blocks"] = [block for several in blocks for block in several]
            yield said
        case ToolMessage():
            yield {"role": "tool", "tool_call_id": message.tool_call_id, "content": text_of(message.content)}
            media = media_of(message.content)
            if media:
                yield {"role": "user", "content": _content((Text(f"`{message.name}` showed:"), *media), model)}
        case SystemMessage():
            yield {"role": "system", "content": text_of(message.content)}
        case _:
            yield {"role": "user", "content": _content(message.content, model)}


def _content(content: Content, model: str) -> Any:
    return content if isinstance(content, str) else [_part(part, model) for part in content]


def _part(part: Part, model: str) -> dict[str, Any]:
    match part:
        case Image():
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": part.url or _data_url(part), **detail}}
        case File():
            if part.url is not None:
                return {"type": "file", "file": {"file_id": part.url, "format": part.media_type}}
            named = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {"file_data": _data_url(part), **named}}
        case Audio():
            if part.data is None:
                raise unfit(model, "sound by url", "give Audio(data=…)")
            kind = part.media_type.rpartition("/")[2].replace("mpeg", "mp3")
            return {"type": "input_audio", "input_audio": {"data": b64encode(part.data).decode(), "format": kind}}
        case _:
            return {"type": "text", "text": text_of((part,))}


def _data_url(part: Image | File) -> str:
    return f"data:{part.media_type};base64,{b64encode(part.data or b'').decode()}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": {**function, "strict": True} if spec.strict else function}


def _usage(usage: Any) -> Usage:
    told: dict[str, Any] = msgspec.json.decode(usage.model_dump_json())
    read: dict[str, Any] = told.get("prompt_tokens_details") or {}
    written: dict[str, Any] = told.get("completion_tokens_details") or {}
    cached, thought = read.get("cached_tokens") or 0, written.get("reasoning_tokens") or 0
    spent = told.get("prompt_tokens") or 0, told.get("completion_tokens") or 0
    return Usage(*spent, cached_tokens=cached, reasoning_tokens=thought, model_calls=1)
