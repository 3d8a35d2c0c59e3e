"""Requests and answers as bytes.

The connections of each event loop, shared by all models that are asked in it.

Server-sent events out of a stream of bytes, however the network has cut it.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from ...errors import ModelConnectionError, ModelError, SetupError
from ..provider_errors import cut_short, malformed, timed_out
from .endpoint import OpenAIEndpoint
from .errors import turned_down

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

# As many as the official client allows.
_MOST_CONNECTIONS = 1000


class _Pool:
    """The connections of one event loop; asyncio closes them when the loop shuts down, since nobody else knows when."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, ssl=tls or True)
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        self._life = self._until_shutdown()

    async def open(self) -> None:
        """Make sure that the end of the loop is the end of the connections."""
        # A loop closes the generators that were begun in it before it ends.
        await anext(self._life)

    async def close(self) -> None:
        """Close the connections."""
        await self._life.aclose()

    async def _until_shutdown(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            _forget(self)
            await self.session.close()


# Connections belong to an event loop and outlive every model, so no object of the program can hold them.
_pools: dict[tuple[asyncio.AbstractEventLoop, ssl.SSLContext | None], _Pool] = {}


async def session_for(tls: ssl.SSLContext | None) -> "ClientSession":
    """The connections of this event loop that trust what `tls` says."""
    key = (asyncio.get_running_loop(), tls)
    pool = _pools.get(key)
    if pool is None:
        # Other threads have loops of their own, and may open or close theirs meanwhile: hence the copies.
        for known in list(_pools):
            if known[0].is_closed():
                _pools.pop(known, None)
        pool = _pools[key] = _Pool(tls)
        await pool.open()
    return pool.session


async def close_all() -> None:
    """Close all connections of this event loop; whoever asks next opens new ones."""
    loop = asyncio.get_running_loop()
    for (owner, _), pool in list(_pools.items()):
        if owner is loop:
            await pool.close()


def trust_for(url: str, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What to trust at this address: what was given, or what the environment and the system say."""
    if tls is not None or not url.startswith("https:"):
        return tls
    return _trust_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address."""
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
            f"the environment names a proxy of the kind {urlsplit(proxy).scheme}, which is not supported; "
            "set HTTPS_PROXY to an http:// proxy, or NO_PROXY, or give client=AsyncOpenAI(…)"
        )
    return proxy


@lru_cache(maxsize=8)
def _trust_of(file: str | None, folder: str | None) -> ssl.SSLContext:
    # The library's own default is made when it is imported, and would not see what a program sets later.
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


def _forget(pool: _Pool) -> None:
    for key, known in list(_pools.items()):
        if known is pool:
            _pools.pop(key, None)


# The same bounds as those of the official client.
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0
# A server sends the end of a stream right after its last event; the connection can be used again only then.
SECONDS_FOR_THE_END = 0.1
_LONGEST_COMPLAINT = 64 * 1024


class OutgoingRequest(NamedTuple):
    """One request: `extra` is put over `body` as it is."""

    path: str
    model: str
    name: str
    body: dict[str, Any]
    extra: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    timeout: float | None


class OpenAIResponseStream(Protocol):
    """An answer that has begun. `is_whole`: it is one JSON document, not a stream of events."""

    is_whole: bool

    async def piece(self) -> bytes:
        """The next bytes, whatever their number; none at the end."""
        ...

    async def end(self) -> None:
        """The last event was read: leave the connection to the next request, if the server lets go of it."""
        ...

    async def close(self) -> None:
        """Let go of the connection at once; after the end it does nothing."""
        ...


class OpenAITransport(Protocol):
    """What carries requests to a provider."""

    async def send(self, sending: OutgoingRequest) -> OpenAIResponseStream:
        """The answer, once it has begun. Raises a ModelError if there is none."""
        ...

    async def close(self) -> None:
        """Close the connections of this event loop."""
        ...


class AiohttpTransport:
    """A wire of our own, over aiohttp."""

    def __init__(
        self, endpoint: OpenAIEndpoint, *, tls: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        self._endpoint = endpoint
        self._tls = trust_for(endpoint.base_url, tls)
        # Asked once, not for each request: it reads and parses the whole environment.
        self._proxy = proxy or proxy_for(endpoint.base_url)

    async def send(self, sending: OutgoingRequest) -> OpenAIResponseStream:
        """Send one request and wait until its answer begins."""
        import aiohttp

        endpoint, name = self._endpoint, sending.name
        headers = await endpoint.headers(sending.headers, model=name)
        body = {**sending.body, **sending.extra} if sending.extra else sending.body
        seconds = sending.timeout or ANSWER_SECONDS
        patience = sending.timeout or CONNECT_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=patience, sock_read=seconds)
        session = await session_for(self._tls)
        try:
            response = await session.post(
                endpoint.url(sending.path, sending.model),
                data=msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
            )
        except aiohttp.ConnectionTimeoutError as error:
            advice = "check base_url and the network"
            what = f"no connection to `{name}` at {endpoint.base_url} within {patience:g} s; {advice}"
            raise ModelConnectionError(what, model=name, retryable=True) from error
        except TimeoutError as error:
            raise timed_out(name, seconds) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, name, endpoint.base_url) from error
        exchange = _AiohttpResponse(response, name, seconds)
        if response.status >= 400:
            raise await exchange.refusal()
        return exchange

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await close_all()


