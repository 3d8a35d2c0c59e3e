"""AnthropicModel, the parser of its event stream and the mapping of its errors."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import AuthenticationError, ModelError
from ...messages import Reasoning, Usage
from ..base import (
    Chunk,
    ModelRequest,
    ModelResponse,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    explain_arguments,
)
from ..provider_errors import (
    REASONS_BY_STATUS,
    RejectionReason,
    cut_short,
    empty,
    malformed,
    parse_error,
    rejected,
    retry_after,
    timed_out,
    unreachable,
)
from ..sdk_clients import SDKModel, require_extra, shared_ssl_context
from .request import build_parameters

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import Response as HTTPResponse

_log = getLogger(__name__)

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}
_SECONDS_TO_DRAIN = 0.1


class AnthropicStreamParser:
    """Converts the events of one response to chunks.

    An event in an unexpected format raises KeyError, TypeError or ValueError.

    Args:
        model: The model's name, for errors.
    """

    def __init__(self, model: str) -> None:
        self.is_complete = False
        self._model = model
        self._usage: dict[str, Any] = {}
        self._stop_reason: str = ""
        self._explanation: str = ""
        self._calls: dict[int, int] = {}
        self._thinking: dict[int, _Thinking] = {}
        self._written = 0

    def chunks(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of one event; unknown event types yield nothing."""
        match event["type"]:
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_start":
                yield from self._start(event["index"], event["content_block"])
            case "content_block_stop":
                thinking = self._thinking.pop(event["index"], None)
                if thinking is not None:
                    yield ReasoningChunk(whole=thinking.build())
            case "message_start":
                self._add_usage(event["message"].get("usage") or {})
            case "message_delta":
                self._set_stop_reason(event["delta"])
                self._add_usage(event.get("usage") or {})
            case "message_stop":
                self.is_complete = True
            case _:
                pass

    def end(self) -> ModelResponse | ModelError:
        """Return the final chunk, or an error if the response is empty."""
        if not self._written and not self._calls:
            error = empty(self._model, self._stop_reason)
            if self._explanation:
                error.add_note(f"The provider's explanation: {self._explanation}")
            return error
        return ModelResponse(None, self._total_usage(), self._stop_reason, self._model)

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Chunk]:
        match block["type"]:
            case "text":
                yield from self._text(block.get("text", ""))
            case "tool_use":
                position = self._calls[index] = len(self._calls)
                yield ToolCallChunk(position, block["id"], block["name"])
            case "thinking":
                thinking = self._thinking[index] = _Thinking(self._position())
                yield from thinking.add(block.get("thinking", ""))
                thinking.signature += block.get("signature", "")
            case "redacted_thinking":
                opaque = {"data": block["data"], **self._position()}
                yield ReasoningChunk(whole=Reasoning("", "anthropic", opaque))
            case _:
                pass

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        match delta["type"]:
            case "text_delta":
                yield from self._text(delta["text"])
            case "input_json_delta":
                # Tools that run on Anthropic's servers send the same events.
                if index in self._calls and delta["partial_json"]:
                    yield ToolCallChunk(self._calls[index], arguments=delta["partial_json"])
            case "thinking_delta":
                yield from self._thinking[index].add(delta["thinking"])
            case "signature_delta":
                self._thinking[index].signature += delta["signature"]
            case _:
                pass

    def _text(self, text: str) -> Iterator[Chunk]:
        if text:
            self._written += len(text)
            yield TextChunk(text)

    def _position(self) -> dict[str, Any]:
        """Return the place of a thinking block in the response, unless it is at the beginning."""
        return {"after": [self._written, len(self._calls)]} if self._written or self._calls else {}

    def _set_stop_reason(self, delta: dict[str, Any]) -> None:
        reason: str | None = delta.get("stop_reason")
        if reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)
        details: dict[str, Any] = delta.get("stop_details") or {}
        self._explanation = details.get("explanation") or self._explanation

    def _add_usage(self, usage: dict[str, Any]) -> None:
        # Later counts include earlier ones; a count that is not repeated has not changed.
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _total_usage(self) -> Usage:
        used = self._usage
        cached = used.get("cache_read_input_tokens", 0)
        return Usage(
            input_tokens=used.get("input_tokens", 0) + cached + used.get("cache_creation_input_tokens", 0),
            output_tokens=used.get("output_tokens", 0),
            cached_tokens=cached,
            reasoning_tokens=used.get("output_tokens_details", {}).get("thinking_tokens", 0),
            model_calls=1,
        )


class _Thinking:
    __slots__ = ("_position", "_text", "signature")

    def __init__(self, position: dict[str, Any]) -> None:
        self.signature = ""
        self._position = position
        self._text: list[str] = []

    def add(self, text: str) -> Iterator[Chunk]:
        if text:
            self._text.append(text)
            yield ReasoningChunk(text)

    def build(self) -> Reasoning:
        opaque = {"signature": self.signature, **self._position} if self.signature else None
        return Reasoning("".join(self._text), "anthropic", opaque)


