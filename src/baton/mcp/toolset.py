"""A server's tools among an agent's own.

Servers that stay open while their runs are suspended, because a call in them waits for an answer.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ..context import RunContext
from ..errors import SetupError
from ..tools import NeedsApproval, Tool
from ..tools.wrappers import ApprovalTool
from .connection import MCPConnection
from .transports import logger

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer as SDKServer


class RunConnection:
    """A connection for one run; closed when the run stops, unless a call waits in it."""

    def __init__(self, connection: MCPConnection, run_id: str, held: "SuspendedConnections") -> None:
        self.connection = connection
        self._run_id = run_id
        self._held = held

    async def close(self) -> None:
        """Close it, or leave it open for the answer that a call in it waits for."""
        if self.connection.is_waiting():
            self._held.keep(self._run_id, self.connection)
        else:
            await self.connection.close()


class SuspendedConnections:
    """The connections of suspended runs, each for as long as patience lasts or until its run goes on."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._by_run: dict[str, tuple[MCPConnection, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def keep(self, run_id: str, connection: MCPConnection) -> None:
        """Keep it for the run's return."""
        timer = asyncio.get_running_loop().call_later(self._patience, self._give_up, run_id)
        self._by_run[run_id] = connection, timer

    def take(self, run_id: str) -> MCPConnection | None:
        """What was kept for this run, if it still is there."""
        connection, timer = self._by_run.pop(run_id, (None, None))
        if timer is not None:
            timer.cancel()
        # What another event loop opened has ended with it.
        return connection if connection is not None and connection.is_of_this_loop else None

    async def close(self) -> None:
        """Close all that is kept."""
        kept = [self.take(run_id) for run_id in [*self._by_run]]
        await asyncio.gather(*[connection.close() for connection in kept if connection is not None])

    def _give_up(self, run_id: str) -> None:
        connection = self.take(run_id)
        if connection is not None:
            logger.info("run `%s` has had no answer for %g s: its server is closed", run_id, self._patience)
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


try:
    import mcp_types as types

    from .auth import AuthorizationCode, MCPAuthLike, auth_of
    from .connection import MCPConnection
    from .convert import spec_of, tool_name
    from .session import Mode
    from .tool import MCPTool, UserAuthorization
    from .transports import AuthorizationRequiredError, logger, transport_for
except ImportError as error:
    raise SetupError("MCP needs its library: pip install 'baton-adk[mcp]'") from error


ServerLike: TypeAlias = "str | Sequence[str] | Server[Any] | SDKServer"


class MCPToolset:
    """The tools of an MCP server, for `Agent(tools=[MCPToolset(…), …])`.

    The server is a command to start, a URL, or a server of the `mcp` library in this process. Each run opens it when it
    first needs it and closes it at its end; within `async with server:` all runs share what is open.
    """

    def __init__(
        self,
        server: ServerLike,
        *,
        prefix: str | None = None,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: "str | PathLike[str] | None" = None,
        headers: Mapping[str, str] | None = None,
        auth: "MCPAuthLike | None" = None,
        needs_approval: NeedsApproval | Collection[str] | None = None,
        allow_sampling: bool = False,
        roots: "Sequence[str | PathLike[str]]" = (),
        strict: bool = False,
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        suspend_timeout: float = 900.0,
        protocol_version: "Mode" = "auto",
    ) -> None:
        """`include`, `exclude` and `approval` name tools as the server does. A process gets `env` and little else.

        `patience` is how long a server stays open for a suspended run in which one of its calls waits for an answer.
        """
        for what, names in (("include", include), ("exclude", exclude), ("approval", needs_approval)):
            if isinstance(names, str):
                raise SetupError(f"MCPToolset({what}={names!r}) should be a list of names: [{names!r}]")
        folder = None if cwd is None else fspath(cwd)
        self._way = transport_for(server, env=env, headers=headers, auth=auth_of(auth), cwd=folder)
        self._prefix = prefix
        self._include = None if include is None else frozenset(include)
        self._exclude = frozenset(exclude or ())
        self._approval = needs_approval
        self._sampling = allow_sampling
        self._roots = tuple([_root(root) for root in roots])
        self._strict = strict
        self._timeout = timeout
        self._startup = connect_timeout
        self._protocol: Mode = protocol_version
        self._kept: MCPConnection | None = None
        self._held = SuspendedConnections(suspend_timeout)

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """The server's tools as they are now. Raises ToolsUnavailableError if it cannot be reached."""
        connection = self._kept
        if connection is None:
            opened = ctx._run.opened.get(self)
            if opened is None:
                connection = self._held.take(ctx.run_id) or self._connection()
                opened = ctx._run.opened[self] = RunConnection(connection, ctx.run_id, self._held)
            assert isinstance(opened, RunConnection)
            connection = opened.connection
        visits = UserAuthorization(self._way, ctx)
        while True:
            try:
                return await connection.tools()
            except AuthorizationRequiredError as needed:
                await visits.made(needed)

    async def __aenter__(self) -> Self:
        if self._kept is not None:
            raise SetupError(f"{self._way.label} is kept open already; leave that `async with` first")
        self._kept = self._connection()
        try:
            await self._begun(self._kept)
        except BaseException:
            await self.close()
            raise
        return self

    async def _begun(self, connection: MCPConnection) -> None:
        """Open it, unless only a user in a run can give leave for that."""
        visits = UserAuthorization(self._way, None)
        while True:
            try:
                await connection.tools()
                return
            except AuthorizationRequiredError as needed:
                if isinstance(self._way.auth, AuthorizationCode) and self._way.auth.on_authorize is None:
                    return
                await visits.made(needed)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what is kept open, here or for suspended runs; may be called from any task, in any order."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()
        await self._held.close()

    def _connection(self) -> MCPConnection:
        return MCPConnection(
            self._way,
            self._made,
            mode=self._protocol,
            roots=self._roots,
            sampling=self._sampling,
            startup=self._startup,
            timeout=self._timeout,
        )

    def _made(self, connection: MCPConnection, listed: Sequence[types.Tool]) -> tuple[Tool, ...]:
        there = {tool.name for tool in listed}
        for missing in sorted({*(self._include or ()), *self._exclude} - there):
            logger.warning("%s has no tool `%s`", self._way.label, missing)
        wanted = [tool for tool in listed if self._include is None or tool.name in self._include]
        return tuple([self._tool(connection, tool) for tool in wanted if tool.name not in self._exclude])

    def _tool(self, connection: MCPConnection, tool: types.Tool) -> Tool:
        made = MCPTool(
            connection,
            tool,
            spec_of(tool, tool_name(tool.name, self._prefix), strict=self._strict),
            way=self._way,
            roots=self._roots,
            sampling=self._sampling,
            timeout=self._timeout,
        )
        approval = self._approval
        if approval is None or approval is False:
            return made
        if approval is True or isinstance(approval, Callable):
            return ApprovalTool(made, approval)
        return ApprovalTool(made) if tool.name in approval else made

    def __repr__(self) -> str:
        return f"MCPToolset({self._way.label})"


def _root(root: "str | PathLike[str]") -> types.Root:
    given = fspath(root)
    if "://" not in given:
        given = Path(given).absolute().as_uri()
    return types.Root.model_validate({"uri": given, "name": given.rstrip("/").rsplit("/", 1)[-1]})
