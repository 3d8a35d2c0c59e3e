"""The commands `baton queue`: show, pause and resume the queue of the workers on a PostgreSQL store."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ..stores import Store
from . import cli_options as options
from .output import write
from .targets import store_option, with_store

if TYPE_CHECKING:
    from ..worker import PostgresEngine

T = TypeVar("T")


def _with_engine(location: str, work: "Callable[[PostgresEngine], Awaitable[T]]") -> T:
    async def run(store: Store) -> T:
        from ..worker import PostgresEngine

        return await work(PostgresEngine(store))

    return with_store(location, run)


@click.group("queue")
def queue_command() -> None:
    """Show, pause and resume the queue of the workers on a PostgreSQL store.

    \b
    Examples:
      baton queue pause --store postgresql://user@host/database
      baton queue show --store postgresql://user@host/database
      baton queue resume --store postgresql://user@host/database
    """


@queue_command.command()
@store_option
@options.debug
def show(store: str) -> None:
    """Show whether the queue is paused, and how many jobs it has."""

    async def read(engine: "PostgresEngine") -> str:
        jobs = ", ".join(f"{count} {status}" for status, count in (await engine.count_jobs()).items())
        return f"{'paused' if await engine.is_paused() else 'running'}, jobs: {jobs or 'none'}"

    write(_with_engine(store, read))


@queue_command.command()
@store_option
@options.debug
def pause(store: str) -> None:
    """Let no worker with the engine `postgres` take runs until `baton queue resume`.

    Runs in progress continue.
    """

    async def change(engine: "PostgresEngine") -> None:
        await engine.pause()

    _with_engine(store, change)
    write("the queue is paused; workers with the engine `postgres` notice within seconds", err=True)


@queue_command.command()
@store_option
@options.debug
def resume(store: str) -> None:
    """Let workers take runs again."""

    async def change(engine: "PostgresEngine") -> None:
        await engine.resume()

    _with_engine(store, change)
    write("the queue is running; workers notice within seconds", err=True)
