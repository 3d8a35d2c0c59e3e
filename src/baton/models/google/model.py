"""A model of Google, over its official SDK.

The pieces of Google's stream as chunks of an answer.

Google's client on connections of our own, so that an answer nobody wants any more ends at once.

What Google's errors mean.
"""

import asyncio
import os
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

import msgspec

from ...errors import AuthenticationError, ModelError
from ...messages import Audio, File, Image, Part, Reasoning, ToolSpec, Usage
from ..base import Chunk, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..provider_errors import (
    BY_STATUS,
    Objection,
    cut_short,
    empty,
    filtered,
    malformed,
    refused,
    retry_after,
    timed_out,
    unreachable,
)
from ..sdk_clients import PerEventLoop, require_extra, trusted
from .request import parameters, wire_name

if TYPE_CHECKING:
    from google.genai import types
    from httpx2 import Response as HTTPResponse

_STOP_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
_FILTERS = frozenset(
    (
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    )
)
_BROKEN_CALLS = frozenset(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"))


class GoogleStreamParser:
    """An answer, as far as it has come."""

    def __init__(self, model: str, tools: Sequence[ToolSpec] = ()) -> None:
        self._model = model
        self._names = {wire_name(tool.name): tool.name for tool in tools}
        self._reason = ""
        self._message = ""
        self._usage: types.GenerateContentResponseUsageMetadata | None = None
        self._thoughts: list[str] = []
        self._calls = 0
        self._has_content = False

    @property
    def is_complete(self) -> bool:
        """Whether the model has said why it stopped."""
        return bool(self._reason)

    def chunks(self, piece: "types.GenerateContentResponse") -> Iterator[Chunk]:
        """What this piece adds to the answer. Raises ContentFilterError if the prompt was blocked."""
        self._usage = piece.usage_metadata or self._usage
        feedback = piece.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            raise refused(self._model, "filtered", _why(feedback.block_reason.value, feedback.block_reason_message))
        for candidate in (piece.candidates or ())[:1]:
            content = candidate.content
            for part in (content.parts if content is not None else None) or ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value
                self._message = candidate.finish_message or ""

    def end(self) -> Iterator[Chunk]:
        """What comes last. Raises a ModelError if nothing was said, or nothing that can be used."""
        if self._thoughts:
            yield ReasoningChunk(whole=self._thought(None))
        reason = self._stop_reason()
        if self._reason in _BROKEN_CALLS:
            raise malformed(self._model, f"it says itself: {self._reason} {self._message}".strip())
        if reason == "content_filter":
            raise filtered(self._model, _why(self._reason, self._message))
        if not self._has_content:
            raise empty(self._model, reason)
        yield ModelResponse(None, self._used(), reason, self._model)

    def _part(self, part: "types.Part") -> Iterator[Chunk]:
        signature = part.thought_signature
        if part.thought:
            if part.text:
                self._thoughts.append(part.text)
                yield ReasoningChunk(part.text)
            if signature:
                yield ReasoningChunk(whole=self._thought({"signature": _base64(signature)}))
            return
        call = part.function_call
        if call is not None:
            name = self._names.get(call.name or "", call.name or "")
            if signature or self._thoughts:
                opaque = {"signature": _base64(signature), "call": self._calls, "name": name} if signature else None
                yield ReasoningChunk(whole=self._thought(opaque))
            arguments = msgspec.json.encode(call.args or {}).decode()
            # Google gives no ids, or counts them anew in each answer.
            yield ToolCallChunk(self._calls, call.id or f"call_{uuid4().hex}", name, arguments)
            self._calls += 1
            self._has_content = True
            return
        if signature or (self._thoughts and (part.text or part.inline_data)):
            yield ReasoningChunk(whole=self._thought({"signature": _base64(signature)} if signature else None))
        if part.text:
            self._has_content = True
            yield TextChunk(part.text)
        elif part.inline_data is not None and part.inline_data.data is not None:
            self._has_content = True
            yield PartChunk(_media(part.inline_data.data, part.inline_data.mime_type))

    def _thought(self, opaque: dict[str, Any] | None) -> Reasoning:
        text = "".join(self._thoughts)
        self._thoughts.clear()
        return Reasoning(text, "google", opaque)

    def _stop_reason(self) -> str:
        if self._reason in _FILTERS:
            return "content_filter"
        reason = _STOP_REASONS.get(self._reason, self._reason.lower())
        return "tool_calls" if reason == "stop" and self._calls else reason

    def _used(self) -> Usage | None:
        used = self._usage
        if used is None:
            return None
        thoughts = used.thoughts_token_count or 0
        return Usage(
            input_tokens=(used.prompt_token_count or 0) + (used.tool_use_prompt_token_count or 0),
            output_tokens=(used.candidates_token_count or 0) + thoughts,
            cached_tokens=used.cached_content_token_count or 0,
            reasoning_tokens=thoughts,
            model_calls=1,
        )


def _why(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


def _media(data: bytes, media_type: str | None) -> Part:
    kind = media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(data=data, media_type=kind)
    return Audio(data=data, media_type=kind) if kind.startswith("audio/") else File(data=data, media_type=kind)


def _base64(signature: bytes) -> str:
    return b64encode(signature).decode()


_MILLISECONDS = 600_000
_MOST_CONNECTIONS = 1000
_MOST_IDLE = 100


class GoogleClient:
    """The SDK's client in one event loop."""

    def __init__(self, api_key: str | None, base_url: str | None, headers: Mapping[str, str]) -> None:
        import httpx2
        from google.genai import Client, types

        limits = httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_MOST_IDLE)
        hooks = {"response": [self._begun]}
        self._http = httpx2.AsyncClient(verify=trusted(), limits=limits, event_hooks=hooks, follow_redirects=True)
        # The SDK wants one that is not async as well; it is never used.
        self._unused = httpx2.Client(verify=trusted())
        self._responses: dict[asyncio.Task[Any] | None, HTTPResponse] = {}
        # With a client of ours the SDK does not repeat requests either: baton.models.Retry does, and knows when not to.
        options = types.HttpOptions(
            base_url=base_url,
            headers=dict(headers),
            timeout=_MILLISECONDS,
            httpx_client=self._unused,
            httpx_async_client=self._http,
        )
        self._client = Client(api_key=api_key, http_options=options)

    async def stream(self, given: dict[str, Any]) -> AsyncGenerator["types.GenerateContentResponse"]:
        """The pieces of one answer. Closing this closes the response, also where the SDK is still in the middle."""
        task = asyncio.current_task()
        response: HTTPResponse | None = None
        try:
            models: Any = self._client.aio.models
            async for piece in await models.generate_content_stream(**given):
                if response is None:
                    response = self._responses.pop(task, None)
                yield piece
        finally:
            # The SDK's generators, one inside the other, would close it only when they are collected.
            response = response or self._responses.pop(task, None)
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        _disarm(self._client)
        self._unused.close()
        await self._http.aclose()

    async def _begun(self, response: "HTTPResponse") -> None:
        # A request is sent, and its first piece read, in one step of one task: that is how the two find each other.
        self._responses[asyncio.current_task()] = response


_TOO_LONG = re.compile(r"token count.{0,60}exceeds|exceeds the maximum number of tokens|context length", re.IGNORECASE)
_BAD_KEY = re.compile(r"API key (?:not valid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def complaint(model: str, status: int, body: Any, headers: Any) -> ModelError:
    """The error for what Google sent instead of an answer, or in the middle of one."""
    told = _error_in(body)
    text = str(told.get("message") or told.get("status") or "it gave no reason")
    objection: Objection = BY_STATUS.get(status) or ("overloaded" if status >= 500 else "bad request")
    if status == 400:
        if _BAD_KEY.search(f"{text} {told.get('details', '')}"):
            objection = "key"
        elif _TOO_LONG.search(text):
            objection = "too long"
    rest = _delay_in(told)
    if rest is None and headers is not None:
        rest = retry_after(headers)
    return refused(model, objection, f"{text} (status {status})", retry_after=rest)


def _error_in(body: Any) -> dict[str, Any]:
    if isinstance(body, list) and body:
        return _error_in(cast("list[Any]", body)[0])
    if not isinstance(body, dict):
        return {"message": str(cast(object, body))[:500]} if body else {}
    told = cast("dict[str, Any]", body)
    inner = told.get("error")
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else told


def _delay_in(told: dict[str, Any]) -> float | None:
    """How long to wait, which Google says in the details of an error rather than in a header."""
    for detail in told.get("details") or ():
        if isinstance(detail, dict):
            found = _SECONDS.fullmatch(str(cast("dict[str, Any]", detail).get("retryDelay", "")))
            if found is not None:
                return float(found[1])
    return None


_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_CLOUD = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


class GoogleModel:
    """Gemini, by the name that Google gives it, such as `gemini-3.8-flash`.

    The key is `api_key`, or else GOOGLE_API_KEY or GEMINI_API_KEY; with GOOGLE_GENAI_USE_VERTEXAI=true the SDK finds
    project and credentials by itself.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.model = model
        require_extra("google", "google.genai", model=self.name, what="the SDK google-genai", extra="google")
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._connections = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`google:` and the model's name."""
        return f"google:{self.model}"

    async def aclose(self) -> None:
        """Close the connections of this event loop; they close by themselves when the loop ends."""
        await self._connections.close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer one request, piece by piece. Closing the iterator closes the stream."""
        answer = GoogleStreamParser(self.name, request.tools)
        connection = await self._connections.get()
        given = parameters(request, self.model, self.name)
        async with aclosing(connection.stream(given)) as pieces:
            with self._told(request.settings.timeout) as progress:
                async for piece in pieces:
                    progress.has_begun = True
                    for chunk in answer.chunks(piece):
                        yield chunk
        if not answer.is_complete:
            raise cut_short(self.name, has_begun=True)
        for chunk in answer.end():
            yield chunk

    @contextmanager
    def _told(self, seconds: float | None) -> Generator["_Progress"]:
        """What the SDK and its HTTP client raise, as errors of ours."""
        import httpx2
        from google.genai import errors
        from pydantic import ValidationError

        progress = _Progress()
        try:
            yield progress
        except errors.UnknownApiResponseError as error:
            raise malformed(self.name, "a piece is not JSON") from error
        except errors.APIError as error:
            said: Any = error
            headers = getattr(said.response, "headers", None)
            raise complaint(self.name, said.code or 500, said.details, headers) from error
        except ValidationError as error:
            # The SDK checks what it is given with the same means as what it gets.
            if not error.title.startswith("GenerateContentResponse"):
                raise refused(self.name, "bad request", f"the SDK says: {error}") from error
            raise malformed(self.name, "fields are not as documented") from error
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, seconds) from error
        except httpx2.ConnectError as error:
            raise unreachable(self.name, error) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=progress.has_begun, because=error) from error
        except (TypeError, AttributeError, LookupError) as error:
            raise malformed(self.name, f"fields are not as documented: {error}") from error

    def _made(self) -> GoogleClient:
        is_cloud = any(os.environ.get(name, "").lower() in ("true", "1") for name in _CLOUD)
        if not self._api_key and not is_cloud and not any(os.environ.get(name) for name in _KEYS):
            advice = "set GOOGLE_API_KEY or GEMINI_API_KEY, or give GoogleModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs a key: {advice}", model=self.name)
        return GoogleClient(self._api_key, self._base_url, self._headers)


class _Progress:
    """Whether anything has come yet."""

    has_begun = False


async def _closed(connection: GoogleClient) -> None:
    await connection.close()


def _disarm(client: Any) -> None:
    """Keep a closed client from starting `aclose()` in another event loop when it is garbage collected."""
    for each in (client.aio, getattr(client, "_api_client", None)):
        if each is not None:
            # Its `__del__` calls this, closed or not, and ignores what it raises.
            each.aclose = _already_closed


def _already_closed() -> NoReturn:
    raise RuntimeError("the client is closed")
