"""Workers, which drive stored runs without a caller, and the engines that tell them which runs to drive.

May import `runs` and the layers below it. The engines for PostgreSQL and Temporal are loaded on first use.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from .engine import Engine, Outcome, RunDriver
from .limits import Concurrency
from .local_engine import LocalEngine
from .worker import Worker, WorkerCounts

if TYPE_CHECKING:
    from .postgres_engine import PostgresEngine
    from .temporal_engine import TemporalEngine

_MODULES = {"postgres_engine": ("PostgresEngine",), "temporal_engine": ("TemporalEngine",)}

__all__ = [
    "Concurrency",
    "Engine",
    "LocalEngine",
    "Outcome",
    "PostgresEngine",
    "RunDriver",
    "TemporalEngine",
    "Worker",
    "WorkerCounts",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
