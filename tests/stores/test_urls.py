"""Stores by their addresses."""

import os
from pathlib import Path

import pytest

from batonkit.errors import SetupError
from batonkit.stores import KeyValueStore, MemoryStore, PostgresStore, SQLiteStore, Store, resolve_store


@pytest.mark.parametrize(
    ("address", "path", "durability"),
    [
        ("runs.db", "runs.db", "process"),
        ("./data/runs", "data/runs", "process"),
        (Path("runs.db"), "runs.db", "process"),
        ("/srv/runs.db", "/srv/runs.db", "process"),
        ("sqlite:///runs.db", "runs.db", "process"),
        ("sqlite:////srv/my%20runs.db", "/srv/my runs.db", "process"),
        ("sqlite:///runs.db?durability=power&timeout=2", "runs.db", "power"),
        ("SQLITE:///runs.db", "runs.db", "process"),
    ],
)
def test_file_addresses_resolve_to_sqlite_stores(address: str | os.PathLike[str], path: str, durability: str) -> None:
    store = resolve_store(address)
    assert isinstance(store, SQLiteStore)
    assert (store.path, store.durability) == (Path(path).absolute(), durability)


def test_memory_and_postgres_addresses_resolve_to_their_stores() -> None:
    assert isinstance(resolve_store("memory:"), MemoryStore)
    assert isinstance(resolve_store("memory://"), MemoryStore)
    for scheme in ("postgresql", "postgres"):
        store = resolve_store(f"{scheme}://user:secret@host:5433/runs")
        assert isinstance(store, PostgresStore)
        assert repr(store) == "PostgresStore('postgresql://user@host:5433/runs')"


def test_a_store_is_returned_unchanged() -> None:
    class Dictionary(dict[str, bytes]):
        def set(self, key: str, value: bytes) -> None:
            self[key] = value

    for store in (MemoryStore(), SQLiteStore("runs.db"), KeyValueStore(Dictionary())):
        assert isinstance(store, Store)
        assert resolve_store(store) is store
    with pytest.raises(SetupError, match=r"a Dictionary has get and set; wrap it: KeyValueStore\(…\)"):
        resolve_store(Dictionary())  # pyright: ignore[reportArgumentType] - that is the mistake


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "store is '', which is not a file name; use a path such as runs.db"),
        ("data/", "store is 'data/', which is not a file name"),
        ("memory", "store is 'memory'; did you mean 'memory:'"),
        ("sqlite", "did you mean 'sqlite:///runs.db'"),
        ("Postgres", "did you mean 'postgresql://host/database'"),
        ("memory:runs", "the address of a memory store is just"),
        ("redis://host", "there is no store for redis: addresses; use a path such as runs.db, sqlite:///runs.db"),
        ("postgresql+asyncpg://host/runs", r"there is no store for postgresql\+asyncpg: addresses"),
        ("sqlite:runs.db", "write sqlite:///runs.db for a file in this folder"),
        ("sqlite://runs.db", "write sqlite:///runs.db for a file in this folder"),
        ("sqlite:///", "which is not a file name"),
        ("sqlite:///runs.db?mode=ro", "sqlite: addresses take `durability` and `timeout`, not `mode`"),
        ("sqlite:///runs.db?timeout=soon", "timeout is 'soon'; it must be a number of seconds"),
        ("sqlite:///runs.db?durability=all", "durability is 'all'; it can be: `process`, `power`"),
        (7, "an int is not a store; use a path"),
    ],
)
def test_invalid_addresses_are_refused(address: str, problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        resolve_store(address)
