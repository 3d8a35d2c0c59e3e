"""Resolution of store addresses such as `runs.db` or `postgresql://user@host/database`."""

import os
import re
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from .._checks import check_positive
from .._wording import type_of
from ..errors import SetupError, quote_names
from .parts import with_all_parts
from .store import FullStore, Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SUGGESTIONS = {"memory": "memory:", "sqlite": "sqlite:///runs.db", "postgres": "postgresql://host/database"}
EXAMPLES = "a path such as runs.db, sqlite:///runs.db, postgresql://user@host/database or memory:"


def resolve_store(where: "str | os.PathLike[str] | Store", *, lease_seconds: float | None = None) -> FullStore:
    """Return the store at an address.

    Args:
        where: A path, a URL such as `sqlite:///runs.db`, `postgresql://user@host/database` or `memory:`, or a store,
            which is returned unchanged if it has an inbox, notes and retention. One that lacks some is returned in a
            wrapper, in which they are empty and refuse to keep anything.
        lease_seconds: How long a run stays reserved for a worker that died; 30 by default.

    Raises:
        SetupError: It is neither a valid address nor a store.
    """
    check_positive("resolve_store(lease_seconds=…)", lease_seconds)
    store: Any = _resolve(where)
    if lease_seconds is not None and store is not where:
        store.lease_seconds = lease_seconds
    return store


def _resolve(where: "str | os.PathLike[str] | Store") -> FullStore:
    if isinstance(where, os.PathLike):
        return _sqlite(os.fspath(where), {})
    if not isinstance(where, str):
        return _check_store(where)
    if where.lower() in _SUGGESTIONS:
        raise SetupError(f"store is {where!r}; did you mean {_SUGGESTIONS[where.lower()]!r}? Use {EXAMPLES}")
    scheme = _SCHEME.match(where)
    if scheme is None:
        return _sqlite(where, {})
    match scheme[1].lower():
        case "memory":
            return _memory(where)
        case "sqlite":
            return _sqlite_url(where)
        case "postgres" | "postgresql":
            return _postgres(where)
        case other:
            raise SetupError(f"there is no store for {other}: addresses; use {EXAMPLES}")


def _check_store(store: Any) -> FullStore:
    if isinstance(store, Store):
        return with_all_parts(store)
    if callable(getattr(store, "get", None)) and callable(getattr(store, "set", None)):
        raise SetupError(f"{type_of(store)} has get and set; wrap it: KeyValueStore(…)")
    raise SetupError(f"{type_of(store)} is not a store; use {EXAMPLES}, or an object with the methods of Store")


def _memory(url: str) -> FullStore:
    from .memory import MemoryStore

    if url.partition(":")[2].strip("/"):
        raise SetupError(f"store is {url!r}; the address of a memory store is just `memory:`")
    return MemoryStore()


def _sqlite_url(url: str) -> FullStore:
    split = urlsplit(url)
    if split.netloc or not split.path.startswith("/"):
        raise SetupError(
            f"store is {url!r}; write sqlite:///runs.db for a file in this folder, sqlite:////srv/runs.db from the root"
        )
    options = dict(parse_qsl(split.query, keep_blank_values=True))
    return _sqlite(unquote(split.path[1:]), options)


def _sqlite(path: str, options: dict[str, str]) -> FullStore:
    from .sqlite import SQLiteStore

    if not path or path.endswith(("/", os.sep)):
        raise SetupError(f"store is {path!r}, which is not a file name; use {EXAMPLES}")
    durability = options.pop("durability", "process")
    seconds = options.pop("timeout", "10")
    if options:
        raise SetupError(f"sqlite: addresses take `durability` and `timeout`, not {quote_names([*options])}")
    try:
        timeout = float(seconds)
    except ValueError:
        raise SetupError(f"timeout is {seconds!r}; it must be a number of seconds") from None
    # SQLiteStore validates `durability`.
    return SQLiteStore(path, durability=cast("Any", durability), timeout=timeout)


def _postgres(url: str) -> FullStore:
    from .postgres import PostgresStore

    return PostgresStore(url)
