"""Stores for the logs of runs: append-only lines with compare-and-set, and leases for the workers that drive runs.

May import log, messages and errors. A store's module is loaded when its name is first used, and a database driver
when a store of that kind is created.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from .store import (
    FINISHED_STATUSES,
    RUN_STATUSES,
    SUMMARY_NOTE,
    THREAD_NOTE,
    AppendOptions,
    CancelRequest,
    CancelWhen,
    CreateOptions,
    FullStore,
    InboxState,
    Lease,
    RecordPage,
    RunFilters,
    RunFlags,
    RunNote,
    RunRecord,
    RunStatus,
    Store,
    SupportsChannel,
    SupportsInbox,
    SupportsNotes,
    SupportsRetention,
    WaitingMessage,
    WaitMode,
)

if TYPE_CHECKING:
    from .addresses import resolve_store
    from .keyvalue import KeyValueStore
    from .memory import MemoryStore
    from .postgres import PostgresStore
    from .records import iter_records
    from .sqlite import SQLiteStore

_MODULES = {
    "keyvalue": ("KeyValueStore",),
    "memory": ("MemoryStore",),
    "postgres": ("PostgresStore",),
    "records": ("iter_records",),
    "sqlite": ("SQLiteStore",),
    "addresses": ("resolve_store",),
}

__all__ = [
    "FINISHED_STATUSES",
    "RUN_STATUSES",
    "SUMMARY_NOTE",
    "THREAD_NOTE",
    "AppendOptions",
    "CancelRequest",
    "CancelWhen",
    "CreateOptions",
    "FullStore",
    "InboxState",
    "KeyValueStore",
    "Lease",
    "MemoryStore",
    "PostgresStore",
    "RecordPage",
    "RunFilters",
    "RunFlags",
    "RunNote",
    "RunRecord",
    "RunStatus",
    "SQLiteStore",
    "Store",
    "SupportsChannel",
    "SupportsInbox",
    "SupportsNotes",
    "SupportsRetention",
    "WaitMode",
    "WaitingMessage",
    "iter_records",
    "resolve_store",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
