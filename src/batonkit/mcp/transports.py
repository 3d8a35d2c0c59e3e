"""Transports to MCP servers: a command over stdio, a URL, or a server in this process."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpx2
from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp.client.auth import OAuthFlowError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer as SDKServer
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from ..errors import SetupError
from .auth import MCPAuth
from .oauth import AuthorizationPending

logger = getLogger("baton.mcp")

LostCallback: TypeAlias = Callable[[], None]
Connectable: TypeAlias = Any
"""Anything that the SDK's client can connect to."""

_WAS_SENT = "baton.sent"
"""Key in the data of a local error: whether the server may have received the request."""
_AUTHORIZATION_URL = "baton.visit"
"""Key in the data of a local error: the page that a user must visit first."""

_NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_READ_TIMEOUT = 300.0


class MCPSessionError(Exception):
    """The session ended or could not be opened."""

    def __init__(self, reason: str, *, was_sent: bool = False) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class AuthorizationRequiredError(Exception):
    """A user must visit a page before the server can be used; nothing was sent."""

    def __init__(self, label: str, url: str) -> None:
        super().__init__(label, url)
        self.label = label
        self.url = url

    def __str__(self) -> str:
        return f"a user must authorize the use of {self.label} first"


SessionFailure: TypeAlias = MCPSessionError | AuthorizationRequiredError


class AuthorizationState:
    """The outcome of authorization in one session.

    While a session is opened, the first failure applies to all later requests: the SDK would try another protocol
    version after a refused request.
    """

    def __init__(self) -> None:
        self.is_opening = True
        self.failure: AuthorizationPending | OAuthFlowError | None = None

    def error(self, label: str) -> SessionFailure | None:
        """Return the error if authorization failed or is still pending."""
        match self.failure:
            case None:
                return None
            case AuthorizationPending(url=url):
                return AuthorizationRequiredError(label, url)
            case failure:
                return MCPSessionError(f"authorization for {label} failed: {failure}")


class MCPTransport:
    """A way to reach one server, any number of times."""

    is_http = False
    auth: MCPAuth | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        """The server's name in messages; it contains no secrets."""

    def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> Connectable:
        """Return something that the SDK's client can connect to once."""
        raise NotImplementedError

    def last_output(self) -> str:
        """Return the server's last output outside the protocol, to explain why it failed."""
        return ""

    def failure_from(self, error: MCPError, *, is_lost: bool) -> SessionFailure | None:
        """Convert an error that means the end of a session; None for other errors."""
        data: Any = error.data
        if isinstance(data, dict) and _AUTHORIZATION_URL in data:
            return AuthorizationRequiredError(self.label, cast("str", data[_AUTHORIZATION_URL]))
        if isinstance(data, dict) and _WAS_SENT in data:
            reason = f"{self.label} did not respond ({error.message})"
            return MCPSessionError(reason, was_sent=data[_WAS_SENT] is True)
        # A server may use this code itself; over pipes it is known whether the connection ended.
        is_lost = is_lost or self.is_http or error.message == "Connection closed"
        if error.code != CONNECTION_CLOSED or not is_lost:
            return None
        # Logged only: a process's stderr is not meant for a model.
        logger.debug("lost the connection to %s; its last output: %s", self.label, self.last_output() or "none")
        return MCPSessionError(f"lost the connection to {self.label} ({error.message})", was_sent=True)


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
        program, *args = command
        self._parameters = StdioServerParameters(command=program, args=args, env=dict(env) if env else None, cwd=cwd)
        self._stderr = _Stderr(self.label)

    def last_output(self) -> str:
        """Return the end of its stderr."""
        return self._stderr.tail.strip()

    @asynccontextmanager
    async def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> AsyncGenerator[Any]:
        """Start the process."""
        if sys.platform == "win32":
            # The event loop on Windows cannot read such a pipe: stderr is inherited there.
            async with stdio_client(self._parameters) as (incoming, outgoing):
                yield _WatchedStream(incoming, on_lost), outgoing
            return
        reading, writing = os.pipe()
        self._stderr = _Stderr(self.label)
        with os.fdopen(writing, "w") as stderr:
            loop = asyncio.get_running_loop()
            pipe = os.fdopen(reading, "rb")
            errors, _ = await loop.connect_read_pipe(lambda: self._stderr, pipe)
            try:
                async with stdio_client(self._parameters, errlog=stderr) as (incoming, outgoing):
                    # Only the process may hold this end, or its exit would go unnoticed.
                    stderr.close()
                    yield _WatchedStream(incoming, on_lost), outgoing
            finally:
                errors.close()