class _AiohttpResponse:
    """An answer that comes over aiohttp."""

    __slots__ = ("_has_begun", "_name", "_response", "_seconds", "is_whole")

    def __init__(self, response: "ClientResponse", name: str, seconds: float) -> None:
        self._response = response
        self._name = name
        self._seconds = seconds
        self._has_begun = False
        self.is_whole = response.content_type.endswith("json")

    async def piece(self) -> bytes:
        """The next bytes; of a whole answer, all of it."""
        try:
            piece = await (self._response.read() if self.is_whole else self._response.content.readany())
        except Exception as error:
            raise self._broken(error) from error
        if not self._has_begun:
            self._has_begun = True
            if piece.lstrip()[:1] == b"<":
                raise malformed(self._name, "it is a page for people", piece)
        return piece

    async def end(self) -> None:
        """Read what little is left, so that the connection can be used again."""
        import aiohttp

        content = self._response.content
        if content.is_eof():
            return
        try:
            async with asyncio.timeout(SECONDS_FOR_THE_END):
                while await content.readany():
                    pass
        except (aiohttp.ClientError, TimeoutError, OSError):
            # The answer is complete: that its connection cannot be used again concerns nobody.
            self._response.close()

    async def close(self) -> None:
        """Cut the connection, unless it was given back already."""
        self._response.close()

    async def refusal(self) -> ModelError:
        """The error that the answer is."""
        response = self._response
        try:
            body = await response.content.read(_LONGEST_COMPLAINT)
        except Exception as error:
            raise self._broken(error) from error
        finally:
            response.close()
        return turned_down(self._name, response.status, response.headers, body)

    def _broken(self, error: Exception) -> ModelError:
        """The error for a connection that broke while an answer came. What is not about that is raised as it is."""
        import aiohttp

        if isinstance(error, TimeoutError):
            return timed_out(self._name, self._seconds)
        if isinstance(error, aiohttp.ClientError | OSError):
            return cut_short(self._name, has_begun=self._has_begun, because=error)
        raise error


def _unreachable(error: Exception, name: str, base_url: str) -> ModelError:
    import aiohttp

    if isinstance(error, aiohttp.InvalidURL):
        return ModelConnectionError(f"`{name}` has an address that nobody can call: {base_url}", model=name)
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError | ssl.SSLError):
        advice = "if it has a certificate of its own, set SSL_CERT_FILE or give tls=…"
        what = f"the connection to `{name}` at {base_url} is not safe: {error}; {advice}"
        return ModelConnectionError(what, model=name)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return cut_short(name, has_begun=False, because=error)
    advice = "check that it runs, that base_url is right, and the proxy if there is one"
    what = f"`{name}` cannot be reached at {base_url}: {error or type(error).__name__}; {advice}"
    return ModelConnectionError(what, model=name, retryable=True)


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SSEDecoder:
    """Takes bytes as they come and gives the data of every event that is complete."""

    __slots__ = ("_data", "_is_begun", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._is_begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece."""
        # A "\r" at the very end may be half of a "\r\n", so it does not end a line yet.
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if self._unfinished:
            if not end and not self._unfinished[-1].endswith(b"\r"):
                # Joined only once a line ends: a long line in many pieces would be copied for each of them.
                self._unfinished.append(piece)
                return []
            piece = b"".join([*self._unfinished, piece])
            self._unfinished.clear()
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if end < len(piece):
            self._unfinished.append(piece[end:])
        return self._events(piece[:end].splitlines())

    def rest(self) -> list[bytes]:
        """What was left at the end: the data of an event whose last line was never closed."""
        lines = b"".join(self._unfinished).splitlines()
        self._unfinished.clear()
        return self._events([*lines, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if lines and not self._is_begun:
            self._is_begun = True
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return events
