"""The names of the engines, and their resolution; apart from the protocol, which the engines import."""

from importlib.util import find_spec

from .._checks import check_choice
from .._wording import type_of
from ..errors import SetupError, quote_names
from ..stores import Store
from ..stores.parts import innermost_store
from .engine import Engine

ENGINES = ("local", "postgres", "temporal")
"""The names of the engines."""


def resolve_engine(engine: object, store: Store, *, address: str | None = None) -> Engine:
    """Return an engine for the workers of a store.

    Raises:
        SetupError: There is no such engine, it cannot work with the store, or its extra is missing.
    """
    if isinstance(engine, Engine):
        return engine
    if engine is not None and not isinstance(engine, str):
        raise SetupError(f"Worker(engine=…) is {type_of(engine)}; give an engine, or one of: {quote_names([*ENGINES])}")
    if engine is None:
        is_postgres = type(innermost_store(store)).__name__ == "PostgresStore"
        engine = "postgres" if is_postgres and find_spec("procrastinate") is not None else "local"
    check_choice("Worker(engine=…)", engine, ENGINES)
    if address is not None and engine != "temporal":
        raise SetupError(f"the engine `{engine}` has no address of its own; it uses the store")
    if engine == "local":
        from .local_engine import LocalEngine

        return LocalEngine()
    if engine == "postgres":
        from .postgres_engine import PostgresEngine

        return PostgresEngine(store)
    from .temporal_engine import TemporalEngine

    return TemporalEngine() if address is None else TemporalEngine(address)
