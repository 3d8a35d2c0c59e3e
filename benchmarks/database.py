"""The PostgreSQL database of a benchmark: one that the caller names, or a server that is started and removed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import click

postgres_option = click.option(
    "--postgres", default="", help="The url of a database, or `embedded` for a server of its own."
)


@contextmanager
def open_database(postgres: str) -> Generator[Callable[[], str] | None]:
    """Yield a function that returns the url of a database, empty if the server is embedded; None without one."""
    if not postgres:
        yield None
        return
    if postgres != "embedded":
        yield lambda: postgres
        return
    # Imported here because it needs the packages of the tests.
    from tests.postgres import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        yield server.empty_place
    finally:
        server.remove()
