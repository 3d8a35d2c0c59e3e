"""What a key-value store keeps under its keys: heads of runs, and shelves that tell which runs there are."""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import SetupError, StoreError
from .base import RunRecord
from .packing import packed, unpacked
from .paging import Place

VERSION = 1
PLACES_ON_A_SHELF = 256


class BlobClient:
    """Bytes by key, whether they come at once or are waited for, with failures as StoreError."""

    def __init__(self, blobs: Any, prefix: str) -> None:
        for wanted in ("get", "set"):
            if not callable(getattr(blobs, wanted, None)):
                raise SetupError(
                    f"a {type(blobs).__name__} has no method `{wanted}`; KeyValueStore needs "
                    "get(key) -> bytes | None and set(key, bytes), sync or async"
                )
        self._blobs = blobs
        self._prefix = prefix
        self.name = f"KeyValueStore({type(blobs).__name__})"

    async def get(self, key: str) -> bytes | None:
        """The bytes under a key; None if there are none. Empty bytes are what a deleted key without `delete` has."""
        found = await self._call("get", self._prefix + key)
        if found is None or isinstance(found, bytes | bytearray):
            return bytes(found) if found else None
        raise StoreError(f"get({self._prefix + key!r}) gave a {type(found).__name__}, not bytes", store=self.name)

    async def set(self, key: str, value: bytes) -> None:
        """Put bytes under a key."""
        await self._call("set", self._prefix + key, value)

    async def remove(self, key: str) -> None:
        """Take a key away, or its bytes if keys cannot be taken away."""
        if callable(getattr(self._blobs, "delete", None)):
            await self._call("delete", self._prefix + key)
        else:
            await self.set(key, b"")

    async def _call(self, method: str, key: str, *rest: bytes) -> Any:
        try:
            answer = getattr(self._blobs, method)(key, *rest)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as failure:
            said = f"{type(failure).__name__}: {failure}"
            raise StoreError(f"{method}({key!r}) failed ({said})", store=self.name) from failure


class RunHead(NamedTuple):
    """What changes when a run is written to: its record, where its segments begin, and the lines after the last."""

    record: RunRecord
    segments: Sequence[int]
    tail: Sequence[bytes]

    def ends(self) -> Sequence[int]:
        """The number of the line after each segment."""
        return (*self.segments[1:], self.record.seq - len(self.tail)) if self.segments else ()

    def encoded(self) -> bytes:
        """As bytes with a checksum."""
        return packed((_ENCODER.encode(self.record), _ENCODER.encode((VERSION, *self.segments)), *self.tail))

    @classmethod
    def decoded(cls, blob: bytes) -> "RunHead":
        """From bytes; ValueError if they are damaged, or were written by a newer Baton."""
        record, numbers, *tail = unpacked(blob)
        version, *segments = _NUMBERS.decode(numbers)
        if version > VERSION:
            raise ValueError(f"its layout is version {version}, made by a newer Baton; this one knows up to {VERSION}")
        return cls(_RECORD.decode(record), segments, tail)


class RunIndex:
    """The places of all runs, or of a thread's, on shelves of bounded size: one is set anew for each run that comes."""

    def __init__(self, blobs: BlobClient, name: str) -> None:
        self._blobs = blobs
        self._name = name

    async def add(self, run_id: str, created_at: float) -> None:
        """Note a run."""
        number = await self._newest()
        shelf = await self._shelf(number)
        if len(shelf) >= PLACES_ON_A_SHELF:
            number, shelf = number + 1, []
            await self._blobs.set(f"{self._name}/newest", b"%d" % number)
        await self._put(number, [*shelf, (created_at, run_id)])

    async def remove(self, run_id: str, created_at: float) -> None:
        """Strike out a run."""
        for number in range(await self._newest(), -1, -1):
            shelf = await self._shelf(number)
            if (created_at, run_id) in shelf:
                await self._put(number, [place for place in shelf if place != (created_at, run_id)])

    async def places(self) -> list[Place]:
        """Where all runs stand, in no order, each once."""
        shelves = [await self._shelf(number) for number in range(await self._newest() + 1)]
        return [*{place for shelf in shelves for place in shelf}]

    async def _newest(self) -> int:
        return int(await self._blobs.get(f"{self._name}/newest") or b"0")

    async def _shelf(self, number: int) -> list[Place]:
        blob = await self._blobs.get(f"{self._name}/{number}")
        if blob is None:
            return []
        try:
            return _PLACES.decode(unpacked(blob)[0])
        except ValueError as problem:
            said = f"the list of runs under `{self._name}/{number}` cannot be read: {problem}"
            raise StoreError(said, store=self._blobs.name) from problem

    async def _put(self, number: int, shelf: Sequence[Place]) -> None:
        await self._blobs.set(f"{self._name}/{number}", packed([_ENCODER.encode(shelf)]))


_ENCODER = msgspec.json.Encoder()
_NUMBERS = msgspec.json.Decoder(list[int])
_RECORD = msgspec.json.Decoder(RunRecord)
_PLACES = msgspec.json.Decoder(list[Place])
