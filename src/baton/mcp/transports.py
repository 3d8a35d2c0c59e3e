"""The ways to a server: a command that is started, an address, or a server in this process.

Why a session is not there, or not there any more.
"""

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from ..errors import SetupError
from .auth import MCPAuth
from .oauth import AuthorizationPending

logger = getLogger("baton.mcp")

Lost: TypeAlias = Callable[[], None]
Reached: TypeAlias = Any
"""What the SDK's client connects to."""

SENT = "baton.sent"
"""In the data of an error that is made here: whether the server may have got the request."""
VISIT = "baton.visit"
"""In the data of an error that is made here: the page that a user must visit before the request can be made."""

_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_MOST_SECONDS_OF_SILENCE = 300.0


class AuthorizationState:
    """Whether the server may be used. While a session is opened, what was found out first holds for all that follows:
    the SDK would try another version of the protocol when the first request of one is refused.
    """

    def __init__(self) -> None:
        self.is_opening = True
        self.trouble: AuthorizationPending | OAuthFlowError | None = None


class MCPTransport:
    """How to reach one server, any number of times."""

    is_http = False
    auth: MCPAuth | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        """How the server is called in messages; shows no secrets."""

    def reach(self, on_lost: Lost, leave: AuthorizationState) -> Reached:
        """Something the SDK's client can connect to, once. `on_lost` is called when the connection ends by itself."""
        raise NotImplementedError

    def last_words(self) -> str:
        """What the server said last outside the protocol, to explain why it is gone."""
        return ""


class InProcessTransport(MCPTransport):
    """A server of the SDK in this process."""

    def __init__(self, server: Any) -> None:
        super().__init__(f"the server `{server.name}`")
        self._server = server

    def reach(self, on_lost: Lost, leave: AuthorizationState) -> Reached:
        """The server itself."""
        return self._server


class StdioTransport(MCPTransport):
    """A server that is started as a process and spoken to through its pipes."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> None:
        super().__init__(f"the server `{_name_of(command)}`")
        self._parameters = StdioServerParameters(
            command=command[0], args=list(command[1:]), env=dict(env) if env else None, cwd=cwd
        )
        self._said: deque[str] = deque(maxlen=20)

    def reach(self, on_lost: Lost, leave: AuthorizationState) -> Reached:
        """A process that is not there yet."""
        return self._started(on_lost)

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return "\n".join(self._said)[-600:]

    @asynccontextmanager
    async def _started(self, on_lost: Lost) -> AsyncGenerator[Any]:
        self._said.clear()
        if sys.platform == "win32":
            # The event loop there cannot read from a pipe like this one: what the process says goes to our stderr.
            async with stdio_client(self._parameters) as (incoming, outgoing):
                yield _WatchedStream(incoming, on_lost), outgoing
            return
        reading, writing = os.pipe()
        errors = _Stderr(self._hear)
        with os.fdopen(writing, "w") as stderr:
            try:
                await asyncio.get_running_loop().connect_read_pipe(lambda: errors, os.fdopen(reading, "rb"))
                async with stdio_client(self._parameters, errlog=stderr) as (incoming, outgoing):
                    # The process has it now; as long as it is open here too, its end would not be noticed.
                    stderr.close()
                    yield _WatchedStream(incoming, on_lost), outgoing
            finally:
                errors.close()

    def _hear(self, line: str) -> None:
        self._said.append(line)
        logger.debug("%s: %s", self.label, line)


class _Stderr(asyncio.Protocol):
    """Takes what a process writes to stderr, line by line."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._rest = b""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        # A line without end must not fill the memory.
        self._rest = self._rest[-10_000:]
        for line in lines:
            self._hear(line.decode(errors="replace").rstrip())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._hear(self._rest.decode(errors="replace"))

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.close()


class _WatchedStream:
    """A stream of messages that tells when it ends."""

    def __init__(self, stream: Any, on_end: Lost) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            # Told before those who wait for answers learn of it, so that they know what the error means.
            self._on_end()
            raise

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *ending: Any) -> Any:
        return await self._stream.__aexit__(*ending)


