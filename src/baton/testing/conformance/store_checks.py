"""What the checks of stores have in common."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from ...stores import RunRecord, Store
from .expectations import expect_same

Open: TypeAlias = Callable[[], Store]
"""Opens a store, each time at the same place."""

StoreCheck: TypeAlias = Callable[[Open], Awaitable[None]]
"""A check: raises AssertionError, saying what was expected, if the store does not keep a promise."""


def check_name(check: StoreCheck) -> str:
    """What a check is called."""
    return getattr(check, "__name__", repr(check))


@asynccontextmanager
async def opened(open: Open) -> AsyncGenerator[Store]:
    """A store that is closed at the end."""
    store = open()
    try:
        yield store
    finally:
        await store.close()


async def known(store: Store, run_id: str) -> RunRecord:
    """The record of a run that must be there."""
    record = await store.record(run_id)
    if record is None:
        raise AssertionError(f"record({run_id!r}) is None, though the run was created")
    return record


async def expect_log(store: Store, run_id: str, lines: Sequence[bytes]) -> None:
    """A run has these lines, and a record that tells how many."""
    expect_same(list(await store.load(run_id)), list(lines), f"the log of {run_id!r}")
    expect_same((await known(store, run_id)).seq, len(lines), f"`seq` of the record of {run_id!r}")
