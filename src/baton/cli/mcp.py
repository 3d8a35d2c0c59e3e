"""`baton mcp`: a team as a server for MCP clients, over the pipes of this process or over HTTP."""

import asyncio
from typing import Any

import click

from ..adapters.mcp import mcp_app, mcp_server
from .load import load

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve_on_pipes(reference: str, **options: Any) -> None:
    """Serve until stdin ends. Nothing but the protocol goes to stdout."""
    asyncio.run(_serve(mcp_server(load(reference), **options)))


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_over_http(reference: str, *, host: str, port: int, **options: Any) -> None:
    """Serve until the process is stopped."""
    import uvicorn

    app = mcp_app(load(reference), host=host, **options)
    if host not in _LOOPBACK:
        click.echo(f"anybody who can reach {host} can use this team: there is no authentication", err=True)
    click.echo(f"serving MCP at http://{host}:{port}/mcp", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning")
