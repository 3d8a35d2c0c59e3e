"""The command `baton mcp`: a team as an MCP server, over stdio or HTTP."""

import asyncio
from typing import Any

import click

from ..serving import mcp_app, mcp_server
from .errors import warnings_on_stderr
from .options import auth_options, debug, is_debugging, model, store, target
from .serve import load_auth
from .targets import load_target


def serve_over_stdio(reference: str, **options: Any) -> None:
    """Serve over stdio until stdin ends; stdout carries only the protocol."""
    asyncio.run(_serve(mcp_server(load_target(reference), **options)))


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
    allow_anonymous: bool,
    **options: Any,
) -> None:
    """Serve over HTTP until the process is stopped."""
    from ..serving import serve

    methods = load_auth(token_env, auth)
    app = mcp_app(load_target(reference), host=host, auth=methods or None, allow_anonymous=allow_anonymous, **options)
    click.echo(f"serving MCP at http://{host}:{port}/mcp", err=True)
    serve(app, host=host, port=port, allow_anonymous=bool(methods) or allow_anonymous)


@click.command("mcp")
@target
@click.option("--tool-per-agent", is_flag=True, help="Offer every agent as a tool, not only the root.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on, with --http.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port, with --http.")
@model
@store
@auth_options
@debug
@click.pass_context
def mcp_command(ctx: click.Context, /, *, target: str, http: bool, **options: Any) -> None:
    """Serve a team to MCP clients.

    The root is a tool that takes a request and returns the team's answer. The team's questions are passed on to the
    client's user; if the client does not support that, the result lists the open interrupts, and the tool answer_run
    takes the answers. Over HTTP without authentication, only requests from this machine are accepted.

    \b
    Examples:
      baton mcp desk:router
      baton mcp desk:router --tool-per-agent --store runs.db
      baton mcp desk:router --http --port 8000 --token-env DESK_TOKEN
    """
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        if http:
            serve_over_http(target, **options)
        else:
            names = ("tool_per_agent", "model", "store")
            serve_over_stdio(target, **{name: options[name] for name in names})
