"""A store backed by any object that gets and sets bytes."""

import asyncio

import pytest

from batonkit.errors import LogError, SetupError, StoreError
from batonkit.stores import KeyValueStore, WaitingMessage
from batonkit.stores.records import pack_lines

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
            assert blobs.sets <= 1020, "one key is set for each append, and one more when a piece is full"
    assert max(costs) < 1.1 * min(costs)
    assert max(sizes) < len(LINE) * 1.1
    assert len(await store.load("r")) == 4001


async def test_an_append_that_fails_leaves_nothing_and_can_be_done_again() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs, prefix="desk/")
    await store.create("r", [LINE])
    for failing in ("run/", "piece/"):
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
    for failing in ("run/", "runs/"):
        blobs.fails_on = failing
        with pytest.raises(StoreError, match="the bucket is away"):
            await store.create("r", [LINE], thread="t")
        blobs.fails_on = ""
        assert await store.record("r") is None
        assert (await store.list()).records == ()
    await store.create("other", [], thread="t")
    assert [record.run_id for record in (await store.list()).records] == ["other"]


async def test_damaged_and_missing_documents_are_detected() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    await store.create("r", [LINE])
    await store.append("r", 1, [LINE * 100])
    await store.append("r", 2, [LINE])
    await store.enqueue(WaitingMessage(run_id="m", thread="t"), limit=1)
    whole = dict(blobs.blobs)
    assert {*whole} == {"baton/run/r", "baton/piece/0/r", "baton/runs/0", "baton/inbox"}
    damaged = 0
    for key in whole:
        for place in range(0, len(whole[key]), 97):
            broken = bytearray(whole[key])
            broken[place] ^= 4
            blobs.blobs = {**whole, key: bytes(broken)}
            with pytest.raises((StoreError, LogError)):
                await KeyValueStore(blobs).load("r")
            damaged += 1
    assert damaged > 100
    blobs.blobs = {key: value for key, value in whole.items() if key != "baton/piece/0/r"}
    with pytest.raises(LogError, match="at event 0: the piece that starts there is missing"):
        await KeyValueStore(blobs).load("r")
    blobs.blobs = {key: value for key, value in whole.items() if key != "baton/run/r"}
    with pytest.raises(StoreError, match=r"KeyValueStore\(Dictionary\): 'baton/run/r' is missing"):
        await KeyValueStore(blobs).list()


async def test_documents_of_an_unreleased_version_are_refused() -> None:
    blobs = Dictionary()
    blobs.blobs["baton/runs/0"] = pack_lines([b'[[1,"r"]]'])
    with pytest.raises(
        StoreError, match="its layout is 0, but this version of Baton has layout 1: it was made by an u"
    ):
        await KeyValueStore(blobs).list()


async def test_a_failed_write_does_not_affect_those_that_are_written_with_it() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    for name in ("a", "b"):
        await store.create(name, [LINE])
    blobs.fails_on = "run/b"
    good, bad, new = await asyncio.gather(
        store.append("a", 1, [LINE]), store.append("b", 1, [LINE]), store.create("c", []), return_exceptions=True
    )
    assert isinstance(bad, StoreError)
    assert not isinstance(good, BaseException)
    assert not isinstance(new, BaseException)
    blobs.fails_on = ""
    assert [len(await store.load(name)) for name in ("a", "b", "c")] == [2, 1, 0]
    await store.append("b", 1, [LINE])


async def test_writes_of_the_same_time_are_written_together() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    await asyncio.gather(*(store.create(f"r{number}", [LINE]) for number in range(20)))
    assert blobs.sets == 20 + 1, "a document for each run, and one page of the list"


async def test_the_next_process_removes_what_is_left_of_a_deleted_run() -> None:
    blobs = Dictionary()
    store = KeyValueStore(blobs)
    await store.create("r", [LINE * 100])
    await store.create("s", [])
    blobs.fails_on = "piece/"
    with pytest.raises(StoreError):
        await store.delete("r")
    blobs.fails_on = ""
    assert LINE not in blobs.blobs["baton/run/r"]
    later = KeyValueStore(blobs)
    assert [record.run_id for record in (await later.list()).records] == ["s"]
    await later.append("s", 0, [LINE])
    assert not blobs.blobs["baton/piece/0/r"]
    await later.create("r", [b"new"])
    assert list(await KeyValueStore(blobs).load("r")) == [b"new"]


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

    with pytest.raises(StoreError, match=r"get\('baton/runs/0'\) returned a str, not bytes"):
        await KeyValueStore(Texts()).load("r")
    with pytest.raises(SetupError, match="a dict has no method `set`; KeyValueStore needs get"):
        KeyValueStore({})
