"""A program that serves MCP and fails on demand: over stdio, or over HTTP with a port as its argument."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("faulty", log_level="ERROR")
diary = Path(os.environ["DIARY"]) if "DIARY" in os.environ else Path(os.devnull)
"""Where calls are written down, each with a line."""


def note(what: str) -> None:
    with diary.open("a") as file:
        file.write(f"{what}\n")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    note(f"echo {text}")
    return text


@server.tool()
async def process() -> str:
    """Which process this is."""
    return str(os.getpid())


@server.tool()
async def linger() -> str:
    """Never end."""
    note("linger")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("linger was cancelled")
        raise
    return ""


@server.tool()
async def die() -> str:
    """End the process in the middle of the call."""
    note("die")
    os._exit(3)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def read_or_die() -> str:
    """End the process the first time, read the second time."""
    note("read_or_die")
    if diary.read_text().count("read_or_die") == 1:
        os._exit(3)
    return "read"


@server.tool()
async def secret(name: str) -> str:
    """What the environment holds under this name."""
    return os.environ.get(name, "nothing")


if len(sys.argv) > 2:

    @server.tool()
    async def novelty() -> str:
        """Only the newer version of the server has this."""
        return "new"


class Size(BaseModel):
    """What is asked for."""

    size: int


async def ask_size(ctx: Context) -> Elicit[Size]:
    return Elicit("Which size?", Size)


@server.tool()
async def order(item: str, size: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
    """Order something, of a size that a person says."""
    note(f"order {item} {size.action}")
    return f"{item}: {size.data.size}" if size.action == "accept" else f"no {item}"


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] != "stdio":
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
