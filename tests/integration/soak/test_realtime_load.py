"""Many concurrent realtime sessions in one process, over websockets: nothing is lost and memory does not grow.

A few with every test run; CONVERSATIONS, or 50 of them for a minute each, with `make soak`.
"""

import os

import pytest
from benchmarks.realtime.changes import floor_changes
from benchmarks.realtime.load import loaded
from tests.conftest import PROFILE

IS_SOAK = PROFILE == "soak"
SESSIONS = int(os.environ.get("CONVERSATIONS", "50" if IS_SOAK else "4"))
SECONDS = 60 if IS_SOAK else 12
ROUNDS = 6 if IS_SOAK else 2
MAX_GROWTH = 1.1


@pytest.mark.timeout(600)
async def test_many_concurrent_sessions_lose_no_audio_and_leak_no_memory() -> None:
    rounds = await loaded(SESSIONS, audio_seconds=SECONDS, rounds=ROUNDS)

    assert all(each.audio_up >= SESSIONS * SECONDS for each in rounds)
    assert sum(each.audio_down for each in rounds) > 0
    assert sum(each.changes for each in rounds) > 0
    for each in rounds:
        assert each.megabytes_late < MAX_GROWTH * each.megabytes_early, "memory grows during a session"
    # The memory of the first rounds is reused; the second half of the rounds must not need more.
    later = rounds[len(rounds) // 2 :]
    assert later[-1].megabytes_late < MAX_GROWTH * later[0].megabytes_late, "memory grows with the number of sessions"


async def test_no_user_audio_is_lost_during_a_transfer() -> None:
    changes = await floor_changes(500 if IS_SOAK else 20)

    assert changes.count >= (500 if IS_SOAK else 20)
    assert changes.audio_arrived == changes.audio_sent > 0
