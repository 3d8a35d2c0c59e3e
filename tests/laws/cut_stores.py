"""Copies of stores in which a run ends after any of its events."""

from batonkit.stores import MemoryStore


class CutStore(MemoryStore):
    """A store in memory of which copies can be made that end in the middle of a run."""

    async def cut(self, run_id: str, length: int) -> "CutStore":
        """Return a store in which a run has only its first events; earlier runs are the same."""
        copy = CutStore()
        for record in reversed((await self.list()).records):
            lines, is_cut = await self.load(record.run_id), record.run_id == run_id
            await copy.create(
                record.run_id,
                lines[: length + 1] if is_cut else lines,
                status="running" if is_cut else record.status,
                thread=record.thread,
                previous=record.previous,
            )
            if is_cut:
                break
        return copy
