"""Stores whose notes about threads are missing, damaged or of another version, and the comparison of what is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from zlib import crc32

import msgspec

from batonkit.runs.threads.thread import ThreadReader, ThreadState
from batonkit.stores import FullStore, RunNote

Change = Callable[[bytes], bytes | None]
"""Returns the note that is read instead of a stored one."""


def _damage(note: bytes) -> bytes:
    return note[:-3] + b"!!!"


def _of_another_version(note: bytes) -> bytes:
    fields: list[Any] = msgspec.json.decode(note[4:])
    fields[0] = [99, 1]
    encoded = msgspec.json.encode(fields)
    return crc32(encoded).to_bytes(4) + encoded


CHANGES: dict[str, Change] = {
    "missing": lambda note: None,
    "empty": lambda note: b"",
    "damaged": _damage,
    "of another version": _of_another_version,
}


class ChangedNotes:
    """A store whose notes are changed when they are read."""

    def __init__(self, inner: FullStore, change: Change) -> None:
        self._inner = inner
        self._change = change
        self.loads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.loads += 1
        return await self._inner.load(run_id, start=start)

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        found = {run_id: self._change(note) for run_id, note in (await self._inner.read_notes(run_ids, name)).items()}
        return {run_id: note for run_id, note in found.items() if note is not None}

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        found = await self._inner.thread_notes(thread, name, before=before, limit=limit)
        return [RunNote(o.run_id, o.number, o.seq, None if o.note is None else self._change(o.note)) for o in found]


def describe(state: ThreadState) -> Any:
    """Return all that a state holds, in a form that can be compared."""
    entries = [
        (e.message, e.path, None if e.origin is None else e.origin.id, e.is_answer, e.hidden, e.followed, e.event)
        for e in state.entries
    ]
    shared = len({id(e.origin) for e in state.entries}) == len({e.origin and e.origin.id for e in state.entries})
    rest = (state.active_agent, state.values, state.summaries, state.tasks)
    return entries, shared, state.last_run, state.runs, state.is_whole, *rest


async def check_notes(store: FullStore, thread: str = "t") -> None:
    """Check that a thread is the same with its notes, without them, and with notes that must be ignored."""
    all_entries: list[Any] = []
    for reads_all in (True, False):
        intact = ChangedNotes(store, lambda note: note)
        expected = describe(await ThreadReader(cast("FullStore", intact), reads_all=reads_all).latest(thread))
        assert intact.loads == 0, "the notes of all runs are used"
        all_entries = all_entries or expected[0]
        assert expected[0] == all_entries[len(all_entries) - len(expected[0]) :], "the newest entries are read"
        for name, change in CHANGES.items():
            changed = cast("FullStore", ChangedNotes(store, change))
            found = describe(await ThreadReader(changed, reads_all=reads_all).latest(thread))
            assert found == expected, f"the thread differs if its notes are {name}"
