"""Stores for the logs of runs: append-only lines with compare-and-set, and leases for the workers that drive runs.

May import events, messages and errors. A store's module is loaded when its name is first used, and a database driver
when a store of that kind is created.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import FINISHED_STATUSES, RUN_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus, Store

if TYPE_CHECKING:
    from .keyvalue import KeyValueStore
    from .memory import MemoryStore
    from .postgres import PostgresStore
    from .records import iter_records
    from .sqlite import SQLiteStore
    from .urls import resolve_store

_HOMES = {
    "KeyValueStore": "keyvalue",
    "MemoryStore": "memory",
    "PostgresStore": "postgres",
    "SQLiteStore": "sqlite",
    "iter_records": "records",
    "resolve_store": "urls",
}

__all__ = [
    "FINISHED_STATUSES",
    "RUN_STATUSES",
    "KeyValueStore",
    "Lease",
    "MemoryStore",
    "PostgresStore",
    "RecordPage",
    "RunFilters",
    "RunRecord",
    "RunStatus",
    "SQLiteStore",
    "Store",
    "iter_records",
    "resolve_store",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'baton.stores' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
