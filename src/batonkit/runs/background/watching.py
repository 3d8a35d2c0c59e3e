"""Watching a stored run that another task or process drives."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing

from ...errors import LogError
from ...log import Delta, Event, EventDecoder
from ..stored.repository import RunRepository
from .relay import Watcher

_MIN_POLL_INTERVAL = 0.02
_MAX_POLL_INTERVAL = 0.5
_MAX_RELAYED_INTERVAL = 5.0
"""The longest pause between two looks at the store if the driver tells of every change."""
_MAX_BATCH = 256
"""A long log is not sent as one piece."""


async def watch_run(repository: RunRepository, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event | Delta]]:
    """Yield a run's events after number `after`, and new deltas, until the run stops."""
    async with aclosing(watch_batches(repository, run_id, after=after)) as batches:
        async for batch in batches:
            for item in batch:
                yield item


async def watch_batches(
    repository: RunRepository, run_id: str, *, after: int
) -> AsyncGenerator[Sequence[tuple[int, Event | Delta]]]:
    """Yield what is new in a run, as `watch_run` does, but several events at once.

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
            for batch in _decode_batches(decoder, lines, seq):
                if unseen := [item for item in batch if item[0] > after]:
                    yield unseen
            seq += len(lines)
            if deltas := _new_deltas(watcher, decoder, seq - 1):
                yield deltas
            if record.status != "running":
                return
            if watcher.is_relayed:
                pause = _MAX_RELAYED_INTERVAL
            elif lines:
                pause = _MIN_POLL_INTERVAL
            else:
                pause = min(pause * 1.5, _MAX_POLL_INTERVAL)
            await watcher.wait(pause)


def _decode_batches(decoder: EventDecoder, lines: Sequence[bytes], seq: int) -> Iterator[list[tuple[int, Event]]]:
    """Yield the numbered events of the lines after the first `seq`, a limited number at once."""
    for start in range(0, len(lines), _MAX_BATCH):
        numbered = enumerate(lines[start : start + _MAX_BATCH], seq + start)
        # Line 0 is the header. Skipped events are decoded too, because later lines refer to their origins.
        yield [(number, decoder.read(line)) for number, line in numbered if number]


def _new_deltas(watcher: Watcher, decoder: EventDecoder, seen: int) -> list[tuple[int, Delta]]:
    """Return the deltas that follow the last event.

    Older ones are in the log, and later ones wait for their event.
    """
    deltas: list[tuple[int, Delta]] = []
    while watcher.deltas and watcher.deltas[0][0] <= seen:
        number, encoded = watcher.deltas.popleft()
        if number == seen:
            try:
                deltas.append((number, decoder.read_delta(encoded)))
            except LogError:
                continue  # A delta of a newer version.
    return deltas
