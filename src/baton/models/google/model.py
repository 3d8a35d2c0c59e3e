"""GoogleModel, its client, the parser of its stream and the mapping of its errors."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

from ...errors import AuthenticationError, ModelError
from ...messages import Audio, File, Image, Part, Reasoning, ToolSpec, Usage
from ..base import (
    Chunk,
    ModelRequest,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    explain_arguments,
)
from ..encoding import as_base64, as_json
from ..provider_errors import (
    REASONS_BY_STATUS,
    ProviderErrorDetails,
    RejectionReason,
    cut_short,
    empty,
    filtered,
    malformed,
    parse_error,
    rejected,
    retry_after,
    timed_out,
    unreachable,
)
from ..sdk_clients import SDKModel, require_extra, shared_ssl_context
from .request import build_parameters, function_name

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
    """Converts the pieces of one response to chunks.

    Args:
        model: The model's name, for errors.
        tools: The tools of the request, to map function names back.
    """

    def __init__(self, model: str, tools: Sequence[ToolSpec] = ()) -> None:
        self._model = model
        self._names = {function_name(tool.name): tool.name for tool in tools}
        self._reason = ""
        self._message = ""
        self._usage: types.GenerateContentResponseUsageMetadata | None = None
        self._reasoning: list[str] = []
        self._calls = 0
        self._has_content = False

    @property
    def is_complete(self) -> bool:
        """True once the stop reason has arrived."""
        return bool(self._reason)

    def chunks(self, piece: "types.GenerateContentResponse") -> Iterator[Chunk]:
        """Yield the chunks of one piece. Raises ContentFilterError if the prompt was blocked."""
        self._usage = piece.usage_metadata or self._usage
        feedback = piece.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            raise rejected(self._model, "filtered", _reason(feedback.block_reason.value, feedback.block_reason_message))
        for candidate in (piece.candidates or ())[:1]:
            content = candidate.content
            for part in (content.parts if content is not None else None) or ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value
                self._message = candidate.finish_message or ""

    def end(self) -> Iterator[Chunk]:
        """Yield the last chunks. Raises ModelError if the response is empty or unusable."""
        if self._reasoning:
            yield ReasoningChunk(whole=self._close_reasoning(None))
        reason = self._stop_reason()
        if self._reason in _BROKEN_CALLS:
            raise malformed(self._model, f"{self._reason} {self._message}".strip())
        if reason == "content_filter":
            raise filtered(self._model, _reason(self._reason, self._message))
        if not self._has_content:
            raise empty(self._model, reason)
        yield ModelResponse(None, self._total_usage(), reason, self._model)

    def _part(self, part: "types.Part") -> Iterator[Chunk]:
        signature = part.thought_signature
        if part.thought:
            if part.text:
                self._reasoning.append(part.text)
                yield ReasoningChunk(part.text)
            if signature:
                yield ReasoningChunk(whole=self._close_reasoning({"signature": as_base64(signature)}))
            return
        call = part.function_call
        if call is not None:
            name = self._names.get(call.name or "", call.name or "")
            if signature or self._reasoning:
                opaque = {"signature": as_base64(signature), "call": self._calls, "name": name} if signature else None
                yield ReasoningChunk(whole=self._close_reasoning(opaque))
            arguments = as_json(call.args or {})
            # Google sends no ids, or numbers them from the start in each response.
            yield ToolCallChunk(self._calls, call.id or f"call_{uuid4().hex}", name, arguments)
            self._calls += 1
            self._has_content = True
            return
        if signature or (self._reasoning and (part.text or part.inline_data)):
            yield ReasoningChunk(
                whole=self._close_reasoning({"signature": as_base64(signature)} if signature else None)
            )
        if part.text:
            self._has_content = True
            yield TextChunk(part.text)
        elif part.inline_data is not None and part.inline_data.data is not None:
            self._has_content = True
            yield PartChunk(_media(part.inline_data.data, part.inline_data.mime_type))

    def _close_reasoning(self, opaque: dict[str, Any] | None) -> Reasoning:
        text = "".join(self._reasoning)
        self._reasoning.clear()
        return Reasoning(text, "google", opaque)

    def _stop_reason(self) -> str:
        if self._reason in _FILTERS:
            return "content_filter"
        reason = _STOP_REASONS.get(self._reason, self._reason.lower())
        return "tool_calls" if reason == "stop" and self._calls else reason

    def _total_usage(self) -> Usage | None:
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


def _reason(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


def _media(data: bytes, media_type: str | None) -> Part:
    kind = media_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(data=data, media_type=kind)
    return Audio(data=data, media_type=kind) if kind.startswith("audio/") else File(data=data, media_type=kind)


_TIMEOUT_MILLISECONDS = 600_000
_MAX_CONNECTIONS = 1000
_MAX_IDLE_CONNECTIONS = 100


class GoogleClient:
    """The SDK's client, on HTTP connections that can be closed in the middle of a response.

    Args:
        api_key: The API key, None if the environment provides it.
        base_url: The URL of the API, None for Google's.
        headers: HTTP headers to add to each request.
    """

    def __init__(self, api_key: str | None, base_url: str | None, headers: Mapping[str, str]) -> None:
        import httpx2
        from google.genai import Client, types

        limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_IDLE_CONNECTIONS)
        hooks = {"response": [self._remember]}
        self._http = httpx2.AsyncClient(
            verify=shared_ssl_context(), limits=limits, event_hooks=hooks, follow_redirects=True
        )
        # The SDK also requires a synchronous client; it is never used.
        self._unused = httpx2.Client(verify=shared_ssl_context())
        self._responses: dict[asyncio.Task[Any] | None, HTTPResponse] = {}
        # With a custom client the SDK does not retry; RetryModel does.
        options = types.HttpOptions(
            base_url=base_url,
            headers=dict(headers),
            timeout=_TIMEOUT_MILLISECONDS,
            httpx_client=self._unused,
            httpx_async_client=self._http,
        )
        self._client = Client(api_key=api_key, http_options=options)

    async def stream(self, parameters: dict[str, Any]) -> AsyncGenerator["types.GenerateContentResponse"]:
        """Stream the pieces of one response. Closing the iterator closes the HTTP response at once."""
        task = asyncio.current_task()
        response: HTTPResponse | None = None
        try:
            models: Any = self._client.aio.models
            async for piece in await models.generate_content_stream(**parameters):
                if response is None:
                    response = self._responses.pop(task, None)
                yield piece
        finally:
            # The SDK's nested generators would close it only when they are garbage-collected.
            response = response or self._responses.pop(task, None)
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        _disarm(self._client)
        self._unused.close()
        await self._http.aclose()

    async def _remember(self, response: "HTTPResponse") -> None:
        # A request is sent and its first piece is read in one task, which identifies the response.
        self._responses[asyncio.current_task()] = response


_TOO_LONG = re.compile(r"token count.{0,60}exceeds|exceeds the maximum number of tokens|context length", re.IGNORECASE)
_BAD_KEY = re.compile(r"API key (?:not valid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def error_from_body(model: str, status: int, body: Any, headers: Any) -> ModelError:
    """Build the error for an error body, sent instead of a response or within one."""
    details = parse_error(body)
    text = details.text or str(details.fields.get("status") or "no reason given")
    reason: RejectionReason = REASONS_BY_STATUS.get(status) or ("overloaded" if status >= 500 else "bad_request")
    if status == 400:
        if _BAD_KEY.search(f"{text} {details.fields.get('details', '')}"):
            reason = "authentication"
        elif _TOO_LONG.search(text):
            reason = "too_long"
    wait = _retry_delay(details)
    if wait is None and headers is not None:
        wait = retry_after(headers)
    return rejected(model, reason, f"{text} (status {status})", retry_after=wait)


def _retry_delay(details: ProviderErrorDetails) -> float | None:
    """Return the seconds to wait, which Google sends in the error instead of a header."""
    for detail in details.fields.get("details") or ():
        if isinstance(detail, dict):
            found = _SECONDS.fullmatch(str(cast("dict[str, Any]", detail).get("retryDelay", "")))
            if found is not None:
                return float(found[1])
    return None


_KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_CLOUD_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


@explain_arguments
class GoogleModel(SDKModel[GoogleClient]):
    """A Gemini model.

    Args:
        model: Google's name for the model, such as `gemini-3.8-flash`.
        api_key: The API key; by default GOOGLE_API_KEY or GEMINI_API_KEY. With GOOGLE_GENAI_USE_VERTEXAI=true the SDK
            finds project and credentials itself.
        base_url: The URL of the API; by default Google's.
        headers: HTTP headers to add to each request.

    Raises:
        SetupError: The SDK google-genai is not installed.
    """

    provider = "google"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(model, api_key, base_url, headers)
        require_extra("google", "google.genai", model=self.name, what="the SDK google-genai", extra="google")

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection.

        Args:
            request: The input of the call.
        """
        parser = GoogleStreamParser(self.name, request.tools)
        client = await self._clients.get()
        parameters = build_parameters(request, self.model, self.name)
        async with aclosing(client.stream(parameters)) as pieces:
            with self._translate_errors(request.settings.timeout) as progress:
                async for piece in pieces:
                    progress.has_begun = True
                    for chunk in parser.chunks(piece):
                        yield chunk
        if not parser.is_complete:
            raise cut_short(self.name, has_begun=True)
        for chunk in parser.end():
            yield chunk

    @contextmanager
    def _translate_errors(self, seconds: float | None) -> Generator["_Progress"]:
        import httpx2
        from google.genai import errors
        from pydantic import ValidationError

        progress = _Progress()
        try:
            yield progress
        except errors.UnknownApiResponseError as error:
            raise malformed(self.name, "a piece is not JSON") from error
        except errors.APIError as error:
            details: Any = error
            headers = getattr(details.response, "headers", None)
            raise error_from_body(self.name, details.code or 500, details.details, headers) from error
        except ValidationError as error:
            # The SDK validates requests with pydantic, too.
            if not error.title.startswith("GenerateContentResponse"):
                raise rejected(self.name, "bad_request", f"the SDK reports: {error}") from error
            raise malformed(self.name, "fields are not as documented") from error
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, seconds) from error
        except httpx2.ConnectError as error:
            raise unreachable(self.name, error) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=progress.has_begun, because=error) from error
        except (TypeError, AttributeError, LookupError) as error:
            raise malformed(self.name, f"fields are not as documented: {error}") from error

    def _make_client(self) -> GoogleClient:
        is_cloud = any(os.environ.get(name, "").lower() in ("true", "1") for name in _CLOUD_VARIABLES)
        if not self._api_key and not is_cloud and not any(os.environ.get(name) for name in _KEY_VARIABLES):
            advice = "set GOOGLE_API_KEY or GEMINI_API_KEY, or pass GoogleModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs an API key: {advice}", model=self.name)
        return GoogleClient(self._api_key, self._base_url, self._headers)

    async def _close_client(self, client: GoogleClient) -> None:
        await client.close()


class _Progress:
    has_begun = False


def _disarm(client: Any) -> None:
    """Keep a closed client from starting `aclose()` in another event loop when collected."""
    for each in (client.aio, getattr(client, "_api_client", None)):
        if each is not None:
            # Its `__del__` calls this, closed or not, and ignores what it raises.
            each.aclose = _already_closed


def _already_closed() -> NoReturn:
    raise RuntimeError("the client is closed")
