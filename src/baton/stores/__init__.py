"""Where logs live: lines of a log kept in order, with a compare-and-set on appending and leases on driving.

May import events, messages and errors. Knows neither agents nor runs: only the runner reads and writes through it. A
store is loaded when its name is first used, and a database's driver when a store of that kind is made.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import FINISHED, STATUSES, Lease, Page, RunRecord, RunStatus, Store, Wanted

if TYPE_CHECKING:
    from .keyvalue import KeyValueStore
    from .memory import MemoryStore
    from .paging import all_records
    from .postgres import PostgresStore
    from .sqlite import SQLiteStore
    from .urls import store_of

_HOMES = {
    "KeyValueStore": "keyvalue",
    "MemoryStore": "memory",
    "PostgresStore": "postgres",
    "SQLiteStore": "sqlite",
    "all_records": "paging",
    "store_of": "urls",
}

__all__ = [
    "FINISHED",
    "STATUSES",
    "KeyValueStore",
    "Lease",
    "MemoryStore",
    "Page",
    "PostgresStore",
    "RunRecord",
    "RunStatus",
    "SQLiteStore",
    "Store",
    "Wanted",
    "all_records",
    "store_of",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'baton.stores' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
