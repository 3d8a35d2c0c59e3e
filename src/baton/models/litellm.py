"""Models of any provider that LiteLLM supports: `"litellm:bedrock/…"`."""

import os
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
from .encoding import as_base64, as_data_url, without_none
from .provider_errors import (
    REASONS_BY_STATUS,
    RejectionReason,
    cut_short,
    empty,
    filtered,
    rejected,
    retry_after,
    timed_out,
    unreachable,
    unsupported,
)
from .sdk_clients import require_extra

_STOP_REASONS = {"eos": "stop", "function_call": "tool_calls", "end_turn": "stop"}
# The first match counts: LiteLLM derives several of these from one another.
_REASONS: tuple[tuple[str, RejectionReason], ...] = (
    ("ContextWindowExceededError", "too_long"),
    ("ContentPolicyViolationError", "filtered"),
    ("PaymentRequiredError", "quota"),
    ("BudgetExceededError", "quota"),
    ("AuthenticationError", "authentication"),
    ("PermissionDeniedError", "authentication"),
    ("NotFoundError", "unknown_model"),
    ("LiteLLMUnknownProvider", "unknown_model"),
    ("RateLimitError", "rate_limit"),
    ("ServiceUnavailableError", "overloaded"),
    ("BadGatewayError", "overloaded"),
    ("InternalServerError", "overloaded"),
    ("BadRequestError", "bad_request"),
    ("UnprocessableEntityError", "bad_request"),
)


