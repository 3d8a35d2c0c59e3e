"""An MCP server that fails on demand: over stdio, or over HTTP if the argument is a port."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("faulty", log_level="ERROR")
call_log = Path(os.environ["CALL_LOG"]) if "CALL_LOG" in os.environ else Path(os.devnull)
"""The file to which each call appends a line."""


def record(line: str) -> None:
    with call_log.open("a") as file:
        file.write(f"{line}\n")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    record(f"echo {text}")
    return text


@server.tool()
async def process() -> str:
    """Return the process id."""
    return str(os.getpid())


@server.tool()
async def hang() -> str:
    """Wait until the call is cancelled."""
    record("hang")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        record("hang was cancelled")
        raise
    return ""


@server.tool()
async def crash() -> str:
    """End the process during the call."""
    record("crash")
    os._exit(3)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def read_or_crash() -> str:
    """End the process in the first call; return in the second."""
    record("read_or_crash")
    if call_log.read_text().count("read_or_crash") == 1:
        os._exit(3)
    return "read"


@server.tool()
async def environment_variable(name: str) -> str:
    """Return the environment variable with this name."""
    return os.environ.get(name, "nothing")


if len(sys.argv) > 2:

    @server.tool()
    async def new_tool() -> str:
        """Return a text; only the newer version of the server has this tool."""
        return "new"


class Size(BaseModel):
    """The requested size."""

    size: int


async def ask_size(ctx: Context) -> Elicit[Size]:
    return Elicit("Which size?", Size)


@server.tool()
async def order(item: str, size: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
    """Order an item in a size that is elicited from the user."""
    record(f"order {item} {size.action}")
    return f"{item}: {size.data.size}" if size.action == "accept" else f"no {item}"


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] != "stdio":
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
