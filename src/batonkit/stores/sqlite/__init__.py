"""A store in one SQLite file. `schema.sql` has its tables and `queries.sql` its statements."""

from .store import SQLiteStore

__all__ = ["SQLiteStore"]
