"""Requests and answers as bytes."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from ...errors import ModelConnectionError, ModelError
from ..failures import cut_short, malformed, timed_out
from .endpoint import OpenAIEndpoint
from .failures import turned_down
from .pool import close_all, proxy_for, session_for, trust_for

if TYPE_CHECKING:
    from aiohttp import ClientResponse

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
