"""GoogleModel, its client, the parser of its stream and the mapping of its errors."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import uuid4

from ...errors import AuthenticationError
from ...messages import TokenLogprob, ToolSpec, Usage, to_media
from .. import provider_errors
from ..backoff import respond_with_retries
from ..encoding import as_base64, as_json
from ..model import Chunk, ModelRequest, PartChunk, ToolCallChunk
from ..sdk_clients import TRANSPORT_VARIABLES, SDKModel, load_modules, shared_ssl_context
from ..stream_parser import StreamParser
from .google_request import build_parameters, function_name

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


class GoogleStreamParser(StreamParser):
    """Converts the pieces of one response to chunks."""

    def __init__(self, model: str, tools: Sequence[ToolSpec] = ()) -> None:
        super().__init__(model, "google")
        self._names = {function_name(tool.name): tool.name for tool in tools}
        self._reason = ""
        self._message = ""
        self._usage: types.GenerateContentResponseUsageMetadata | None = None

    @property
    def is_complete(self) -> bool:
        """True once the stop reason has arrived."""
        return bool(self._reason)

    def take(self, piece: "types.GenerateContentResponse") -> list[Chunk]:
        """Return the chunks of one piece. Raises ContentFilterError if the prompt was blocked."""
        chunks = self._begin()
        self._usage = piece.usage_metadata or self._usage
        self._response_id = piece.response_id or self._response_id
        feedback = piece.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            raise provider_errors.rejected(
                self._model, "filtered", _reason(feedback.block_reason.value, feedback.block_reason_message)
            )
        for candidate in (piece.candidates or ())[:1]:
            content = candidate.content
            for part in (content.parts if content is not None else None) or ():
                self._take_part(part)
            if candidate.logprobs_result is not None:
                self._logprobs += _to_logprobs(candidate.logprobs_result)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value
                self._message = candidate.finish_message or ""
        return chunks

    def end(self) -> list[Chunk]:
        """Return the last chunks. Raises ModelError if the response is empty or unusable."""
        chunks = self._begin()
        self._close_reasoning()
        if self._reason in _BROKEN_CALLS:
            raise provider_errors.malformed(self._model, f"{self._reason} {self._message}".strip())
        if self._reason in _FILTERS:
            raise provider_errors.filtered(self._model, _reason(self._reason, self._message))
        reason = _STOP_REASONS.get(self._reason, self._reason.lower())
        self._finish(reason, self._total_usage(), self._model)
        return chunks

    def _take_part(self, part: "types.Part") -> None:
        signature = {"signature": as_base64(part.thought_signature)} if part.thought_signature else None
        call = part.function_call
        if part.thought:
            self._add_reasoning(part.text or "")
            if signature:
                self._close_reasoning(signature)
        elif call is not None:
            name = self._names.get(call.name or "", call.name or "")
            self._close_reasoning({**signature, "call": self._calls, "name": name} if signature else None)
            # Google sends no ids, or numbers them from the start in each response.
            id = call.id or f"call_{uuid4().hex}"
            self._chunks.append(ToolCallChunk(self._calls, id, name, as_json(call.args or {})))
            self._calls += 1
        else:
            if signature or part.text or part.inline_data:
                self._close_reasoning(signature)
            self._add_text(part.text or "")
            if not part.text and part.inline_data is not None and part.inline_data.data is not None:
                self._has_answer = True
                self._chunks.append(PartChunk(to_media(part.inline_data.mime_type, data=part.inline_data.data)))

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


def _to_logprobs(result: "types.LogprobsResult") -> Iterator[TokenLogprob]:
    tops = result.top_candidates or ()
    for position, chosen in enumerate(result.chosen_candidates or ()):
        top = (tops[position].candidates if position < len(tops) else None) or ()
        yield _to_logprob(chosen, tuple([_to_logprob(each) for each in top]))


def _to_logprob(candidate: "types.LogprobsResultCandidate", top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    return TokenLogprob(candidate.token or "", candidate.log_probability or 0.0, top)


def _reason(reason: str, message: str | None) -> str:
    return f"{reason}: {message}" if message else reason


_TIMEOUT_MILLISECONDS = 600_000
_MAX_CONNECTIONS = 1000
_MAX_IDLE_CONNECTIONS = 100


class GoogleClient:
    """The SDK's client, on HTTP connections that can be closed in the middle of a response."""

    def __init__(self, api_key: str | None, base_url: str | None, headers: Mapping[str, str]) -> None:
        import httpx2
        from google.genai import Client, types

        limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_IDLE_CONNECTIONS)
        hooks = {"response": [self._remember]}
        self._http = httpx2.AsyncClient(verify=shared_ssl_context(), limits=limits, event_hooks=hooks)
        # The SDK also requires a synchronous client; it is never used.
        self._unused = httpx2.Client(verify=shared_ssl_context())
        self._responses: dict[asyncio.Task[Any] | None, HTTPResponse] = {}
        # With a custom client the SDK does not retry; the model does.
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
        # When collected, even a closed client starts `aclose()` in another event loop, and ignores what it raises.
        client: Any = self._client
        for each in (client.aio, getattr(client, "_api_client", None)):
            if each is not None:
                each.aclose = _already_closed
        self._unused.close()
        await self._http.aclose()

    async def _remember(self, response: "HTTPResponse") -> None:
        # A request is sent and its first piece is read in one task, which identifies the response.
        self._responses[asyncio.current_task()] = response


