"""HTTP transport over aiohttp: shared connections, response streams and the decoding of server-sent events."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from ...errors import ModelConnectionError, ModelError, SetupError
from ..provider_errors import cut_short, malformed, timed_out, unreachable
from ..sdk_clients import PerEventLoop
from .endpoint import OpenAIEndpoint
from .errors import turned_down

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

# The limits of OpenAI's client.
_MAX_CONNECTIONS = 1000
CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 600.0
# A server ends the stream right after its last event; only then can the connection be reused.
SECONDS_TO_DRAIN = 0.1
_MAX_ERROR_BODY = 64 * 1024

# Sessions are shared by all models and outlive them, so they are kept here, by TLS settings.
_sessions: "dict[ssl.SSLContext | None, PerEventLoop[ClientSession]]" = {}


def _shared_sessions(tls: ssl.SSLContext | None) -> "PerEventLoop[ClientSession]":
    def make() -> "ClientSession":
        import aiohttp

        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, ssl=tls or True)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    async def close(session: "ClientSession") -> None:
        await session.close()

    return _sessions.setdefault(tls, PerEventLoop(make, close))


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


class OutgoingRequest(NamedTuple):
    """One request: `extra` takes precedence over `body`."""

    path: str
    model: str
    name: str
    body: dict[str, Any]
    extra: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    timeout: float | None


class OpenAIResponseStream(Protocol):
    """A response that has begun. `is_whole`: it is one JSON document, not a stream of events."""

    is_whole: bool

    async def piece(self) -> bytes:
        """Return the next bytes, or none at the end."""
        ...

    async def end(self) -> None:
        """Release the connection after the last event."""
        ...

    async def close(self) -> None:
        """Close the connection; does nothing after the end."""
        ...


class OpenAITransport(Protocol):
    """Sends requests to a provider."""

    async def send(self, request: OutgoingRequest) -> OpenAIResponseStream:
        """Send a request and return its response once it begins. Raises ModelError if there is none."""
        ...

    async def close(self) -> None:
        """Close the connections of this event loop."""
        ...


class AiohttpTransport:
    """A transport over aiohttp, on connections that all models of an event loop share.

    Args:
        endpoint: The provider's URL and headers.
        tls: The TLS settings, by default those of the system.
        proxy: The URL of an HTTP proxy, by default that of the environment.
    """

    def __init__(
        self, endpoint: OpenAIEndpoint, *, tls: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        self._endpoint = endpoint
        self._sessions = _shared_sessions(tls_for(endpoint.base_url, tls))
        # Looked up once, not for each request: it parses the whole environment.
        self._proxy = proxy or proxy_for(endpoint.base_url)

    async def send(self, request: OutgoingRequest) -> OpenAIResponseStream:
        """Send a request and return its response once it begins."""
        import aiohttp

        endpoint, name = self._endpoint, request.name
        headers = await endpoint.headers(request.headers, model=name)
        body = {**request.body, **request.extra} if request.extra else request.body
        seconds = request.timeout or RESPONSE_SECONDS
        connect_seconds = request.timeout or CONNECT_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=seconds)
        session = await self._sessions.get()
        try:
            response = await session.post(
                endpoint.url(request.path, request.model),
                data=msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
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
        if response.status >= 400:
            raise await stream.rejection()
        return stream

    async def close(self) -> None:
        """Close the connections of this event loop."""
        for sessions in list(_sessions.values()):
            await sessions.close()


class BaseResponseStream:
    """Base of response streams: checks the first bytes, drains the rest and translates errors.

    Args:
        name: The model's name, for errors.
        seconds: The time limit for the next bytes, for errors.
        is_whole: Whether the response is one JSON document.
    """

    __slots__ = ("_has_begun", "_name", "_seconds", "is_whole")

    def __init__(self, name: str, seconds: float | None, is_whole: bool) -> None:
        self._name = name
        self._seconds = seconds
        self._has_begun = False
        self.is_whole = is_whole

    async def piece(self) -> bytes:
        """Return the next bytes; of a whole response, all of it."""
        try:
            piece = await self._read()
        except Exception as error:
            raise self._translate(error) from error
        if not self._has_begun:
            self._has_begun = True
            if piece.lstrip()[:1] == b"<":
                raise malformed(self._name, "it is an HTML page", piece)
        return piece

    async def end(self) -> None:
        """Read the end of the stream, so that the connection can be reused."""
        try:
            async with asyncio.timeout(SECONDS_TO_DRAIN):
                while await self.piece():
                    pass
        except (ModelError, TimeoutError):
            # The response is complete; only the connection cannot be reused.
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    async def _read(self) -> bytes:
        raise NotImplementedError

    def _translate(self, error: Exception) -> ModelError:
        """Return the ModelError for a broken connection; raise any other error again."""
        raise NotImplementedError


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
        return turned_down(self._name, response.status, response.headers, body)

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


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SSEDecoder:
    """Decodes server-sent events from bytes, however the network has split them."""

    __slots__ = ("_data", "_has_begun", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._has_begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in this piece."""
        # A "\r" at the very end may be half of a "\r\n", so it does not end a line yet.
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if self._unfinished:
            if not end and not self._unfinished[-1].endswith(b"\r"):
                # Joined only when a line ends, so that a long line is not copied for each of its pieces.
                self._unfinished.append(piece)
                return []
            piece = b"".join([*self._unfinished, piece])
            self._unfinished.clear()
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if end < len(piece):
            self._unfinished.append(piece[end:])
        return self._events(piece[:end].splitlines())

    def rest(self) -> list[bytes]:
        """Return the data of an event whose last line was not terminated."""
        lines = b"".join(self._unfinished).splitlines()
        self._unfinished.clear()
        return self._events([*lines, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if lines and not self._has_begun:
            self._has_begun = True
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return events