class LiteLLMModel:
    """A model that is called with LiteLLM.

    Args:
        model: LiteLLM's name for the model, such as `bedrock/anthropic.claude-opus-5-5`.
        api_key: The API key; by default LiteLLM looks for it.
        base_url: The URL of the API; by default the provider's.
        **options: Further arguments of `litellm.acompletion`.

    Raises:
        SetupError: LiteLLM is not installed.
    """

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None, **options: Any) -> None:
        self.model = model
        require_extra("litellm", model=self.name, what="LiteLLM", extra="litellm")
        self._options = without_none({"api_key": api_key, "api_base": base_url, **options})

    @property
    def name(self) -> str:
        """The prefix `litellm:` and the model's name."""
        return f"litellm:{self.model}"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection.

        Args:
            request: The input of the call.
        """
        parser = _StreamParser(self.name)
        stream: Any = None
        try:
            stream = await _litellm().acompletion(**self._options, **self._parameters(request))
            async for piece in stream:
                for chunk in parser.chunks(piece):
                    yield chunk
        except ModelError:
            raise
        except Exception as error:
            raise self._translate(error, request.settings, parser.has_begun) from error
        finally:
            if stream is not None:
                await stream.aclose()
        for chunk in parser.end():
            yield chunk

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        settings, output = request.settings, request.output_schema
        format = None
        if output is not None:
            format = {"type": "json_schema", "json_schema": {"name": output.name, "schema": output.schema}}
        tools = [_tool(spec) for spec in request.tools] or None
        choice: Any = request.tool_choice
        if choice not in (None, "auto", "required", "none"):
            choice = {"type": "function", "function": {"name": choice}}
        parameters = {
            "model": self.model,
            "messages": list(_messages(request, self.name)),
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
            "max_retries": 0,
            # Parameters that a provider does not support are dropped, as is usual with LiteLLM.
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
        return without_none(parameters)

    def _translate(self, error: Exception, settings: ModelSettings, has_begun: bool) -> Exception:
        """Return the ModelError for an error of LiteLLM or the network, any other error as it is."""
        cause: Exception = getattr(error, "original_exception", None) or error
        family = [kind.__name__ for kind in type(cause).__mro__]
        if "Connection error" in str(cause):
            return unreachable(self.name, cause.__cause__ or cause)
        if "Timeout" in family or "TimeoutException" in family:
            return timed_out(self.name, settings.timeout)
        for name, reason in _REASONS:
            if name in family:
                status, headers = _status_and_headers(cause)
                detail = str(getattr(error, "message", error))[:500]
                if reason == "bad_request":
                    reason = REASONS_BY_STATUS.get(status, reason)
                return rejected(self.name, reason, detail, retry_after=retry_after(headers))
        if {"APIConnectionError", "APIError", "TransportError", "ClientError"} & set(family):
            return cut_short(self.name, has_begun=has_begun, because=error)
        return error


class _StreamParser:
    def __init__(self, model: str) -> None:
        self.has_begun = False
        self._model = model
        self._has_content = False
        self._reason: str = ""
        self._usage: Usage | None = None
        self._thinking_blocks: list[Any] = []

    def chunks(self, piece: Any) -> Iterator[Chunk]:
        self.has_begun = True
        if getattr(piece, "usage", None) is not None:
            self._usage = _usage(piece.usage)
        for choice in piece.choices[:1]:
            yield from self._delta(choice.delta)
            reason: str | None = choice.finish_reason
            if reason:
                self._reason = _STOP_REASONS.get(reason, reason)

    def end(self) -> Iterator[Chunk]:
        if self._thinking_blocks:
            yield ReasoningChunk(whole=Reasoning("", "litellm", {"thinking_blocks": self._thinking_blocks}))
        if self._reason == "content_filter":
            raise filtered(self._model)
        if not self._has_content:
            raise empty(self._model, self._reason)
        yield ModelResponse(None, self._usage, self._reason, self._model)

    def _delta(self, delta: Any) -> Iterator[Chunk]:
        reasoning = getattr(delta, "reasoning_content", None)
        if reasoning:
            yield ReasoningChunk(reasoning)
        # Thinking blocks also arrive in pieces; only complete ones can be sent back.
        blocks: Sequence[Any] = getattr(delta, "thinking_blocks", None) or ()
        self._thinking_blocks += [block for block in blocks if block.get("signature") or block.get("data")]
        if delta.content:
            self._has_content = True
            yield TextChunk(delta.content)
        for call in delta.tool_calls or ():
            self._has_content = True
            function = call.function
            yield ToolCallChunk(call.index, call.id or "", function.name or "", function.arguments or "")


def _status_and_headers(error: BaseException) -> tuple[int, Mapping[str, str]]:
    """Return status and headers of the response, which only the wrapped errors have."""
    inner: BaseException | None = error
    status = 0
    headers: Mapping[str, str] = {}
    while inner is not None:
        status = getattr(inner, "status_code", None) or status
        headers = getattr(getattr(inner, "response", None), "headers", None) or headers
        inner = inner.__cause__ or inner.__context__
    return status, headers


def _litellm() -> Any:
    # Without this, the import downloads a price list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = import_module("litellm")
    # It would print advice on each error.
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
            encoded: dict[str, Any] = {"role": "assistant", "content": text_of(message.content) or None}
            if message.tool_calls:
                encoded["tool_calls"] = [
                    {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                    for each in message.tool_calls
                ]
            blocks = [each.signature["thinking_blocks"] for each in message.reasoning if each.provider == "litellm"]
            if blocks:
                encoded["thinking_blocks"] = [block for several in blocks for block in several]
            yield encoded
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
            return {
                "type": "image_url",
                "image_url": {"url": part.url or as_data_url(part.data, part.media_type), **detail},
            }
        case File():
            if part.url is not None:
                return {"type": "file", "file": {"file_id": part.url, "format": part.media_type}}
            named = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {"file_data": as_data_url(part.data, part.media_type), **named}}
        case Audio():
            if part.data is None:
                raise unsupported(model, "audio by URL", "pass Audio(data=…)")
            kind = part.media_type.rpartition("/")[2].replace("mpeg", "mp3")
            return {"type": "input_audio", "input_audio": {"data": as_base64(part.data), "format": kind}}
        case _:
            return {"type": "text", "text": text_of((part,))}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": {**function, "strict": True} if spec.strict else function}


def _usage(usage: Any) -> Usage:
    fields: dict[str, Any] = msgspec.json.decode(usage.model_dump_json())
    prompt: dict[str, Any] = fields.get("prompt_tokens_details") or {}
    completion: dict[str, Any] = fields.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=fields.get("prompt_tokens") or 0,
        output_tokens=fields.get("completion_tokens") or 0,
        cached_tokens=prompt.get("cached_tokens") or 0,
        reasoning_tokens=completion.get("reasoning_tokens") or 0,
        model_calls=1,
    )
