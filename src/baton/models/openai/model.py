"""A model that speaks to OpenAI, or to a server that resembles it."""

import ssl
from collections.abc import AsyncIterator, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from typing_extensions import Unpack

from ...errors import SetupError, check_choice
from ..assembly import assemble_response
from ..base import Chunk, ModelRequest
from ..sdk_clients import require_extra
from .chat import ChatDialect, ChatStreamParser, chat_body
from .encoding import output_tool
from .endpoint import PROVIDERS, EndpointOptions, OpenAIEndpoint, ProviderDefaults, StructuredOutputMode
from .responses import ResponsesDialect, ResponsesStreamParser, responses_body, thinks
from .transport import AiohttpTransport, OpenAIResponseStream, OpenAITransport, OutgoingRequest, SSEDecoder

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = getLogger(__name__)

OpenAIAPI: TypeAlias = Literal["chat", "responses"]
"""Which of OpenAI's two APIs a model speaks: Chat Completions, which everybody has, or Responses."""

_DONE = b"[DONE]"
_SOUNDS = {"mp3": "audio/mpeg", "pcm16": "audio/pcm", "opus": "audio/opus", "flac": "audio/flac", "aac": "audio/aac"}


class OpenAIModel:
    """A model of OpenAI, or of any server that speaks its Chat Completions or Responses API.

    Address and key are taken from the environment unless they are given (`base_url`, `api_key`, `organization`,
    `project`, `api_version`, `headers`); `provider` says whose variables and habits these are. With `client`, the
    official client carries the requests instead of our own connections.
    """

    def __init__(
        self,
        model: str,
        *,
        api: OpenAIAPI = "chat",
        provider: str = "openai",
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        client: "AsyncOpenAI | None" = None,
        structured: StructuredOutputMode | None = None,
        system_role: Literal["system", "developer"] = "system",
        include_usage: bool = True,
        store: bool | None = False,
        keep_reasoning: bool | None = None,
        **address: Unpack[EndpointOptions],
    ) -> None:
        if not model:
            raise SetupError("OpenAIModel needs the name of a model, such as OpenAIModel('gpt-5')")
        check_choice("OpenAIModel(api=…)", api, ("chat", "responses"))
        known = PROVIDERS.get(provider, ProviderDefaults())
        way = structured or known.structured
        check_choice("OpenAIModel(structured=…)", way, ("native", "json_object", "tool"))
        self.api: OpenAIAPI = api
        self.provider = provider
        self.model = model
        self.name = f"{'openai-responses' if provider == 'openai' and api == 'responses' else provider}:{model}"
        limit_name = known.limit_name
        if client is not None:
            if address or proxy or tls:
                raise SetupError("OpenAIModel(client=…) takes address, key, headers and TLS from the client alone")
            self._wire: OpenAITransport = _official(client)
        else:
            require_extra("aiohttp", model=self.name, what="aiohttp", extra="openai")
            endpoint = OpenAIEndpoint(provider, **address)
            self._wire = AiohttpTransport(endpoint, tls=tls, proxy=proxy)
            # Servers that resemble OpenAI's know the older name only, and its reasoning models the newer one only.
            limit_name = known.limit_name if endpoint.is_original or thinks(model) else "max_tokens"
        self._chat = ChatDialect(
            model, self.name, provider, way, limit_name, system_role, include_usage, known.returns_reasoning
        )
        keeps = thinks(model) if keep_reasoning is None else keep_reasoning
        self._responses = ResponsesDialect(model, self.name, provider, way, store, keeps)
        self._has_warned = False

    def __repr__(self) -> str:
        return f"OpenAIModel({self.model!r}, api={self.api!r}, provider={self.provider!r})"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer, piece by piece if the request wants a stream, else in one piece."""
        answer = self._answer(request)
        exchange = await self._wire.send(self._sending(request))
        try:
            piece = await exchange.piece()
            # Some servers do not do as they are told, so what came is what counts.
            if exchange.is_whole or piece.lstrip()[:1] == b"{":
                yield await self._whole(piece, exchange, answer)
                return
            events, is_done = SSEDecoder(), False
            while not is_done:
                for payload in events.feed(piece) if piece else events.rest():
                    if payload.startswith(_DONE):
                        is_done = True
                        break
                    for chunk in answer.take(payload):
                        yield chunk
                    is_done = answer.is_complete
                if not piece:
                    break
                if not is_done:
                    piece = await exchange.piece()
            await exchange.end()
        finally:
            await exchange.close()
        for chunk in answer.ended(is_done=is_done):
            yield chunk

    async def aclose(self) -> None:
        """Close the connections that models share in this event loop, as asyncio does when the loop shuts down."""
        await self._wire.close()

    def _sending(self, request: ModelRequest) -> OutgoingRequest:
        settings = request.settings
        if self.api == "chat":
            path, body = "/chat/completions", chat_body(request, self._chat)
        else:
            path, body = "/responses", responses_body(request, self._responses)
            if (settings.stop_sequences is not None or settings.seed is not None) and not self._has_warned:
                self._has_warned = True
                _log.warning("%s has neither `stop` nor `seed`: the Responses API does not take them", self.name)
        return OutgoingRequest(
            path, self.model, self.name, body, settings.extra_body, settings.extra_headers, settings.timeout
        )

    def _answer(self, request: ModelRequest) -> ChatStreamParser | ResponsesStreamParser:
        tool = output_tool(request, self._chat.structured) if request.output_schema is not None else None
        answer_tool = tool.name if tool is not None else ""
        if self.api == "responses":
            return ResponsesStreamParser(self.name, self.provider, answer_tool=answer_tool)
        extra = request.settings.extra_body
        sound: Any = extra.get("audio") if extra else None
        sound_type = _SOUNDS.get(sound.get("format", ""), "audio/wav") if isinstance(sound, Mapping) else "audio/wav"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return ChatStreamParser(self.name, self.provider, answer_tool=answer_tool, sound_type=sound_type)

    async def _whole(
        self, piece: bytes, exchange: OpenAIResponseStream, answer: ChatStreamParser | ResponsesStreamParser
    ) -> Chunk:
        pieces = [piece]
        while not exchange.is_whole and piece:
            piece = await exchange.piece()
            pieces.append(piece)
        chunks = answer.take_whole(b"".join(pieces))
        return assemble_response([*chunks, *answer.ended(is_done=True)])


def _official(client: "AsyncOpenAI") -> OpenAITransport:
    from .sdk_transport import SDKTransport

    return SDKTransport(client)
