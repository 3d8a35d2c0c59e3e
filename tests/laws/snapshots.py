"""Stores that keep every snapshot of a run, and copies of them in which a run ends after any of its events."""

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from baton import Runner, RunResult
from baton.events import Event, encode_event
from baton.runner import snapshots
from baton.stores import SNAPSHOT_NOTE, AppendOptions, MemoryStore, RunFlags


class SnapshotStore(MemoryStore):
    """A store in memory that remembers all snapshots, each with the number of events that it covers."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, list[tuple[int, bytes]]] = {}

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        if note := options.get("notes", {}).get(SNAPSHOT_NOTE):
            self.taken.setdefault(run_id, []).append((msgspec.json.decode(note[4:])[2], note))
        return await super().append(run_id, expected_seq, lines, **options)

    async def cut(self, run_id: str, length: int, *, uses_snapshot: bool) -> "SnapshotStore":
        """Return a store in which a run has only its first events; earlier runs are the same.

        Args:
            run_id: The run.
            length: The number of its events.
            uses_snapshot: Whether it has the last snapshot of these events.
        """
        copy = SnapshotStore()
        for record in reversed((await self.list()).records):
            lines, is_cut = await self.load(record.run_id), record.run_id == run_id
            notes: dict[str, bytes] = {}
            if is_cut and uses_snapshot:
                fitting = [note for count, note in self.taken.get(run_id, ()) if count <= length]
                if fitting:
                    notes[SNAPSHOT_NOTE] = fitting[-1]
            await copy.create(
                record.run_id,
                lines[: length + 1] if is_cut else lines,
                status="running" if is_cut else record.status,
                thread=record.thread,
                previous=record.previous,
                notes=notes,
            )
            if is_cut:
                break
        return copy


def take_often(runner: Runner[Any, Any], interval: int = 1) -> Runner[Any, Any]:
    """Let a runner take a snapshot wherever it can, whatever it costs."""
    for repository in (runner._stored_runs, runner._thread_runs):
        if repository is not None:
            repository.snapshot_interval = interval
    return runner


class EverySnapshot:
    """Lets writers take each snapshot that they can, however large the last one was."""

    def __enter__(self) -> None:
        self._share = snapshots.LEAST_SHARE
        snapshots.LEAST_SHARE = 0.0

    def __exit__(self, *_: object) -> None:
        snapshots.LEAST_SHARE = self._share


async def describe(result: RunResult[Any], runner: Runner[Any, Any]) -> dict[str, object]:
    """Return all that a result and the records of its requests hold, in a form that can be compared."""
    recorded = await runner.requests(result.run_id)
    requests = [
        (key, request.agent, request.messages, request.instructions, request.tools) for key, request in recorded.items()
    ]
    return {
        "requests": requests,
        "status": result.status,
        "error": None if result.error is None else (type(result.error).__name__, str(result.error)),
        "output": result._output,
        "agent": result.agent,
        "messages": result.messages,
        "values": result.values,
        "usage": result.usage,
        "interrupts": result.interrupts,
        "open tasks": result.open_tasks,
        **{f"event {number}": event for number, event in enumerate(without_times(result.events))},
    }


def check_same(found: Sequence[dict[str, object]]) -> None:
    """Check that two descriptions are the same; the message names what differs."""
    before, after = found
    differences = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
    differences = {name: pair for name, pair in differences.items() if pair[0] != pair[1]}
    lines = [
        f"{name}\n  without snapshot: {pair[0]}\n  with snapshot:    {pair[1]}" for name, pair in differences.items()
    ]
    assert not differences, "\n".join(lines[:3])


def without_times(events: Sequence[Event]) -> list[Any]:
    """Return events as JSON data, with their paths and without their timestamps.

    Of recorded requests, only the hash over the messages is left: which earlier request one refers to may differ.
    """
    found: list[Any] = []
    for event in events:
        fields = msgspec.json.decode(encode_event(event))
        fields["timestamp"], fields["path"] = 0.0, event.path
        if "request" in fields:
            fields["request"] = {name: fields["request"].get(name) for name in ("digest", "policy", "entries")}
        found.append(fields)
    return found
