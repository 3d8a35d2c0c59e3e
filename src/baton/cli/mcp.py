"""`baton mcp`: a team as a server for MCP clients, over the pipes of this process or over HTTP."""

import asyncio
from typing import Any

import click

from ..adapters.mcp import mcp_app, mcp_server
from .callers import auth_from
from .load import load


def serve_on_pipes(reference: str, **options: Any) -> None:
    """Serve until stdin ends. Nothing but the protocol goes to stdout."""
    asyncio.run(_serve(mcp_server(load(reference), **options)))


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_over_http(
    reference: str,
    *,
    host: str,
    port: int,
    token_env: str | None,
    auth: str | None,
    allow_anyone: bool,
    **options: Any,
) -> None:
    """Serve until the process is stopped."""
    from ..server import serve

    ways = auth_from(token_env, auth)
    app = mcp_app(load(reference), host=host, auth=ways or None, **options)
    click.echo(f"serving MCP at http://{host}:{port}/mcp", err=True)
    serve(app, host=host, port=port, allow_anonymous=bool(ways) or allow_anyone)
