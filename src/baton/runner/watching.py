"""Reading along in a stored run that somebody else drives, in this process or another."""

import asyncio
from collections.abc import AsyncIterator

from ..events import Event, EventDecoder
from .stored import RunRepository

_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


async def watch_run(archive: RunRepository, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event]]:
    """The events of a run from number `after` on, with their numbers, as they are stored; ends when the run stops."""
    reader, seq, pause = EventDecoder(), 0, _SHORTEST_PAUSE
    while True:
        # The status first: if the run stops in between, what it wrote last is read all the same.
        record = await archive.record(run_id)
        lines = await archive.store.load(run_id, start=seq) if record.seq > seq else ()
        for line in lines:
            seq += 1
            if seq == 1:
                continue  # The line that names the format.
            # All are read, because later ones refer to the origins of earlier ones.
            event = reader.read(line)
            if seq - 1 > after:
                yield seq - 1, event
        if record.status != "running":
            return
        pause = _SHORTEST_PAUSE if lines else min(pause * 1.5, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
