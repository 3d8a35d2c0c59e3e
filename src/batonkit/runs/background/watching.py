"""Watching a stored run that another task or process drives."""

import asyncio
from collections.abc import AsyncIterator

from ...errors import LogError
from ...log import Delta, Event, EventDecoder
from ..stored.repository import RunRepository
from .relay import Watcher

_MIN_POLL_INTERVAL = 0.02
_MAX_POLL_INTERVAL = 0.5
_MAX_RELAYED_INTERVAL = 5.0
"""The longest pause between two looks at the store if the driver tells of every change."""


async def watch_run(repository: RunRepository, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event | Delta]]:
    """Yield a run's events after number `after`, and new deltas, until the run stops.

    The store's channel says when there is something new; without one, the store is polled, and there are no deltas.
    """
    decoder = EventDecoder()
    seq = 0
    pause = _MIN_POLL_INTERVAL
    with repository.relay.watching(run_id) as watcher:
        while True:
            # The record first: if the run stops in between, its last events are read nevertheless.
            record = await repository.store.record(run_id)
            if record is None and await repository.store.waiting(run_id) is not None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _MAX_POLL_INTERVAL)
                continue
            record = record or await repository.record(run_id)
            lines = await repository.store.load(run_id, start=seq) if record.seq > seq else ()
            for line in lines:
                seq += 1
                if seq == 1:
                    continue  # The header.
                # Decode all, because later lines refer to the origins of earlier ones.
                event = decoder.read(line)
                if seq - 1 > after:
                    yield seq - 1, event
            for number, delta in _new_deltas(watcher, decoder, seq - 1):
                yield number, delta
            if record.status != "running":
                return
            most = _MAX_RELAYED_INTERVAL if watcher.is_relayed else _MAX_POLL_INTERVAL
            pause = _MIN_POLL_INTERVAL if lines and not watcher.is_relayed else min(pause * 1.5, most)
            if watcher.is_relayed:
                pause = most
            await watcher.wait(pause)


def _new_deltas(watcher: Watcher, decoder: EventDecoder, seen: int) -> list[tuple[int, Delta]]:
    """Return the deltas that follow the last event.

    Older ones are in the log, and later ones wait for their event.
    """
    found: list[tuple[int, Delta]] = []
    while watcher.deltas and watcher.deltas[0][0] <= seen:
        number, encoded = watcher.deltas.popleft()
        if number == seen:
            try:
                found.append((number, decoder.read_delta(encoded)))
            except LogError:
                continue  # A delta of a newer version.
    return found
