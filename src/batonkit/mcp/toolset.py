"""`MCPToolset`, and the connections that stay open while their runs are suspended."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from .._checks import check_arguments, check_positive
from ..context import RunContext
from ..errors import MissingExtraError, SetupError
from ..tools import NeedsApproval, Tool
from ..tools.wrappers import ApprovalTool

try:
    import mcp_types as types

    from .auth import MCPAuthLike, to_mcp_auth
    from .connection import MCPConnection
    from .convert import to_tool_spec, tool_name
    from .mcp_session import Mode, ServerSettings
    from .mcp_tool import MCPTool, UserAuthorization
    from .transports import AuthorizationRequiredError, logger, transport_for
except ImportError as error:
    raise MissingExtraError("batonkit.mcp", "mcp", error) from error

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer as SDKServer

ServerLike: TypeAlias = "str | Sequence[str] | Server[Any] | SDKServer"


class RunConnection:
    """The connection of one run; closed when the run stops unless a call is suspended in it."""

    def __init__(self, connection: MCPConnection, run_id: str, suspended: "SuspendedConnections") -> None:
        self.connection = connection
        self._run_id = run_id
        self._suspended = suspended

    async def close(self) -> None:
        """Close the connection, or keep it while a call in it waits for an answer."""
        if self.connection.has_suspended_call():
            self._suspended.add(self._run_id, self.connection)
        else:
            await self.connection.close()


class SuspendedConnections:
    """The connections of suspended runs, until they time out or their runs are resumed."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._by_run: dict[str, tuple[MCPConnection, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, run_id: str, connection: MCPConnection) -> None:
        """Keep a connection until its run is resumed."""
        timer = asyncio.get_running_loop().call_later(self._timeout, self._expire, run_id)
        self._by_run[run_id] = connection, timer

    def pop(self, run_id: str) -> MCPConnection | None:
        """Remove and return the connection of a run, if it is still open."""
        connection, timer = self._by_run.pop(run_id, (None, None))
        if timer is not None:
            timer.cancel()
        # A connection of another event loop ended with that loop.
        return connection if connection is not None and connection.is_in_running_loop else None

    async def close(self) -> None:
        """Close all connections."""
        connections = [self.pop(run_id) for run_id in [*self._by_run]]
        await asyncio.gather(*[connection.close() for connection in connections if connection is not None])

    def _expire(self, run_id: str) -> None:
        connection = self.pop(run_id)
        if connection is not None:
            logger.info("run `%s` was not answered within %g s: closing its server", run_id, self._timeout)
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class MCPToolset:
    """The tools of an MCP server, for `Agent(tools=[MCPToolset(…), …])`.

    Each run opens a connection when it first needs one and closes it at its end. Within `async with toolset:` all runs
    share one connection.

    Args:
        server: A command to start (a string or a list of words), a URL, or a server object of the `mcp` library.
        prefix: Put before each tool name, with an underscore.
        include: The tools to offer, by the server's names; by default all.
        exclude: Tools not to offer.
        needs_approval: Which calls need approval: True, a function of context and arguments, or tool names.
        auth: A bearer token, a function that returns headers, `ClientCredentials`, `AuthorizationCode` or an
            `httpx2.Auth`. For URLs only.
        headers: Headers for every request. For URLs only.
        env: The environment of the process, beyond a minimal one. For commands only.
        cwd: The working directory of the process. For commands only.
        roots: The folders or URIs that the server may use.
        allow_sampling: Whether the server may call the agent's model.
        strict: Give models strict schemas where the server's schema has an equivalent.
        timeout: The seconds a call may take; by default unlimited.
        connect_timeout: The seconds that opening a session may take.
        suspend_timeout: The seconds a connection stays open for a suspended run that has a call waiting in it.
        protocol_version: `auto`, `legacy`, or a version of the protocol.

    Raises:
        SetupError: `server` is not a server, or an option does not apply to this kind of server.
    """

    @check_arguments
    def __init__(
        self,
        server: ServerLike,
        *,
        prefix: str | None = None,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        needs_approval: NeedsApproval | Collection[str] | None = None,
        auth: "MCPAuthLike | None" = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: "str | PathLike[str] | None" = None,
        roots: "Sequence[str | PathLike[str]]" = (),
        allow_sampling: bool = False,
        strict: bool = False,
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        suspend_timeout: float = 900.0,
        protocol_version: "Mode" = "auto",
    ) -> None:
        for parameter, names in (("include", include), ("exclude", exclude), ("needs_approval", needs_approval)):
            if isinstance(names, str):
                raise SetupError(f"MCPToolset({parameter}={names!r}) should be a list of names: [{names!r}]")
        for parameter, seconds in (("", timeout), ("connect_", connect_timeout), ("suspend_", suspend_timeout)):
            check_positive(f"MCPToolset({parameter}timeout=…)", seconds)
        directory = None if cwd is None else fspath(cwd)
        self._transport = transport_for(server, env=env, headers=headers, auth=to_mcp_auth(auth), cwd=directory)
        self._settings = ServerSettings(
            self._transport, protocol_version, tuple(map(_to_root, roots)), allow_sampling, connect_timeout, timeout
        )
        self._prefix = prefix
        self._include = None if include is None else frozenset(include)
        self._exclude = frozenset(exclude or ())
        self._needs_approval = needs_approval
        self._strict = strict
        self._shared: MCPConnection | None = None
        self._suspended = SuspendedConnections(suspend_timeout)

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """Return the server's current tools.

        Args:
            ctx: The context of the run that uses them.

        Raises:
            ToolsUnavailableError: The server cannot be reached.
        """
        connection = self._shared
        if connection is None:
            opened = ctx._run.opened.get(self)
            if opened is None:
                connection = self._suspended.pop(ctx.run_id) or self._new_connection()
                opened = ctx._run.opened[self] = RunConnection(connection, ctx.run_id, self._suspended)
            assert isinstance(opened, RunConnection)
            connection = opened.connection
        return await UserAuthorization(self._transport, ctx).authorized(connection.tools)

    async def __aenter__(self) -> Self:
        if self._shared is not None:
            raise SetupError(f"{self._transport.label} is open already; leave the other `async with` first")
        self._shared = self._new_connection()
        try:
            # Without `on_authorize`, a user authorizes the client in the first run that needs it.
            with suppress(AuthorizationRequiredError):
                await UserAuthorization(self._transport, None).authorized(self._shared.tools)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; may be called from any task."""
        connection = self._shared
        self._shared = None
        if connection is not None:
            await connection.close()
        await self._suspended.close()

    def _new_connection(self) -> MCPConnection:
        return MCPConnection(self._settings, self._build_tools)

    def _build_tools(self, connection: MCPConnection, listed: Sequence[types.Tool]) -> tuple[Tool, ...]:
        names = {tool.name for tool in listed}
        for missing in sorted({*(self._include or ()), *self._exclude} - names):
            logger.warning("%s has no tool `%s`", self._transport.label, missing)
        included = [tool for tool in listed if self._include is None or tool.name in self._include]
        return tuple([self._build_tool(connection, tool) for tool in included if tool.name not in self._exclude])

    def _build_tool(self, connection: MCPConnection, tool: types.Tool) -> Tool:
        spec = to_tool_spec(tool, tool_name(tool.name, self._prefix), strict=self._strict)
        mcp_tool = MCPTool(connection, tool, spec)
        needs_approval = self._needs_approval
        if isinstance(needs_approval, Collection):
            needs_approval = tool.name in needs_approval
        return ApprovalTool(mcp_tool, needs_approval) if needs_approval else mcp_tool

    def __repr__(self) -> str:
        return f"MCPToolset({self._transport.label})"


def _to_root(root: "str | PathLike[str]") -> types.Root:
    uri = fspath(root)
    if "://" not in uri:
        uri = Path(uri).absolute().as_uri()
    return types.Root.model_validate({"uri": uri, "name": uri.rstrip("/").rsplit("/", 1)[-1]})