class StreamableHTTPTransport(MCPTransport):
    """A server at a URL, spoken to over streamable HTTP."""

    is_http = True

    def __init__(self, url: str, headers: Mapping[str, str] | None, auth: MCPAuth | None) -> None:
        parsed = httpx2.URL(url)
        super().__init__(f"the server at {parsed.scheme}://{parsed.netloc.decode()}{parsed.path}")
        self._url = url
        self._headers = dict(headers) if headers else {}
        self.auth = auth
        self._flows: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.Auth] = WeakKeyDictionary()

    @property
    def flow(self) -> httpx2.Auth | None:
        """What gets leave to use the server. All that is open in an event loop shares it, and with it the tokens."""
        if self.auth is None:
            return None
        loop = asyncio.get_running_loop()
        flow = self._flows.get(loop)
        if flow is None:
            flow = self._flows[loop] = self.auth.flow(self._url)
        return flow

    def reach(self, on_lost: Lost, leave: AuthorizationState) -> Reached:
        """A connection that is not there yet."""
        return self._connected(leave)

    @asynccontextmanager
    async def _connected(self, leave: AuthorizationState) -> AsyncGenerator[Any]:
        timeout = httpx2.Timeout(30.0, read=_MOST_SECONDS_OF_SILENCE)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        client = _ExplainingClient(leave, headers=self._headers, auth=self.flow, timeout=timeout, limits=limits)
        async with client, streamable_http_client(self._url, http_client=client) as streams:
            yield streams


class _ExplainingClient(httpx2.AsyncClient):
    """Answers a request that failed with what is known about it.

    The SDK would give up the whole session, and with it all other calls, when one request cannot be sent.
    """

    def __init__(self, leave: AuthorizationState, **options: Any) -> None:
        super().__init__(**options)
        self._leave = leave

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send it; if that fails, the response is an error of JSON-RPC that says whether it may have arrived."""
        leave = self._leave
        if leave.is_opening and leave.trouble is not None:
            return _refused(request, leave.trouble)
        try:
            response = await super().send(request, **options)
        except (AuthorizationPending, OAuthFlowError) as trouble:
            leave.trouble = trouble
            return _refused(request, trouble)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return _answer(request, 503, CONNECTION_CLOSED, what, {SENT: not isinstance(error, _NEVER_LEFT)})
        if request.method != "POST" or response.status_code < 400:
            return response
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return _answer(request, 404, CONNECTION_CLOSED, "the session is gone", {SENT: False})
        is_refused = response.status_code in (401, 403)
        if is_refused or not response.headers.get("content-type", "").lower().startswith("application/json"):
            await response.aclose()
            what = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
            if is_refused and self.auth is None and "authorization" not in request.headers:
                what += "; it wants to know who asks: MCPToolset(…, auth=…)"
            return _answer(request, response.status_code, INTERNAL_ERROR, what, None)
        return response


def _refused(request: httpx2.Request, trouble: AuthorizationPending | OAuthFlowError) -> httpx2.Response:
    data = {VISIT: trouble.url} if isinstance(trouble, AuthorizationPending) else {SENT: False}
    return _answer(request, 401, INTERNAL_ERROR, f"no leave to use it: {trouble}", data)


def _answer(request: httpx2.Request, status: int, code: int, message: str, data: Any) -> httpx2.Response:
    error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _name_of(command: Sequence[str]) -> str:
    """The program and what it runs, as far as that is sure to be a name: anything further may be a secret."""
    words = [command[0], *(command[2:3] if command[1:2] in (["-m"], ["-y"], ["--yes"]) else command[1:2])]
    return " ".join(os.path.basename(word) for word in words if not word.startswith("-"))


def transport_for(
    server: Any,
    *,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    auth: MCPAuth | None,
    cwd: str | None,
) -> MCPTransport:
    """The way to what somebody gave as a server. Raises SetupError if it is none."""
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        if env or cwd:
            raise SetupError(f"MCPToolset({server!r}) is not started here; env and cwd are for commands")
        return StreamableHTTPTransport(server, headers, auth)
    if headers or auth is not None:
        raise SetupError(f"MCPToolset({server!r}) is no address; headers and auth are for those, env is for commands")
    if isinstance(server, SDKServer | Server):
        if env or cwd:
            raise SetupError("a server in this process has the environment of this process; leave env and cwd out")
        return InProcessTransport(cast("Any", server))
    words: Any = shlex.split(server) if isinstance(server, str) else server
    if isinstance(words, Sequence) and words and all(isinstance(word, str) for word in cast("Sequence[Any]", words)):
        return StdioTransport(cast("Sequence[str]", words), env, cwd)
    works = 'give a command ("uvx mcp-server-time" or a list of words), a URL, or a server of the mcp library'
    raise SetupError(f"{server!r} is no MCP server; {works}")


class MCPSessionError(Exception):
    """The session ended, or could not be opened. `was_sent` says whether the server may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent

    def again(self) -> "MCPSessionError":
        """The same for somebody else, who has asked for nothing yet."""
        return MCPSessionError(str(self), was_sent=False)


class AuthorizationRequiredError(MCPSessionError):
    """A user must visit a page before the server can be used. Nothing was done."""

    def __init__(self, label: str, url: str) -> None:
        super().__init__(f"a user must first give leave to use {label}", was_sent=False)
        self.label = label
        self.url = url

    def again(self) -> "AuthorizationRequiredError":
        """The same for somebody else."""
        return AuthorizationRequiredError(self.label, self.url)
