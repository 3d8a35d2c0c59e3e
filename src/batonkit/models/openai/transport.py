"""Transports of requests: aiohttp on connections that all models share, or the client of OpenAI."""

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ...errors import ModelConnectionError, ModelError, SetupError
from ..backoff import DEFAULT_RETRIES
from ..encoding import Block
from ..event_stream import BaseResponseStream
from ..provider_errors import cut_short, error_from_response, timed_out, unreachable
from ..sdk_clients import PerEventLoop, load_modules
from ..sdk_transport import open_response
from ..settings import ModelSettings
from .endpoint import OpenAIEndpoint
from .errors import classify

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from openai import AsyncOpenAI
    from openai.resources.chat import AsyncCompletions
    from openai.resources.responses import AsyncResponses

# The limits of OpenAI's client.
_MAX_CONNECTIONS = 1000
CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 600.0
_MAX_ERROR_BODY = 64 * 1024
_UNKNOWN_TO_SDK = ("top_k", "verbosity", "service_tier", "top_logprobs", "prompt_cache_key")
"""Fields that are no parameters of some versions of the SDK, or of none."""

_SDK_MODULES = (
    "openai.resources.chat.chat",
    "openai.resources.chat.completions.completions",
    "openai.resources.responses.responses",
)
"""The parts of the SDK that it would load itself on first use."""

# Sessions are shared by all models and outlive them, so they are kept here, by TLS settings.
_sessions: "dict[ssl.SSLContext | None, PerEventLoop[ClientSession]]" = {}


def _shared_sessions(tls: ssl.SSLContext | None) -> "PerEventLoop[ClientSession]":
    def make() -> "ClientSession":
        import aiohttp

        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, ssl=tls or True)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return _sessions.setdefault(tls, PerEventLoop(make, lambda session: session.close()))