class _Stderr(asyncio.Protocol):
    """Logs the stderr of a process, and keeps the end of it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.tail = ""

    def data_received(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        for line in text.splitlines():
            logger.debug("%s: %s", self._label, line)
        self.tail = (self.tail + text)[-600:]


class _WatchedStream(ObjectReceiveStream[Any]):
    """A message stream that reports its end."""

    def __init__(self, stream: Any, on_end: LostCallback) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except EndOfStream:
            # Reported before pending requests fail, so that the error can be interpreted.
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


class StreamableHTTPTransport(MCPTransport):
    """A server at a URL, over streamable HTTP."""

    is_http = True

    def __init__(self, url: str, headers: Mapping[str, str] | None, auth: MCPAuth | None) -> None:
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise SetupError(f"MCPToolset({url!r}) is not a valid URL: {error}") from None
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
        if self.auth is None or isinstance(self.auth, httpx2.Auth):
            return self.auth
        loop = asyncio.get_running_loop()
        if loop not in self._flows:
            self._flows[loop] = self.auth.flow(self._url)
        return self._flows[loop]

    @asynccontextmanager
    async def connect(self, on_lost: LostCallback, auth_state: AuthorizationState) -> AsyncGenerator[Any]:
        """Connect over HTTP."""
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
            data = {_WAS_SENT: not isinstance(error, _NOT_SENT_ERRORS)}
            return _error_response(request, 503, CONNECTION_CLOSED, describe_error(error), data)
        if request.method != "POST" or response.status_code < 400:
            return response
        return await self._explain(request, response)

    async def _explain(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return the JSON-RPC error for an HTTP error; the response itself if it is one already."""
        if "mcp-session-id" in request.headers and await _refuses_session(request, response):
            message = f"the session is gone (HTTP {response.status_code})"
            await response.aclose()
            return _error_response(request, 404, CONNECTION_CLOSED, message, {_WAS_SENT: False})
        is_refused = response.status_code in (401, 403)
        if not is_refused and response.headers.get("content-type", "").lower().startswith("application/json"):
            return response
        await response.aclose()
        message = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
        if is_refused and self.auth is None and "authorization" not in request.headers:
            message += "; authentication required: pass MCPToolset(…, auth=…)"
        return _error_response(request, response.status_code, INTERNAL_ERROR, message, None)


async def _refuses_session(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Return whether the server refused the request because it does not know the session.

    The protocol requires 404, but official servers respond 400. A 400 that names the request is an error of the call.
    """
    if response.status_code != 400:
        return response.status_code == 404
    try:
        sent = json.loads(request.content)
        error = json.loads(await response.aread())
        return "id" not in sent or sent["id"] != error["id"]
    except (ValueError, TypeError, KeyError, httpx2.TransportError):
        return True


def _unauthorized_response(request: httpx2.Request, failure: AuthorizationPending | OAuthFlowError) -> httpx2.Response:
    data = {_AUTHORIZATION_URL: failure.url} if isinstance(failure, AuthorizationPending) else {_WAS_SENT: False}
    return _error_response(request, 401, INTERNAL_ERROR, f"authorization failed: {failure}", data)


def _error_response(request: httpx2.Request, status: int, code: int, message: str, data: Any) -> httpx2.Response:
    error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error, the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _command_label(command: Sequence[str]) -> str:
    """Return the program and its first argument; further arguments may be secrets."""
    words = [command[0], *(command[2:3] if command[1:2] in (["-m"], ["-y"], ["--yes"]) else command[1:2])]
    return " ".join(os.path.basename(word) for word in words if not word.startswith("-"))


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise SetupError(
            f"MCPToolset({command!r}) is not a command: {error}; a list of words needs no quotes"
        ) from None


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
        works = "headers and auth apply only to URLs (for a command, use env)"
        raise SetupError(f"MCPToolset({server!r}) is not a URL; {works}")
    if isinstance(server, SDKServer | Server):
        if env or cwd:
            raise SetupError("MCPToolset(…) has a server in this process; env and cwd apply only to commands")
        return InProcessTransport(cast("Any", server))
    words: Any = _split_command(server) if isinstance(server, str) else server
    if isinstance(words, Sequence) and words and all(isinstance(word, str) for word in cast("Sequence[Any]", words)):
        return StdioTransport(cast("Sequence[str]", words), env, cwd)
    works = 'pass a command ("uvx mcp-server-time" or a list of words), a URL, or a server of the mcp library'
    raise SetupError(f"{server!r} is not an MCP server; {works}")
