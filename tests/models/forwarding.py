"""A TCP proxy that counts connections."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


@asynccontextmanager
async def counting_proxy(origin: str) -> AsyncGenerator[tuple[str, list[asyncio.Task[None]]]]:
    """Start a proxy for the server at `origin`; yield its URL and the list of its connections."""
    target = urlsplit(origin)
    connections: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(target.hostname, target.port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(reader, server_writer))
            tasks.create_task(copy(server_reader, writer))

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.get_running_loop().create_task(connect(reader, writer)))

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
    finally:
        server.close()
        await asyncio.gather(*connections)
