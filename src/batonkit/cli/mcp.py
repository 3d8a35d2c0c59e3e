"""The command `baton mcp`: a team as an MCP server, over stdio or HTTP."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from ..runs import Runner
from ..serve import mcp_app, mcp_server
from .cli_options import server_options, target
from .serve import serve_app
from .targets import check_runner_options, load_target, naming_model_option


async def _serve_over_stdio(server: Any) -> None:
    """Serve until stdin ends; stdout carries only the protocol."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _given_options(names: Collection[str]) -> list[str]:
    """Return those options of the current command that were given on the command line."""
    ctx = click.get_current_context()
    given = [each for each in ctx.command.params if each.name in names]
    return [each.opts[0] for each in given if ctx.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE]


@click.command("mcp")
@target
@click.option("--tool-per-agent", is_flag=True, help="Offer every agent as a tool, not only the root.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@server_options
def mcp_command(
    *, target: str, http: bool, tool_per_agent: bool, store: str | None, model: str | None, **options: Any
) -> None:
    """Serve a team to MCP clients.

    The root is a tool that takes a request and returns the team's answer. The team's questions are passed on to the
    client's user; if the client does not support that, the result lists the open interrupts, and the tool answer_run
    takes the answers. Over HTTP without authentication, only requests from this machine are accepted; the options about
    the address and authentication apply to HTTP only.

    \b
    Examples:
      baton mcp desk:router
      baton mcp desk:router --tool-per-agent --store runs.db
      baton mcp desk:router --http --port 8000 --token-env DESK_TOKEN
    """
    if not http and (unused := _given_options(options)):
        raise click.UsageError(f"{', '.join(unused)}: only for HTTP; add --http, or leave it out to serve over stdio")
    with naming_model_option(model):
        served = load_target(target)
        if isinstance(served, Runner):
            check_runner_options(target, "model and store", {"--model": model, "--store": store})
        make = partial(mcp_app if http else mcp_server, served, tool_per_agent=tool_per_agent, store=store, model=model)
        if http:
            serve_app(make, lambda url: f"serving MCP at {url}/mcp", **options)
        else:
            asyncio.run(_serve_over_stdio(make()))