_TOO_LONG = re.compile(r"token count.{0,60}exceeds|exceeds the maximum number of tokens|context length", re.IGNORECASE)
_BAD_KEY = re.compile(r"API key (?:not valid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def classify(status: int, details: provider_errors.ProviderErrorDetails) -> provider_errors.RejectionReason:
    """Return the reason for an error of Google."""
    if status == 400:
        if _BAD_KEY.search(f"{details.text} {details.fields.get('details', '')}"):
            return "authentication"
        if _TOO_LONG.search(details.text):
            return "too_long"
    return provider_errors.reason_for_status(status)


def _retry_delay(details: provider_errors.ProviderErrorDetails, headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, which Google sends in the error rather than in a header."""
    for detail in details.fields.get("details") or ():
        if isinstance(detail, dict):
            found = _SECONDS.fullmatch(str(cast("dict[str, Any]", detail).get("retryDelay", "")))
            if found is not None:
                return float(found[1])
    return provider_errors.retry_after(headers)


_KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_CLOUD_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


class GoogleModel(SDKModel[GoogleClient]):
    """A Gemini model.

    Raises:
        MissingExtraError: The SDK google-genai is not installed.
    """

    provider = "google"
    sdk_modules = ("google", "google.genai")
    _environment_prefixes = ("GOOGLE_", "GEMINI_", *TRANSPORT_VARIABLES)

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection."""
        return respond_with_retries(self._respond_once, request, model=self.name)

    async def _respond_once(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        await load_modules("httpx2", "google.genai")
        parser = GoogleStreamParser(self.name, request.tools)
        client = await self._clients.get()
        parameters = build_parameters(request, self.model, self.name)
        async with aclosing(client.stream(parameters)) as pieces:
            with self._translate_errors(request.settings.timeout, parser):
                async for piece in pieces:
                    for chunk in parser.take(piece):
                        yield chunk
        if not parser.is_complete:
            raise provider_errors.cut_short(self.name, has_begun=True)
        for chunk in parser.end():
            yield chunk

    @contextmanager
    def _translate_errors(self, seconds: float | None, parser: GoogleStreamParser) -> Generator[None]:
        import httpx2
        from google.genai import errors
        from pydantic import ValidationError

        try:
            yield
        except errors.UnknownApiResponseError as error:
            raise provider_errors.malformed(self.name, "a piece is not JSON") from error
        except errors.APIError as error:
            sent: Any = error
            headers: Mapping[str, str] = getattr(sent.response, "headers", None) or {}
            if 300 <= (sent.code or 500) < 400:
                raise provider_errors.redirected(self.name, sent.code, headers) from error
            details = provider_errors.parse_error(sent.details)
            wait = _retry_delay(details, headers)
            raise provider_errors.error_from_details(
                self.name, sent.code or 500, details, classify, wait=wait
            ) from error
        except ValidationError as error:
            # The SDK validates requests with pydantic, too.
            if not error.title.startswith("GenerateContentResponse"):
                raise provider_errors.rejected(self.name, "bad_request", f"the SDK reports: {error}") from error
            raise provider_errors.malformed(self.name, "fields are not as documented") from error
        except httpx2.TimeoutException as error:
            raise provider_errors.timed_out(self.name, seconds) from error
        except httpx2.ConnectError as error:
            raise provider_errors.unreachable(self.name, error) from error
        except httpx2.TransportError as error:
            raise provider_errors.cut_short(self.name, has_begun=parser.has_begun, because=error) from error
        except (TypeError, AttributeError, LookupError) as error:
            raise provider_errors.malformed(self.name, f"fields are not as documented: {error}") from error

    def _make_client(self) -> GoogleClient:
        is_cloud = any(os.environ.get(name, "").lower() in ("true", "1") for name in _CLOUD_VARIABLES)
        if not self._api_key and not is_cloud and not any(os.environ.get(name) for name in _KEY_VARIABLES):
            advice = "set GOOGLE_API_KEY or GEMINI_API_KEY, or pass GoogleModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs an API key: {advice}", model=self.name)
        return GoogleClient(self._api_key, self._base_url, self._headers)


def _already_closed() -> NoReturn:
    raise RuntimeError("the client is closed")
