"""Transports to MCP servers: a command over stdio, a URL, or a server in this process."""

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

LostCallback: TypeAlias = Callable[[], None]
Connectable: TypeAlias = Any
"""Anything that the SDK's client can connect to."""

WAS_SENT = "baton.sent"
"""Key in the data of a local error: whether the server may have received the request."""
AUTHORIZATION_URL = "baton.visit"
"""Key in the data of a local error: the page that a user must visit first."""

_NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_READ_TIMEOUT = 300.0


class AuthorizationState:
    """The outcome of authorization in one session.

    While a session is opened, the first failure applies to all later requests: the SDK would try another protocol
    version after a refused request.
    """

    def __init__(self) -> None:
        self.is_opening = True
        self.failure: AuthorizationPending | OAuthFlowError | None = None


class MCPTransport:
    """A way to reach one server, any number of times."""

    is_http = False
    auth: MCPAuth | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        """The server's name in messages; it contains no secrets."""

    def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> Connectable:
        """Return something that the SDK's client can connect to once.

        Args:
            on_lost: Called when the connection ends by itself.
            auth_state: Receives the outcome of authorization.
        """
        raise NotImplementedError

    def last_output(self) -> str:
        """Return the server's last output outside the protocol, to explain why it failed."""
        return ""


class InProcessTransport(MCPTransport):
    """An SDK server in this process."""

    def __init__(self, server: Any) -> None:
        super().__init__(f"the server `{server.name}`")
        self._server = server

    def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> Connectable:
        """Return the server."""
        return self._server


