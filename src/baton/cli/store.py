"""The store that the command line names, and the runs in it."""

from ..errors import SetupError
from ..stores import RunRecord, SQLiteStore, Store, resolve_store
from .failures import TargetError


def store_at(where: str, *, existing: bool = True) -> Store:
    """The store that the command line names. Raises TargetError if there is none, rather than make an empty one."""
    try:
        store = resolve_store(where)
    except SetupError as error:
        raise TargetError(str(error)) from error
    if where.lower().startswith("memory:"):
        raise TargetError("`memory:` is gone when the program ends; name a file such as runs.db, or postgresql://…")
    if existing and isinstance(store, SQLiteStore) and not store.path.is_file():
        raise TargetError(f"there is no file `{where}`; `baton run … --store {where}` would make it")
    return store


async def record_of(store: Store, run_id: str) -> RunRecord:
    """What is known about a run. Raises TargetError if there is none of that name."""
    record = await store.record(run_id)
    if record is None:
        raise TargetError(f"there is no run `{run_id}` in {store!r}; `baton runs ls` lists those that are there")
    return record
