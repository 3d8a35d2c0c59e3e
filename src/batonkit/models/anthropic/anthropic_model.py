"""AnthropicModel, the parser of its event stream and the mapping of its errors."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from ..._checks import check_arguments
from ...errors import AuthenticationError, ModelError
from ...messages import Usage
from .. import provider_errors
from ..backoff import DEFAULT_RETRIES, respond_with_retries
from ..encoding import Block, without_none
from ..event_stream import BaseResponseStream, EventParser, stream_response
from ..model import Chunk, ModelRequest, ToolCallChunk
from ..sdk_clients import TRANSPORT_VARIABLES, SDKModel, load_modules, shared_ssl_context
from ..sdk_transport import open_response
from .anthropic_request import build_parameters

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class AnthropicStreamParser(EventParser):
    """Converts the events of one response to chunks."""

    def __init__(self, model: str) -> None:
        super().__init__(model, "anthropic")
        self._usage: Block = {}
        self._stop_reason: str = ""
        self._explanation: str = ""
        self._positions: dict[int, int] = {}
        self._thinking: Block = {}
        """The signature and the position of the thinking block that has not ended."""
        self._written = 0

    def take(self, payload: bytes) -> list[Chunk]:
        """Return the chunks of one event; unknown event types have none."""
        chunks = self._begin()
        try:
            # The data of a ping may be empty.
            self._take_event(self._decode(msgspec.json.decode, payload or b'{"type": "ping"}'))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise provider_errors.malformed(self._model, f"{type(error).__name__} in an event") from error
        return chunks

    def end(self, *, is_done: bool) -> list[Chunk]:
        """Return the final chunk. Raises ModelError if the response is incomplete or empty."""
        if not self.is_complete:
            raise provider_errors.cut_short(self._model, has_begun=self.has_begun)
        chunks = self._begin()
        try:
            self._finish(self._stop_reason, self._total_usage(), self._model)
        except ModelError as error:
            if self._explanation:
                error.add_note(f"The provider's explanation: {self._explanation}")
            raise
        return chunks

    def _take_event(self, event: Block) -> None:
        if "error" in event:
            raise provider_errors.error_from_details(self._model, 200, provider_errors.parse_error(event), classify)
        match event["type"]:
            case "content_block_delta":
                self._take_delta(event["index"], event["delta"])
            case "content_block_start":
                self._start_block(event["index"], event["content_block"])
            case "content_block_stop":
                thinking = self._thinking
                self._thinking = {}
                self._close_reasoning(thinking if thinking.get("signature") else None)
            case "message_start":
                self._response_id = str(event["message"].get("id") or "")
                self._add_usage(event["message"].get("usage") or {})
            case "message_delta":
                self._set_stop_reason(event["delta"])
                self._add_usage(event.get("usage") or {})
            case "message_stop":
                self.is_complete = True
            case _:
                pass

    def _start_block(self, index: int, block: Block) -> None:
        match block["type"]:
            case "text":
                self._take_text(block.get("text", ""))
            case "tool_use":
                self._positions[index] = self._calls
                self._chunks.append(ToolCallChunk(self._calls, block["id"], block["name"]))
                self._calls += 1
            case "thinking":
                self._thinking = {"signature": block.get("signature", ""), **self._position()}
                self._add_reasoning(block.get("thinking", ""))
            case "redacted_thinking":
                self._close_reasoning({"data": block["data"], **self._position()})
            case _:
                pass

    def _take_delta(self, index: int, delta: Block) -> None:
        match delta["type"]:
            case "text_delta":
                self._take_text(delta["text"])
            case "input_json_delta":
                # Tools that run on Anthropic's servers send the same events.
                if index in self._positions and delta["partial_json"]:
                    self._chunks.append(ToolCallChunk(self._positions[index], arguments=delta["partial_json"]))
            case "thinking_delta":
                self._add_reasoning(delta["thinking"])
            case "signature_delta":
                self._thinking["signature"] += delta["signature"]
            case _:
                pass

    def _take_text(self, text: str) -> None:
        self._written += len(text)
        self._add_text(text)

    def _position(self) -> Block:
        """Return the place of a thinking block in the response, unless it is at the beginning."""
        return {"after": [self._written, self._calls]} if self._written or self._calls else {}

    def _set_stop_reason(self, delta: Block) -> None:
        reason: str | None = delta.get("stop_reason")
        if reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)
        details: Block = delta.get("stop_details") or {}
        self._explanation = details.get("explanation") or self._explanation

    def _add_usage(self, usage: Block) -> None:
        # Later counts include earlier ones; a count that is not repeated has not changed.
        self._usage |= without_none(usage)

    def _total_usage(self) -> Usage:
        used = self._usage
        cached = used.get("cache_read_input_tokens", 0)
        written = used.get("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=used.get("input_tokens", 0) + cached + written,
            output_tokens=used.get("output_tokens", 0),
            cached_tokens=cached,
            reasoning_tokens=used.get("output_tokens_details", {}).get("thinking_tokens", 0),
            model_calls=1,
            cache_write_tokens=written,
        )


_PATTERNS: tuple[tuple[str, provider_errors.RejectionReason], ...] = (
    (r"prompt is too long|exceed.{0,40}context|context (?:window|limit|length)", "too_long"),
    (r"credit balance|usage limit|spend limit", "quota"),
    (r"content filtering policy", "filtered"),
)
_REASONS_BY_TYPE: dict[str, provider_errors.RejectionReason] = {
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


def classify(status: int, details: provider_errors.ProviderErrorDetails) -> provider_errors.RejectionReason:
    """Return the reason for an error of Anthropic."""
    reason = _REASONS_BY_TYPE.get(details.kind) or provider_errors.reason_for_status(status)
    for pattern, meaning in _PATTERNS if reason == "bad_request" else ():
        if re.search(pattern, details.text, re.IGNORECASE):
            return meaning
    return reason


class AnthropicModel(SDKModel["AsyncAnthropic"]):
    """A Claude model.

    Raises:
        MissingExtraError: Anthropic's SDK is not installed.
    """

    provider = "anthropic"
    sdk_modules = ("anthropic",)
    _environment_prefixes = ("ANTHROPIC_", *TRANSPORT_VARIABLES)

    @check_arguments
    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: "AsyncAnthropic | None" = None,
    ) -> None:
        super().__init__(model, api_key=api_key, base_url=base_url, headers=headers)
        self._client = client

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection."""
        default = DEFAULT_RETRIES if self._client is None else self._client.max_retries
        return respond_with_retries(self._respond_once, request, model=self.name, default=default)

    def _respond_once(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        return stream_response(request, self._send, lambda _: AnthropicStreamParser(self.name))

    async def _send(self, request: ModelRequest) -> BaseResponseStream:
        await load_modules("httpx2", "anthropic.resources.messages.messages")
        import anthropic

        parameters = build_parameters(request, self.model, self.name)
        try:
            client = await self._get_client()
            return await open_response(
                anthropic, client, client.messages, parameters, model=self.name, classify=classify
            )
        except anthropic.CredentialsError as error:
            raise self._missing_key(f" ({error})") from error
        except TypeError as error:
            # The SDK raises TypeError if it finds no key.
            if "authentication" not in str(error):
                raise
            raise self._missing_key() from error

    async def _get_client(self) -> "AsyncAnthropic":
        """Return a client that does not retry, because the model does."""
        if self._client is None:
            return await self._clients.get()
        # A copy for each request follows later changes of the client.
        return self._client.with_options(max_retries=0)

    def _missing_key(self, because: str = "") -> AuthenticationError:
        advice = "set ANTHROPIC_API_KEY, or pass AnthropicModel(…, api_key=…)"
        return AuthenticationError(f"`{self.name}` needs an API key: {advice}{because}", model=self.name)

    def _make_client(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            default_headers=self._headers or None,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=shared_ssl_context(), follow_redirects=False),
        )