class StdioTransport(MCPTransport):
    """A server that is started as a process and used over its pipes."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> None:
        super().__init__(f"the server `{_command_label(command)}`")
        self._parameters = StdioServerParameters(
            command=command[0], args=list(command[1:]), env=dict(env) if env else None, cwd=cwd
        )
        self._stderr_lines: deque[str] = deque(maxlen=20)

    def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> Connectable:
        """Return a context manager that starts the process."""
        return self._start_process(on_lost)

    def last_output(self) -> str:
        """Return the end of its stderr."""
        return "\n".join(self._stderr_lines)[-600:]

    @asynccontextmanager
    async def _start_process(self, on_lost: LostCallback) -> AsyncGenerator[Any]:
        self._stderr_lines.clear()
        if sys.platform == "win32":
            # The event loop on Windows cannot read such a pipe: stderr is inherited there.
            async with stdio_client(self._parameters) as (incoming, outgoing):
                yield _WatchedStream(incoming, on_lost), outgoing
            return
        reading, writing = os.pipe()
        errors = _Stderr(self._on_line)
        with os.fdopen(writing, "w") as stderr:
            try:
                await asyncio.get_running_loop().connect_read_pipe(lambda: errors, os.fdopen(reading, "rb"))
                async with stdio_client(self._parameters, errlog=stderr) as (incoming, outgoing):
                    # Only the process may hold this end, or its exit would go unnoticed.
                    stderr.close()
                    yield _WatchedStream(incoming, on_lost), outgoing
            finally:
                errors.close()

    def _on_line(self, line: str) -> None:
        self._stderr_lines.append(line)
        logger.debug("%s: %s", self.label, line)


class _Stderr(asyncio.Protocol):
    """Reads the stderr of a process line by line."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        # Bound the memory used by a line without end.
        self._rest = self._rest[-10_000:]
        for line in lines:
            self._on_line(line.decode(errors="replace").rstrip())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._on_line(self._rest.decode(errors="replace"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _WatchedStream:
    """A message stream that reports its end."""

    def __init__(self, stream: Any, on_end: LostCallback) -> None:
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
            # Reported before pending requests fail, so that the error can be interpreted.
            self._on_end()
            raise

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *ending: Any) -> Any:
        return await self._stream.__aexit__(*ending)


class StreamableHTTPTransport(MCPTransport):
    """A server at a URL, over streamable HTTP."""

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
        """The auth of the running event loop.

        It is shared by all connections in the loop, and so are its tokens.
        """
        if self.auth is None:
            return None
        loop = asyncio.get_running_loop()
        flow = self._flows.get(loop)
        if flow is None:
            flow = self._flows[loop] = self.auth.flow(self._url)
        return flow

    def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> Connectable:
        """Return a context manager that connects."""
        return self._connect_http(auth_state)

    @asynccontextmanager
    async def _connect_http(self, auth_state: AuthorizationState) -> AsyncGenerator[Any]:
        timeout = httpx2.Timeout(30.0, read=_READ_TIMEOUT)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        client = _ExplainingClient(auth_state, headers=self._headers, auth=self.flow, timeout=timeout, limits=limits)
        async with client, streamable_http_client(self._url, http_client=client) as streams:
            yield streams


class _ExplainingClient(httpx2.AsyncClient):
    """An HTTP client that turns a failed request into a JSON-RPC error response.

    Otherwise the SDK would end the whole session, with all other calls, when one request cannot be sent.
    """

    def __init__(self, auth_state: AuthorizationState, **options: Any) -> None:
        super().__init__(**options)
        self._auth_state = auth_state

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a failure becomes an error response that says whether it may have arrived."""
        auth_state = self._auth_state
        if auth_state.is_opening and auth_state.failure is not None:
            return _unauthorized_response(request, auth_state.failure)
        try:
            response = await super().send(request, **options)
        except (AuthorizationPending, OAuthFlowError) as failure:
            auth_state.failure = failure
            return _unauthorized_response(request, failure)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return _error_response(
                request, 503, CONNECTION_CLOSED, message, {WAS_SENT: not isinstance(error, _NOT_SENT_ERRORS)}
            )
        if request.method != "POST" or response.status_code < 400:
            return response
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return _error_response(request, 404, CONNECTION_CLOSED, "the session is gone", {WAS_SENT: False})
        is_refused = response.status_code in (401, 403)
        if is_refused or not response.headers.get("content-type", "").lower().startswith("application/json"):
            await response.aclose()
            message = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
            if is_refused and self.auth is None and "authorization" not in request.headers:
                message += "; authentication required: pass MCPToolset(…, auth=…)"
            return _error_response(request, response.status_code, INTERNAL_ERROR, message, None)
        return response


def _unauthorized_response(request: httpx2.Request, failure: AuthorizationPending | OAuthFlowError) -> httpx2.Response:
    data = {AUTHORIZATION_URL: failure.url} if isinstance(failure, AuthorizationPending) else {WAS_SENT: False}
    return _error_response(request, 401, INTERNAL_ERROR, f"authorization failed: {failure}", data)


def _error_response(request: httpx2.Request, status: int, code: int, message: str, data: Any) -> httpx2.Response:
    error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _command_label(command: Sequence[str]) -> str:
    """Return the program and what it runs; further arguments may be secrets."""
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
    """Return the transport for the `server` argument of `MCPToolset`.

    Raises:
        SetupError: It is not a server, or an option does not apply to this kind of server.
    """
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        if env or cwd:
            raise SetupError(f"MCPToolset({server!r}) is a URL; env and cwd apply only to commands")
        return StreamableHTTPTransport(server, headers, auth)
    if headers or auth is not None:
        raise SetupError(
            f"MCPToolset({server!r}) is not a URL; headers and auth apply only to URLs (for a command, use env)"
        )
    if isinstance(server, SDKServer | Server):
        if env or cwd:
            raise SetupError("env and cwd do not apply to a server in this process; leave them out")
        return InProcessTransport(cast("Any", server))
    words: Any = shlex.split(server) if isinstance(server, str) else server
    if isinstance(words, Sequence) and words and all(isinstance(word, str) for word in cast("Sequence[Any]", words)):
        return StdioTransport(cast("Sequence[str]", words), env, cwd)
    works = 'pass a command ("uvx mcp-server-time" or a list of words), a URL, or a server of the mcp library'
    raise SetupError(f"{server!r} is not an MCP server; {works}")


class MCPSessionError(Exception):
    """The session ended or could not be opened.

    Args:
        reason: The message.
        was_sent: Whether the server may have received the request.
    """

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent

    def copy(self) -> "MCPSessionError":
        """Return a copy for another caller, whose request was not sent."""
        return MCPSessionError(str(self), was_sent=False)


class AuthorizationRequiredError(MCPSessionError):
    """A user must visit a page before the server can be used; nothing was sent.

    Args:
        label: The server's name in messages.
        url: The page to visit.
    """

    def __init__(self, label: str, url: str) -> None:
        super().__init__(f"a user must authorize the use of {label} first", was_sent=False)
        self.label = label
        self.url = url

    def copy(self) -> "AuthorizationRequiredError":
        """Return a copy for another caller."""
        return AuthorizationRequiredError(self.label, self.url)
