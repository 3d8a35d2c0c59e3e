"""A model of Anthropic, over its official SDK.

The events of Anthropic's stream as chunks of an answer.

What Anthropic's errors mean.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ...errors import AuthenticationError, ModelError
from ...messages import Reasoning, Usage
from ..base import Chunk, ModelRequest, ModelResponse, ReasoningChunk, TextChunk, ToolCallChunk
from ..provider_errors import (
    BY_STATUS,
    Objection,
    cut_short,
    empty,
    malformed,
    refused,
    retry_after,
    timed_out,
    unreachable,
)
from ..sdk_clients import PerEventLoop, require_extra, trusted
from .request import parameters

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import Response as HTTPResponse

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}


class AnthropicStreamParser:
    """An answer, as far as it has come. What is wrong with an event shows as a KeyError, TypeError or ValueError."""

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
        """What this event adds to the answer; kinds that are not known add nothing."""
        match event["type"]:
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_start":
                yield from self._start(event["index"], event["content_block"])
            case "content_block_stop":
                thinking = self._thinking.pop(event["index"], None)
                if thinking is not None:
                    yield ReasoningChunk(whole=thinking.closed())
            case "message_start":
                self._count(event["message"].get("usage") or {})
            case "message_delta":
                self._stopped(event["delta"])
                self._count(event.get("usage") or {})
            case "message_stop":
                self.is_complete = True
            case _:
                pass

    def end(self) -> ModelResponse | ModelError:
        """How it ended: an error, if nothing was said."""
        if not self._written and not self._calls:
            error = empty(self._model, self._stop_reason)
            if self._explanation:
                error.add_note(f"The provider explains: {self._explanation}")
            return error
        return ModelResponse(None, self._used(), self._stop_reason, self._model)

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Chunk]:
        match block["type"]:
            case "text":
                yield from self._text(block.get("text", ""))
            case "tool_use":
                position = self._calls[index] = len(self._calls)
                yield ToolCallChunk(position, block["id"], block["name"])
            case "thinking":
                thinking = self._thinking[index] = _Thinking(self._so_far())
                yield from thinking.more(block.get("thinking", ""))
                thinking.signature += block.get("signature", "")
            case "redacted_thinking":
                opaque = {"data": block["data"], **self._so_far()}
                yield ReasoningChunk(whole=Reasoning("", "anthropic", opaque))
            case _:
                pass

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        match delta["type"]:
            case "text_delta":
                yield from self._text(delta["text"])
            case "input_json_delta":
                # Tools that run at Anthropic's are called in the same words, and are none of ours.
                if index in self._calls and delta["partial_json"]:
                    yield ToolCallChunk(self._calls[index], arguments=delta["partial_json"])
            case "thinking_delta":
                yield from self._thinking[index].more(delta["thinking"])
            case "signature_delta":
                self._thinking[index].signature += delta["signature"]
            case _:
                pass

    def _text(self, text: str) -> Iterator[Chunk]:
        if text:
            self._written += len(text)
            yield TextChunk(text)

    def _so_far(self) -> dict[str, Any]:
        """Where in the answer a thought stands, unless it stands at its beginning."""
        return {"after": [self._written, len(self._calls)]} if self._written or self._calls else {}

    def _stopped(self, delta: dict[str, Any]) -> None:
        reason: str | None = delta.get("stop_reason")
        if reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)
        details: dict[str, Any] = delta.get("stop_details") or {}
        self._explanation = details.get("explanation") or self._explanation

    def _count(self, usage: dict[str, Any]) -> None:
        # Later counts include the earlier ones; what is not repeated has not changed.
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _used(self) -> Usage:
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
    """One block of thoughts, as far as it has come."""

    __slots__ = ("_place", "_text", "signature")

    def __init__(self, place: dict[str, Any]) -> None:
        self.signature = ""
        self._place = place
        self._text: list[str] = []

    def more(self, text: str) -> Iterator[Chunk]:
        if text:
            self._text.append(text)
            yield ReasoningChunk(text)

    def closed(self) -> Reasoning:
        opaque = {"signature": self.signature, **self._place} if self.signature else None
        return Reasoning("".join(self._text), "anthropic", opaque)


_TOO_LONG = re.compile(r"prompt is too long|exceed.{0,40}context|context (?:window|limit|length)", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance|usage limit|spend limit", re.IGNORECASE)
_FILTERED = re.compile(r"content filtering policy", re.IGNORECASE)

_BY_KIND: dict[str, Objection] = {
    "authentication_error": "key",
    "permission_error": "key",
    "billing_error": "no credit",
    "not_found_error": "no model",
    "request_too_large": "too long",
    "rate_limit_error": "too many",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "too slow",
}


def complaint(model: str, status: int, body: Any, rest: float | None) -> ModelError:
    """The error for what Anthropic sent instead of an answer, or in the middle of one."""
    kind, text = _told(body)
    said = f"{text or kind or 'it gave no reason'}{f' (status {status})' if status != 200 else ''}"
    objection: Objection = _BY_KIND.get(kind) or BY_STATUS.get(status) or "bad request"
    if objection == "bad request":
        if _TOO_LONG.search(text):
            objection = "too long"
        elif _NO_CREDIT.search(text):
            objection = "no credit"
        elif _FILTERED.search(text):
            objection = "filtered"
        elif status >= 500:
            objection = "overloaded"
    return refused(model, objection, said, retry_after=rest)


def _told(body: Any) -> tuple[str, str]:
    """The kind of error and the words for people."""
    error = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", str(cast(object, body))[:500] if body else ""
    told = cast("dict[str, Any]", error)
    return str(told.get("type") or ""), str(told.get("message") or "")


_log = getLogger(__name__)

_SECONDS_FOR_THE_END = 0.1


class AnthropicModel:
    """Claude, by the name that Anthropic gives it, such as `claude-opus-5-5`.

    The key is `api_key`, or else whatever the SDK finds: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a profile. With
    `client`, an AsyncAnthropic or its like for Bedrock or Vertex, that one is used; closing it is up to you.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: "AsyncAnthropic | None" = None,
    ) -> None:
        self.model = model
        require_extra("anthropic", model=self.name, what="the SDK of Anthropic", extra="anthropic")
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._given = client
        self._clients = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`anthropic:` and the model's name."""
        return f"anthropic:{self.model}"

    async def aclose(self) -> None:
        """Close the connections of this event loop; they close by themselves when the loop ends."""
        await self._clients.close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer one request, piece by piece. Closing the iterator closes the stream."""
        answer = AnthropicStreamParser(self.name)
        async with self._opened(request) as response, aclosing(self._events(response, request)) as events:
            try:
                async for event in events:
                    for chunk in answer.chunks(event):
                        yield chunk
                    if answer.is_complete:
                        await _read_to_its_end(events)
                        break
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise malformed(self.name, f"{type(error).__name__} in an event") from error
        if not answer.is_complete:
            raise cut_short(self.name, has_begun=True)
        ending = answer.end()
        if isinstance(ending, ModelError):
            raise ending
        yield ending

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator["HTTPResponse"]:
        import anthropic

        given = parameters(request, self.model, self.name)
        try:
            client: Any = self._given or await self._clients.get()
            opening = client.messages.with_streaming_response.create(**given)
            response = await opening.__aenter__()
        except anthropic.APIStatusError as error:
            raise complaint(self.name, error.status_code, error.body, retry_after(error.response.headers)) from error
        except anthropic.APITimeoutError as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except anthropic.APIConnectionError as error:
            raise _not_reached(self.name, error) from error
        except anthropic.CredentialsError as error:
            raise self._without_key(f" ({error})") from error
        except TypeError as error:
            # This is how the SDK says that it has found no key.
            if "authentication" not in str(error):
                raise
            raise self._without_key() from error
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
                read = msgspec.json.decode(event.data)
                if event.event == "error" or read["type"] == "error":
                    raise complaint(self.name, 200, read, None)
                yield read
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=has_begun, because=error) from error

    def _without_key(self, because: str = "") -> AuthenticationError:
        advice = "set ANTHROPIC_API_KEY, or give AnthropicModel(…, api_key=…)"
        return AuthenticationError(f"`{self.name}` needs a key: {advice}{because}", model=self.name)

    def _made(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            default_headers=self._headers or None,
            # Retrying is done by baton.models.Retry, which knows what was passed on already.
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=trusted()),
        )


async def _read_to_its_end(events: AsyncGenerator[dict[str, Any]]) -> None:
    """Read what little is left after the last event, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_SECONDS_FOR_THE_END):
            async for _ in events:
                pass
    except (TimeoutError, ModelError) as error:
        # The answer is complete: that its connection cannot be used again concerns nobody.
        _log.debug("the connection of a complete answer is not used again: %s", error)


async def _closed(client: "AsyncAnthropic") -> None:
    await client.close()


def _not_reached(name: str, error: Exception) -> ModelError:
    import httpx2

    cause = error.__cause__
    if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        return cut_short(name, has_begun=False, because=cause)
    return unreachable(name, cause or error)
