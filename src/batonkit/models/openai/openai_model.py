"""OpenAIModel, for OpenAI and compatible servers."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..._checks import check_arguments, check_choice, require_extra
from ...errors import SetupError
from ..backoff import respond_with_retries
from ..event_stream import BaseResponseStream, stream_response
from ..model import Chunk, ModelRequest
from ..sdk_clients import TRANSPORT_VARIABLES
from .chat import ChatDialect
from .endpoint import (
    PROVIDERS,
    APIKey,
    OpenAIEndpoint,
    ProviderDefaults,
    StructuredOutputMode,
    environment_prefixes,
    lacking_settings,
)
from .responses import ResponsesDialect, is_reasoning_model
from .transport import AiohttpTransport, SDKTransport

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OpenAIAPI: TypeAlias = Literal["chat", "responses"]
"""One of OpenAI's two APIs: Chat Completions, which all compatible servers have, or Responses."""


class OpenAIModel:
    """A model of OpenAI, or of any server with a compatible Chat Completions or Responses API.

    Raises:
        SetupError: An argument is not valid, or a base URL is missing.
        MissingExtraError: aiohttp is not installed.
    """

    @check_arguments
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
        self._environment_prefixes = (*environment_prefixes(provider), *TRANSPORT_VARIABLES)
        self.name = f"{'openai-responses' if provider == 'openai' and api == 'responses' else provider}:{model}"
        limit_name = defaults.limit_name
        options = (base_url, api_key, organization, project, api_version, headers)
        if client is not None:
            if any((*options, proxy, tls)):
                raise SetupError("OpenAIModel(client=…) uses the URL, key, headers and TLS settings of the client")
            path = "chat.completions" if api == "chat" else "responses"
            self._transport = SDKTransport(client, attrgetter(path), self.name)
        else:
            require_extra(f"the model `{self.name}`", "openai", "aiohttp")
            endpoint = OpenAIEndpoint(provider, *options)
            url = endpoint.url("/chat/completions" if api == "chat" else "/responses", model)
            self._transport = AiohttpTransport(endpoint, url, self.name, tls=tls, proxy=proxy)
            # Compatible servers know only the older name, OpenAI's reasoning models only the newer one.
            limit_name = limit_name if endpoint.is_original or is_reasoning_model(model) else "max_tokens"
        shared = (model, self.name, provider, mode, system_role if api == "chat" else "system")
        lacks = lacking_settings(provider, api)
        keeps = is_reasoning_model(model) if keep_reasoning is None else keep_reasoning
        self._dialect = (
            ChatDialect(*shared, lacks, limit_name, include_usage, defaults.returns_reasoning)
            if api == "chat"
            else ResponsesDialect(*shared, lacks, store=store, keeps_reasoning=keeps)
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self.model!r}, api={self.api!r}, provider={self.provider!r})"

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request, or yield it whole if `stream` is off."""
        default = self._transport.default_retries
        return respond_with_retries(self._respond_once, request, model=self.name, default=default)

    async def aclose(self) -> None:
        """Close the connections that models share in this event loop, as its end does."""
        await self._transport.close()

    def _respond_once(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        return stream_response(request, self._send, self._dialect.parser)

    async def _send(self, request: ModelRequest) -> BaseResponseStream:
        return await self._transport.send(self._dialect.body(request), request.settings)
