"""Many conversations at once in one process: they speak both ways and hand over, and not a byte may be lost."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import defaultdict
from hashlib import blake2b

from msgspec import Struct
from tests.servers.realtime import silence, speech

from batonkit.log import ControlTransferred
from batonkit.realtime import (
    AudioDelta,
    PlaybackTracker,
    RealtimeRunner,
    RealtimeSession,
    RealtimeSettings,
    TurnDetection,
)
from benchmarks.realtime.provider import Account, Provider, Report, desk, provider_for

PACE = 10.0
"""The speed of speech, as a multiple of real time."""
_PIECE_MS = 100
_MANNERS = RealtimeSettings(turn_detection=TurnDetection(silence_ms=300))
_MEGABYTE = 2**20


class Round(Struct, frozen=True):
    """So many conversations, from their beginning to their end."""

    conversations: int
    seconds: float
    """The duration in seconds."""
    late: float
    """The largest delay with which a piece of audio was sent."""
    audio_up: float
    audio_down: float
    """Seconds of audio that the users and the agents have spoken, together."""
    changes: int
    cpu_seconds: float
    provider_cpu_seconds: float
    megabytes_early: float
    """Memory of the process when a fifth of the audio was sent."""
    megabytes_late: float

    @property
    def busy(self) -> float:
        """The share of one core that the process used."""
        return self.cpu_seconds / self.seconds

    @property
    def cpu_for_a_minute(self) -> float:
        """CPU seconds for one conversation of one minute of the user's audio."""
        return self.cpu_seconds / (self.audio_up / 60)


async def loaded(conversations: int, *, audio_seconds: float, rounds: int) -> list[Round]:
    """Several rounds with one provider. AssertionError if anything is lost."""
    async with provider_for("load", pace=PACE) as provider:
        # Once in small, so that everything is imported and compiled.
        runner = desk(provider.base_url, _MANNERS)
        await _round(provider, runner, 2, 6.0)
        return [await _round(provider, runner, conversations, audio_seconds) for _ in range(rounds)]


async def _round(provider: Provider, runner: RealtimeRunner, conversations: int, audio_seconds: float) -> Round:
    talks = [Talk() for _ in range(conversations)]
    said = _what_the_user_says(audio_seconds)
    began, cpu = time.monotonic(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for place, talk in enumerate(talks, start=1):
            # Each begins with a faint tone of its own, by which the provider's account of it is found again.
            own = place.to_bytes(2, "little") * (_PIECE_MS * 24)
            group.create_task(talk.hold(runner, [own, *said]))
        await _until_all_is_said(provider, talks)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        megabytes = _megabytes()
        for talk in talks:
            talk.may_end.set()
    report = await provider.report()
    _check(talks, report)
    return Round(
        conversations,
        seconds,
        max(talk.late for talk in talks),
        sum(talk.sent for talk in talks) / 48_000,
        sum(talk.heard for talk in talks) / 48_000,
        sum(talk.changes for talk in talks),
        cpu,
        report["cpu"],
        max(talk.megabytes for talk in talks),
        megabytes,
    )


async def _until_all_is_said(provider: Provider, talks: list[Talk]) -> None:
    """Return when neither side has anything left to say: then what one has sent, the other has."""
    for talk in talks:
        await talk.has_spoken.wait()
    before = None
    while (now := await provider.quiet()) != before:
        before = now
        for talk in talks:
            assert talk.session is not None
            await talk.session.wait_until_idle()


class Heard:
    """The sound of one item, as it was heard: not the sound itself, for memory is measured."""

    def __init__(self) -> None:
        self.size = 0
        self.digest = blake2b()

    def hear(self, audio: bytes) -> None:
        """More of it."""
        self.size += len(audio)
        self.digest.update(audio)


class Talk:
    """One conversation, and what it has sent and heard."""

    def __init__(self) -> None:
        self.session: RealtimeSession | None = None
        self.has_spoken = asyncio.Event()
        self.may_end = asyncio.Event()
        self.sent = self.heard = self.changes = 0
        self.sent_digest = blake2b()
        self.heard_items: defaultdict[str, Heard] = defaultdict(Heard)
        self.late = 0.0
        self.megabytes = 0.0

    async def hold(self, runner: RealtimeRunner, said: list[bytes]) -> None:
        """Say all this, and listen, until it may end."""
        playback = PlaybackTracker(clock=lambda: time.monotonic() * PACE)
        async with runner.connect(playback=playback) as session:
            self.session = session
            listening = asyncio.create_task(self._listen(session))
            await self._speak(session, said)
            self.has_spoken.set()
            await self.may_end.wait()
        await listening

    async def _speak(self, session: RealtimeSession, said: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, piece in enumerate(said):
            due = began + number * _PIECE_MS / 1000 / PACE
            await asyncio.sleep(max(0.0, due - loop.time()))
            await session.send_audio(piece)
            self.late = max(self.late, loop.time() - due)
            self.sent_digest.update(piece)
            self.sent += len(piece)
            if number == len(said) // 5:
                self.megabytes = _megabytes()

    async def _listen(self, session: RealtimeSession) -> None:
        async for event in session:
            if isinstance(event, AudioDelta):
                self.heard_items[event.item_id].hear(event.audio)
                self.heard += len(event.audio)
            elif isinstance(event, ControlTransferred):
                self.changes += 1


def _what_the_user_says(seconds: float) -> list[bytes]:
    """A second and a half of speech, then quiet for four and a half, and so on, in pieces."""
    turn = speech("so what do you say now", ms_per_word=250) + silence(4500)
    whole = (turn * (int(seconds / 6) + 1))[: int(seconds * 48_000)]
    size = _PIECE_MS * 48
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _check(talks: list[Talk], report: Report) -> None:
    """Everything that was sent has arrived, both ways, in order, and nothing else."""
    by_digest: dict[str, Account] = {account["received_digest"]: account for account in report["sessions"]}
    assert len(report["sessions"]) == len(by_digest) == len(talks), "a conversation was connected twice"
    for talk in talks:
        account = by_digest.get(talk.sent_digest.hexdigest())
        assert account is not None, "something that was said has not arrived as it was said"
        assert account["received"] == talk.sent
        assert not account["complaints"], account["complaints"]
        assert account["changes"] == talk.changes
        _check_heard(talk, account)


def _check_heard(talk: Talk, account: Account) -> None:
    """All that was said to its end was heard to its end. What was interrupted is not passed on any more."""
    unheard = 0
    for item_id, (size, digest, is_whole) in account["sent"].items():
        heard = talk.heard_items.pop(item_id, Heard())
        if not is_whole:
            assert heard.size <= size
        elif heard.size:
            assert (heard.size, heard.digest.hexdigest()) == (size, digest), f"of {size} bytes {heard.size} were heard"
        else:
            # Said by an agent that had handed over: it came after the change, and must not be heard.
            unheard += 1
    assert not talk.heard_items, "something was heard that nobody said"
    assert unheard <= talk.changes


def _megabytes() -> float:
    """The memory that the process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / _MEGABYTE
