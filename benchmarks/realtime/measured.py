"""Everything there is to measure about live conversations."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from benchmarks.realtime.changes import Changes, floor_changes
from benchmarks.realtime.chunks import chunk_costs
from benchmarks.realtime.load import Round, loaded


class RealtimeCosts(Struct, frozen=True):
    """The costs of live conversations."""

    heard: float
    """Microseconds of CPU time for a piece of audio, from the SDK's connection to the application."""
    said: float
    """Microseconds of CPU time for a piece of audio that the application sends."""
    changes: Changes
    rounds: list[Round]

    @property
    def growth(self) -> float:
        """Memory at the end of the last round beside that at the end of the one before."""
        return self.rounds[-1].megabytes_late / self.rounds[-2].megabytes_late

    @property
    def growth_within(self) -> float:
        """Memory at the end of the last round beside that at a fifth of it."""
        return self.rounds[-1].megabytes_late / self.rounds[-1].megabytes_early


def realtime_costs(*, is_quick: bool) -> RealtimeCosts:
    """Measure it all; raises AssertionError if a byte of audio is lost."""
    return asyncio.run(_measured(is_quick=is_quick))


async def _measured(*, is_quick: bool) -> RealtimeCosts:
    chunks = await chunk_costs(3 if is_quick else 15)
    changes = await floor_changes(200 if is_quick else 500)
    rounds = await loaded(10 if is_quick else 50, audio_seconds=12 if is_quick else 60, rounds=3 if is_quick else 5)
    return RealtimeCosts(chunks["heard"], chunks["said"], changes, rounds)
