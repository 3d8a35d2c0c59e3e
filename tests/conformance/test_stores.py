"""Every store does what the conformance suite wants of any store."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from batonkit.stores import KeyValueStore, MemoryStore, SQLiteStore, Store
from batonkit.testing.conformance import (
    INBOX_CHECKS,
    NOTES_CHECKS,
    RETENTION_CHECKS,
    STORE_CHECKS,
    StoreCheck,
    check_name,
)

Open = Callable[[], Store]
ALL_CHECKS = (*STORE_CHECKS, *INBOX_CHECKS, *NOTES_CHECKS, *RETENTION_CHECKS)


class Bucket:
    """Bytes by key, as a bucket in a network has them: every answer takes a turn of the loop."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return self.blobs.get(key)

    async def set(self, key: str, value: bytes) -> None:
        await asyncio.sleep(0)
        self.blobs[key] = value

    async def delete(self, key: str) -> None:
        await asyncio.sleep(0)
        self.blobs.pop(key, None)


class Shelf:
    """The least that will do: sync, and nothing can be deleted."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.blobs.get(key)

    def set(self, key: str, value: bytes) -> None:
        self.blobs[key] = value


@pytest.fixture(params=["memory", "sqlite", "sqlite-power", "bucket", "shelf"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    match request.param:
        case "memory":
            store = MemoryStore()
            return lambda: store
        case "sqlite":
            return partial(SQLiteStore, tmp_path / "runs.db")
        case "sqlite-power":
            return partial(SQLiteStore, tmp_path / "runs.db", durability="power")
        case "bucket":
            return partial(KeyValueStore, Bucket())
        case _:
            return partial(KeyValueStore, Shelf())


@pytest.mark.parametrize("check", ALL_CHECKS, ids=check_name)
async def test_every_store(place: Open, check: StoreCheck) -> None:
    await check(place)
