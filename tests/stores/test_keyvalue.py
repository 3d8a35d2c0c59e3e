"""A store backed by any object that gets and sets bytes."""

import asyncio

import pytest

from batonkit.errors import LogError, SetupError, StoreError
from batonkit.stores import KeyValueStore

LINE = b'{"text":"' + b"x" * 240 + b'"}'


class Dictionary:
    """Bytes by key; it counts writes, and fails for keys that contain `fails_on`."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.bytes_set = 0
        self.sets = 0
        self.fails_on = ""

    async def get(self, key: str) -> bytes | None:
        return self.blobs.get(key)

    async def set(self, key: str, value: bytes) -> None:
        if self.fails_on and self.fails_on in key:
            raise ConnectionError("the bucket is away")
        self.blobs[key] = value
        self.sets += 1
        self.bytes_set += len(value)


async def test_storage_grows_only_with_the_lines() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    await store.create("r", [LINE])
    costs: list[float] = []
    sizes: list[float] = []
    for seq in range(1, 4001):
        if seq % 1000 == 1:
            blobs.bytes_set = blobs.sets = 0
        await store.append("r", seq, [LINE])
        if seq % 1000 == 0:
            costs.append(blobs.bytes_set / 1000)
            sizes.append(sum(map(len, blobs.blobs.values())) / seq)
            assert blobs.sets <= 1020, "one key is set for each append, and one more when a segment is full"
    assert max(costs) < 1.1 * min(costs)
    assert max(sizes) < len(LINE) * 1.1
    assert len(await store.load("r")) == 4001


async def test_an_append_that_fails_leaves_nothing_and_can_be_done_again() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs, prefix="desk/")
    await store.create("r", [LINE])
    for failing in ("head/", "segment/"):
        blobs.fails_on = failing
        with pytest.raises(StoreError, match=r"KeyValueStore\(Dictionary\): set\('desk/.*the bucket is away"):
            await store.append("r", 1, [LINE * 100])
        assert list(await store.load("r")) == [LINE]
    blobs.fails_on = ""
    await store.append("r", 1, [LINE * 100])
    assert list(await store.load("r")) == [LINE, LINE * 100]


async def test_a_create_that_fails_leaves_no_run_and_a_free_thread() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    for failing in ("runs/", "thread/", "busy/", "head/"):
        blobs.fails_on = failing
        with pytest.raises(StoreError, match="the bucket is away"):
            await store.create("r", [LINE], thread="t")
        blobs.fails_on = ""
        assert await store.record("r") is None
        assert (await store.list()).records == ()
    await store.create("other", [], thread="t")
    assert [record.run_id for record in (await store.list()).records] == ["other"]


async def test_damaged_bytes_are_detected() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    await store.create("r", [LINE])
    await store.append("r", 1, [LINE * 100])
    await store.append("r", 2, [LINE])
    whole = dict(blobs.blobs)
    damaged = 0
    for key in ("baton/head/r", "baton/segment/0/r", "baton/runs/0"):
        for place in range(0, len(whole[key]), 97):
            blobs.blobs = dict(whole)
            broken = bytearray(whole[key])
            broken[place] ^= 4
            blobs.blobs[key] = bytes(broken)
            with pytest.raises((StoreError, LogError)):
                await asyncio.gather(store.load("r"), store.list())
            damaged += 1
    assert damaged > 100
    blobs.blobs = dict(whole)
    del blobs.blobs["baton/segment/0/r"]
    with pytest.raises(LogError, match="at event 0: the segment that starts there is missing"):
        await store.load("r")


async def test_index_pages_have_a_limited_size() -> None:
    blobs = Dictionary()
    now = 0.0
    store = KeyValueStore(blobs, clock=lambda: now)
    for number in range(600):
        now = float(number)
        await store.create(f"r{number}", [])
        await store.append(f"r{number}", 0, [], status="completed")
    assert len(blobs.blobs["baton/runs/0"]) < 256 * 20
    page = await store.list(limit=599)
    assert [record.run_id for record in page.records] == [f"r{number}" for number in range(599, 0, -1)]
    now = 700.0
    assert await store.expire(400) == 301
    assert len((await store.list(limit=1000)).records) == 299


async def test_values_that_are_not_bytes_are_refused() -> None:
    class Texts:
        def get(self, key: str) -> str:
            return "text"

        def set(self, key: str, value: bytes) -> None: ...

    with pytest.raises(StoreError, match=r"get\('baton/head/r'\) returned a str, not bytes"):
        await KeyValueStore(Texts()).load("r")
    with pytest.raises(SetupError, match="a dict has no method `set`; KeyValueStore needs get"):
        KeyValueStore({})
