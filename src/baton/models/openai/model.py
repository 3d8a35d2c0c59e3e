"""OpenAIModel, for OpenAI and compatible servers."""

import ssl
from collections.abc import AsyncIterator, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...arguments import check_choice
from ...errors import SetupError
from ..assembly import assemble_response
from ..base import Chunk, ModelRequest, explain_arguments
from ..sdk_clients import require_extra
from .chat import ChatDialect, ChatStreamParser, chat_body
from .encoding import output_tool
from .endpoint import PROVIDERS, APIKey, OpenAIEndpoint, ProviderDefaults, StructuredOutputMode
from .responses import ResponsesDialect, ResponsesStreamParser, is_reasoning_model, responses_body
from .transport import AiohttpTransport, OpenAIResponseStream, OpenAITransport, OutgoingRequest, SSEDecoder

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = getLogger(__name__)

OpenAIAPI: TypeAlias = Literal["chat", "responses"]
"""One of OpenAI's two APIs: Chat Completions, which all compatible servers have, or Responses."""

_DONE = b"[DONE]"
_AUDIO_TYPES = {
    "mp3": "audio/mpeg",
    "pcm16": "audio/pcm",
    "opus": "audio/opus",
    "flac": "audio/flac",
    "aac": "audio/aac",
}


@explain_arguments
class OpenAIModel:
    """A model of OpenAI, or of any server with a compatible Chat Completions or Responses API.

    Args:
        model: The provider's name for the model.
        api: The API to use: `chat` or `responses`.
        provider: The provider, whose environment variables and defaults apply, such as `azure` or `ollama`.
        base_url: The URL of the API; by default that of the environment or the provider.
        api_key: The API key, or a function that returns the current one; by default that of the environment.
        organization: OpenAI's organization; by default OPENAI_ORG_ID.
        project: OpenAI's project; by default OPENAI_PROJECT_ID.
        api_version: Azure's API version; by default OPENAI_API_VERSION.
        headers: HTTP headers to add to each request.
        proxy: The URL of an HTTP proxy; by default that of the environment.
        tls: The TLS settings; by default those of the system.
        client: An AsyncOpenAI to send the requests with; its URL, key, headers and TLS settings apply.
        structured: The way to request structured output; by default the provider's best.
        system_role: The role of system messages in Chat Completions.
        include_usage: Whether to request the token usage of streamed responses.
        store: Whether OpenAI stores responses of the Responses API; None omits the field.
        keep_reasoning: Whether to request reasoning that can be sent back, in Responses; by default for models that
            are known to reason.

    Raises:
        SetupError: An argument is not valid, a base URL is missing or aiohttp is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api: OpenAIAPI = "chat",
        provider: str = "openai",
        base_url: str | None = None,
        api_key: APIKey | None = None,
        organization: str | None = None,
        project: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        client: "AsyncOpenAI | None" = None,
        structured: StructuredOutputMode | None = None,
        system_role: Literal["system", "developer"] = "system",
        include_usage: bool = True,
        store: bool | None = False,
        keep_reasoning: bool | None = None,
    ) -> None:
        if not model:
            raise SetupError("OpenAIModel needs the name of a model, such as OpenAIModel('gpt-5')")
        check_choice("OpenAIModel(api=…)", api, ("chat", "responses"))
        defaults = PROVIDERS.get(provider, ProviderDefaults())
        mode = structured or defaults.structured
        check_choice("OpenAIModel(structured=…)", mode, ("native", "json_object", "tool"))
        self.api: OpenAIAPI = api
        self.provider = provider
        self.model = model
        self.name = f"{'openai-responses' if provider == 'openai' and api == 'responses' else provider}:{model}"
        limit_name = defaults.limit_name
        if client is not None:
            if any((base_url, api_key, organization, project, api_version, headers, proxy, tls)):
                raise SetupError("OpenAIModel(client=…) uses the URL, key, headers and TLS settings of the client")
            self._transport: OpenAITransport = _sdk_transport(client)
        else:
            require_extra("aiohttp", model=self.name, what="aiohttp", extra="openai")
            endpoint = OpenAIEndpoint(
                provider,
                base_url=base_url,
                api_key=api_key,
                organization=organization,
                project=project,
                api_version=api_version,
                headers=headers,
            )
            self._transport = AiohttpTransport(endpoint, tls=tls, proxy=proxy)
            # Compatible servers know only the older name, OpenAI's reasoning models only the newer one.
            limit_name = limit_name if endpoint.is_original or is_reasoning_model(model) else "max_tokens"
        self._chat = ChatDialect(
            model, self.name, provider, mode, limit_name, system_role, include_usage, defaults.returns_reasoning
        )
        keeps = is_reasoning_model(model) if keep_reasoning is None else keep_reasoning
        self._responses = ResponsesDialect(model, self.name, provider, mode, store, keeps)
        self._has_warned = False

    def __repr__(self) -> str:
        return f"OpenAIModel({self.model!r}, api={self.api!r}, provider={self.provider!r})"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request, or yield it whole if `stream` is off.

        Args:
            request: The input of the call.
        """
        parser = self._parser(request)
        stream = await self._transport.send(self._outgoing(request))
        try:
            piece = await stream.piece()
            # Some servers ignore the `stream` flag, so the response decides.
            if stream.is_whole or piece.lstrip()[:1] == b"{":
                yield await self._read_whole(piece, stream, parser)
                return
            events, is_done = SSEDecoder(), False
            while not is_done:
                for payload in events.feed(piece) if piece else events.rest():
                    if payload.startswith(_DONE):
                        is_done = True
                        break
                    for chunk in parser.take(payload):
                        yield chunk
                    is_done = parser.is_complete
                if not piece:
                    break
                if not is_done:
                    piece = await stream.piece()
            await stream.end()
        finally:
            await stream.close()
        for chunk in parser.end(is_done=is_done):
            yield chunk

    async def aclose(self) -> None:
        """Close the connections that models share in this event loop, as its end does."""
        await self._transport.close()

    def _outgoing(self, request: ModelRequest) -> OutgoingRequest:
        settings = request.settings
        if self.api == "chat":
            path, body = "/chat/completions", chat_body(request, self._chat)
        else:
            path, body = "/responses", responses_body(request, self._responses)
            if (settings.stop_sequences is not None or settings.seed is not None) and not self._has_warned:
                self._has_warned = True
                _log.warning("%s ignores stop_sequences and seed: the Responses API does not support them", self.name)
        return OutgoingRequest(
            path, self.model, self.name, body, settings.extra_body, settings.extra_headers, settings.timeout
        )

    def _parser(self, request: ModelRequest) -> ChatStreamParser | ResponsesStreamParser:
        tool = output_tool(request, self._chat.structured) if request.output_schema is not None else None
        answer_tool = tool.name if tool is not None else ""
        if self.api == "responses":
            return ResponsesStreamParser(self.name, self.provider, answer_tool=answer_tool)
        extra = request.settings.extra_body
        audio: Any = extra.get("audio") if extra else None
        audio_format: Any = audio.get("format", "") if hasattr(audio, "get") else ""
        audio_type = _AUDIO_TYPES.get(audio_format, "audio/wav")
        return ChatStreamParser(self.name, self.provider, answer_tool=answer_tool, audio_type=audio_type)

    async def _read_whole(
        self, piece: bytes, stream: OpenAIResponseStream, parser: ChatStreamParser | ResponsesStreamParser
    ) -> Chunk:
        pieces = [piece]
        while not stream.is_whole and piece:
            piece = await stream.piece()
            pieces.append(piece)
        chunks = parser.take_whole(b"".join(pieces))
        return assemble_response([*chunks, *parser.end(is_done=True)])


def _sdk_transport(client: "AsyncOpenAI") -> OpenAITransport:
    from .sdk_transport import SDKTransport

    return SDKTransport(client)
