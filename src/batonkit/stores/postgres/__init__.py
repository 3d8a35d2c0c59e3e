"""A store in a PostgreSQL database. `schema.sql` has its tables and `queries.sql` its statements.

psycopg is imported when the first store is created.
"""

from .store import PostgresStore

__all__ = ["PostgresStore"]
