"""A place between a client and a server, where connections can be counted."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def counted(origin: str) -> AsyncGenerator[tuple[str, list[asyncio.Task[None]]]]:
    """Another address of the server at `origin`, and who has connected to it so far."""
    target = urlsplit(origin)
    connections: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(reader, back))
            both.create_task(copy(there, writer))

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.get_running_loop().create_task(connect(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
    finally:
        server.close()
        await asyncio.gather(*connections)