def tls_for(url: str, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS settings for a URL, by default those of the environment."""
    if tls is not None or not url.startswith("https:"):
        return tls
    return _default_tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for a URL."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise SetupError(
            f"the environment names a {urlsplit(proxy).scheme} proxy, which is not supported; "
            "set HTTPS_PROXY to an http:// proxy, or NO_PROXY, or pass client=AsyncOpenAI(…)"
        )
    return proxy


@lru_cache(maxsize=8)
def _default_tls(file: str | None, directory: str | None) -> ssl.SSLContext:
    # aiohttp creates its default at import, and would miss variables that are set later.
    return ssl.create_default_context(cafile=file or None, capath=directory or None)


class AiohttpTransport:
    """A transport over aiohttp, on connections that all models of an event loop share."""

    default_retries = DEFAULT_RETRIES

    def __init__(
        self,
        endpoint: OpenAIEndpoint,
        url: str,
        name: str,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._url = url
        self._name = name
        self._sessions = _shared_sessions(tls_for(endpoint.base_url, tls))
        # Looked up once, not for each request: it parses the whole environment.
        self._proxy = proxy or proxy_for(endpoint.base_url)

    async def send(self, body: Block, settings: ModelSettings) -> BaseResponseStream:
        """Send a request and return its response once it begins."""
        await load_modules("aiohttp")
        import aiohttp

        endpoint = self._endpoint
        name = self._name
        headers = await endpoint.headers(settings.extra_headers, model=name)
        body = {**body, **settings.extra_body} if settings.extra_body else body
        seconds = settings.timeout or RESPONSE_SECONDS
        connect_seconds = settings.timeout or CONNECT_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=seconds)
        session = await self._sessions.get()
        try:
            response = await session.post(
                self._url,
                data=msgspec.json.encode(body),
                params=settings.extra_query,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                allow_redirects=False,
            )
        except aiohttp.ConnectionTimeoutError as error:
            advice = "check base_url and the network"
            what = f"no connection to `{name}` at {endpoint.base_url} within {connect_seconds:g} s; {advice}"
            raise ModelConnectionError(what, model=name, retryable=True) from error
        except TimeoutError as error:
            raise timed_out(name, seconds) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _connection_error(error, name, endpoint.base_url) from error
        stream = _AiohttpResponse(response, name, seconds)
        if response.status >= 300:
            raise await stream.rejection()
        return stream

    async def close(self) -> None:
        """Close the connections of this event loop."""
        for sessions in list(_sessions.values()):
            await sessions.close()


class SDKTransport:
    """A transport over an `AsyncOpenAI`; its number of retries and its timeouts apply."""

    def __init__(
        self,
        client: "AsyncOpenAI",
        get_resource: "Callable[[AsyncOpenAI], AsyncCompletions | AsyncResponses]",
        name: str,
    ) -> None:
        self._client = client
        self._get_resource = get_resource
        self._name = name

    @property
    def default_retries(self) -> int:
        """The client's number of retries."""
        return self._client.max_retries

    async def send(self, body: Block, settings: ModelSettings) -> BaseResponseStream:
        """Send a request and return its response once it begins."""
        await load_modules(*_SDK_MODULES)
        import openai

        name = self._name
        parameters = {field: value for field, value in body.items() if field not in _UNKNOWN_TO_SDK}
        unknown = {field: body[field] for field in _UNKNOWN_TO_SDK if field in body}
        extra_body = {**unknown, **(settings.extra_body or {})}
        parameters |= {
            "extra_headers": settings.extra_headers,
            "extra_query": settings.extra_query,
            "extra_body": extra_body or None,
        }
        if settings.timeout is not None:
            parameters["timeout"] = settings.timeout
        # The model retries; a copy for each request follows later changes of the client.
        client = self._client.with_options(max_retries=0)
        resource = self._get_resource(client)
        try:
            return await open_response(openai, client, resource, parameters, model=name, classify=classify)
        except openai.OpenAIError as error:
            raise ModelError(f"the client of `{name}` failed: {error}", model=name) from error

    async def close(self) -> None:
        """Do nothing: the owner of the client closes it."""


class _AiohttpResponse(BaseResponseStream):
    __slots__ = ("_response",)

    def __init__(self, response: "ClientResponse", name: str, seconds: float) -> None:
        super().__init__(name, seconds, response.content_type.endswith("json"))
        self._response = response

    async def end(self) -> None:
        """Read the end of the stream, so that the connection can be reused."""
        if not self._response.content.is_eof():
            await super().end()

    async def close(self) -> None:
        """Close the connection, unless it was released."""
        self._response.close()

    async def rejection(self) -> ModelError:
        """Read the error body and return the error."""
        response = self._response
        try:
            body = await response.content.read(_MAX_ERROR_BODY)
        except Exception as error:
            raise self._translate(error) from error
        finally:
            response.close()
        return error_from_response(self._name, response.status, response.headers, body, classify)

    async def _read(self) -> bytes:
        return await (self._response.read() if self.is_whole else self._response.content.readany())

    def _translate(self, error: Exception) -> ModelError:
        import aiohttp

        if isinstance(error, TimeoutError):
            return timed_out(self._name, self._seconds)
        if isinstance(error, aiohttp.ClientError | OSError):
            return cut_short(self._name, has_begun=self._has_begun, because=error)
        raise error


def _connection_error(error: Exception, name: str, base_url: str) -> ModelError:
    import aiohttp

    if isinstance(error, aiohttp.InvalidURL):
        return ModelConnectionError(f"the base URL of `{name}` is not valid: {base_url}", model=name)
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError | ssl.SSLError):
        advice = "if it uses its own certificate, set SSL_CERT_FILE or pass tls=…"
        what = f"the TLS connection to `{name}` at {base_url} failed: {error}; {advice}"
        return ModelConnectionError(what, model=name)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return cut_short(name, has_begun=False, because=error)
    return unreachable(name, error or type(error).__name__, url=base_url)