_TOO_LONG = re.compile(r"prompt is too long|exceed.{0,40}context|context (?:window|limit|length)", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance|usage limit|spend limit", re.IGNORECASE)
_FILTERED = re.compile(r"content filtering policy", re.IGNORECASE)

_REASONS_BY_TYPE: dict[str, RejectionReason] = {
    "authentication_error": "authentication",
    "permission_error": "authentication",
    "billing_error": "quota",
    "not_found_error": "unknown_model",
    "request_too_large": "too_long",
    "rate_limit_error": "rate_limit",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "timeout",
}


def error_from_body(model: str, status: int, body: Any, wait: float | None) -> ModelError:
    """Build the error for an error body, sent instead of a response or within one."""
    details = parse_error(body)
    kind, text = str(details.fields.get("type") or ""), details.text
    detail = f"{text or kind or 'no reason given'}{f' (status {status})' if status != 200 else ''}"
    reason: RejectionReason = _REASONS_BY_TYPE.get(kind) or REASONS_BY_STATUS.get(status) or "bad_request"
    if reason == "bad_request":
        if _TOO_LONG.search(text):
            reason = "too_long"
        elif _NO_CREDIT.search(text):
            reason = "quota"
        elif _FILTERED.search(text):
            reason = "filtered"
        elif status >= 500:
            reason = "overloaded"
    return rejected(model, reason, detail, retry_after=wait)


@explain_arguments
class AnthropicModel(SDKModel["AsyncAnthropic"]):
    """A Claude model.

    Args:
        model: Anthropic's name for the model, such as `claude-opus-5-5`.
        api_key: The API key; by default the SDK looks for ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or a profile.
        base_url: The URL of the API; by default Anthropic's.
        headers: HTTP headers to add to each request.
        client: An AsyncAnthropic, or its counterpart for Bedrock or Vertex, to use instead; you close it yourself.

    Raises:
        SetupError: Anthropic's SDK is not installed.
    """

    provider = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: "AsyncAnthropic | None" = None,
    ) -> None:
        super().__init__(model, api_key, base_url, headers)
        require_extra("anthropic", model=self.name, what="the SDK of Anthropic", extra="anthropic")
        self._client = client

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection.

        Args:
            request: The input of the call.
        """
        parser = AnthropicStreamParser(self.name)
        async with self._open(request) as response, aclosing(self._events(response, request)) as events:
            try:
                async for event in events:
                    for chunk in parser.chunks(event):
                        yield chunk
                    if parser.is_complete:
                        await _drain(events)
                        break
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise malformed(self.name, f"{type(error).__name__} in an event") from error
        if not parser.is_complete:
            raise cut_short(self.name, has_begun=True)
        end = parser.end()
        if isinstance(end, ModelError):
            raise end
        yield end

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncGenerator["HTTPResponse"]:
        import anthropic

        parameters = build_parameters(request, self.model, self.name)
        try:
            client: Any = self._client or await self._clients.get()
            opening = client.messages.with_streaming_response.create(**parameters)
            response = await opening.__aenter__()
        except anthropic.APIStatusError as error:
            wait = retry_after(error.response.headers)
            raise error_from_body(self.name, error.status_code, error.body, wait) from error
        except anthropic.APITimeoutError as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except anthropic.APIConnectionError as error:
            raise _connection_error(self.name, error) from error
        except anthropic.CredentialsError as error:
            raise self._missing_key(f" ({error})") from error
        except TypeError as error:
            # The SDK raises TypeError if it finds no key.
            if "authentication" not in str(error):
                raise
            raise self._missing_key() from error
        try:
            yield response.http_response
        finally:
            await opening.__aexit__(None, None, None)

    async def _events(self, response: "HTTPResponse", request: ModelRequest) -> AsyncGenerator[dict[str, Any]]:
        import httpx2
        from anthropic import AsyncStream

        has_begun = False
        try:
            async for event in AsyncStream.raw_events(response):
                has_begun = True
                if not event.data or event.event == "ping":
                    continue
                decoded = msgspec.json.decode(event.data)
                if event.event == "error" or decoded["type"] == "error":
                    raise error_from_body(self.name, 200, decoded, None)
                yield decoded
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=has_begun, because=error) from error

    def _missing_key(self, because: str = "") -> AuthenticationError:
        advice = "set ANTHROPIC_API_KEY, or pass AnthropicModel(…, api_key=…)"
        return AuthenticationError(f"`{self.name}` needs an API key: {advice}{because}", model=self.name)

    def _make_client(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            default_headers=self._headers or None,
            # RetryModel retries instead: it knows which output was already passed on.
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=shared_ssl_context()),
        )

    async def _close_client(self, client: "AsyncAnthropic") -> None:
        await client.close()


async def _drain(events: AsyncGenerator[dict[str, Any]]) -> None:
    """Read the end of the stream, so that the connection can be reused."""
    try:
        async with asyncio.timeout(_SECONDS_TO_DRAIN):
            async for _ in events:
                pass
    except (TimeoutError, ModelError) as error:
        _log.debug("the connection of a complete response cannot be reused: %s", error)


def _connection_error(name: str, error: Exception) -> ModelError:
    import httpx2

    cause = error.__cause__
    if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        return cut_short(name, has_begun=False, because=cause)
    return unreachable(name, cause or error)
