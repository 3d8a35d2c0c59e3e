"""The store in memory."""

import pytest
from tests.team.test_scale import count_calls

from batonkit.stores import MemoryStore


async def store_with(runs: int) -> MemoryStore:
    """Return a store in which one thread has two runs and other threads have many."""
    store = MemoryStore()
    for number in range(runs):
        await store.create(f"other{number}", [], thread=f"other{number}")
    for run_id in ("first", "last"):
        await store.create(run_id, [], thread="t")
        await store.append(run_id, 0, [b"line"], status="completed", fence=1)
    return store


def calls_of_listing(store: MemoryStore) -> int:
    def list_thread() -> None:
        with pytest.raises(StopIteration) as ended:
            store.list(thread="t", limit=1).send(None)
        assert [record.run_id for record in ended.value.value.records] == ["last"]

    return count_calls(list_thread)


@pytest.mark.counts_calls
async def test_the_cost_of_listing_a_thread_does_not_grow_with_the_runs_of_other_threads() -> None:
    # The first list of a process also loads what is imported late.
    calls_of_listing(await store_with(1))
    assert calls_of_listing(await store_with(500)) == calls_of_listing(await store_with(1))
