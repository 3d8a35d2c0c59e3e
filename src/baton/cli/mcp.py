"""`baton mcp`: a team as a server for MCP clients, over the pipes of this process or over HTTP.

`baton mcp`: its options. `mcp` has what they stand for.
"""

import asyncio
from typing import Any

import click

from ..serving import mcp_app, mcp_server
from .options import auth_options, debug, is_debugging, target
from .serve import auth_from
from .targets import load


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
    from ..serving import serve

    ways = auth_from(token_env, auth)
    app = mcp_app(load(reference), host=host, auth=ways or None, allow_anonymous=allow_anyone, **options)
    click.echo(f"serving MCP at http://{host}:{port}/mcp", err=True)
    serve(app, host=host, port=port, allow_anonymous=bool(ways) or allow_anyone)


@click.command()
@target
@click.option("--each", is_flag=True, help="Make a tool of every agent, not only of the root.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdin and stdout.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, with --http.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="… and on which port.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model of all agents that name none themselves.")
@click.option("--store", metavar="ADDRESS", help="Where runs are kept, such as runs.db; else in memory.")
@auth_options
@debug
@click.pass_context
def mcp(ctx: click.Context, /, *, target: str, http: bool, **options: Any) -> None:
    """Serve a team to MCP clients.

    The root is a tool that takes a request and gives the team's answer. Questions of the team are put to the client's
    user; if the client cannot do that, the result says what is open, and the tool answer_run takes the answers.
    Over HTTP it can be reached from this machine only, unless callers must show who they are.

    \b
    Examples:
      baton mcp desk:router
      baton mcp desk:router --each --store runs.db
      baton mcp desk:router --http --port 8000 --token-env DESK_TOKEN
    """
    from .errors import warnings_on_stderr

    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        if http:
            serve_over_http(target, **options)
        else:
            about_team = ("each", "model", "store")
            serve_on_pipes(target, **{name: options[name] for name in about_team})
