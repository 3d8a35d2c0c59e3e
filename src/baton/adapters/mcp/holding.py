"""Servers that stay open while their runs are suspended, because a call in them waits for an answer."""

import asyncio

from .connection import MCPConnection
from .ways import logger


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
