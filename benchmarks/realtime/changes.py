"""The time until the provider knows the active agent, on the provider's clock, while the user speaks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from hashlib import blake2b
from statistics import median

from msgspec import Struct

from batonkit.log import ControlTransferred
from batonkit.realtime import RealtimeSession, RealtimeSettings, TurnDetection
from benchmarks.realtime.provider import Account, desk, provider_for

_PIECE_MS = 20
_QUIET = RealtimeSettings(turn_detection=TurnDetection(threshold=1.0))
"""Whatever the user says, nobody takes it for speech: what is measured is not interrupted."""


class Changes(Struct, frozen=True):
    """Changes of the floor: milliseconds from the call, and from the end of its response, to the new settings."""

    count: int
    since_arguments: tuple[float, float]
    """The median, and what 99 of 100 stay below."""
    since_done: tuple[float, float]
    audio_sent: int
    audio_arrived: int


async def floor_changes(count: int) -> Changes:
    """Have the floor change so often in one conversation. AssertionError if a byte of the user's is lost."""
    digest, sent = blake2b(), 0
    async with provider_for("changes") as provider:
        async with desk(provider.base_url, _QUIET).connect() as session:
            stop = asyncio.Event()
            speaking = asyncio.create_task(_speak(session, stop))
            await session.send_text("go")
            changes = 0
            async for event in session:
                changes += isinstance(event, ControlTransferred)
                if changes >= count:
                    break
            stop.set()
            sent, digest = await speaking
        report = await provider.report()
    account = report["sessions"][0]
    _check(account, sent, digest.hexdigest())
    return Changes(
        len(account["since_done"]),
        _quantiles(account["since_arguments"]),
        _quantiles(account["since_done"]),
        sent,
        account["received"],
    )


async def _speak(session: RealtimeSession, stop: asyncio.Event) -> tuple[int, blake2b]:
    """Send audio ten times as fast as one speaks, until told to stop; how much, and what."""
    digest, sent, number = blake2b(), 0, 0
    while not stop.is_set():
        number += 1
        piece = number.to_bytes(8) * (6 * _PIECE_MS)
        await session.send_audio(piece)
        digest.update(piece)
        sent += len(piece)
        try:
            async with asyncio.timeout(_PIECE_MS / 10 / 1000):
                await stop.wait()
        except TimeoutError:
            continue
    return sent, digest


def _check(account: Account, sent: int, digest: str) -> None:
    assert not account["complaints"], account["complaints"]
    assert account["received"] == sent, f"{sent} bytes were sent, and {account['received']} have arrived"
    assert account["received_digest"] == digest, "what has arrived is not what was sent"


def _quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return median(ordered) * 1000, ordered[math.ceil(0.99 * len(ordered)) - 1] * 1000
