"""The command `baton store`: the layout of a store's file or tables."""

import click

from ..errors import SetupError
from ..stores import PostgresStore, SQLiteStore, Store
from . import options
from .output import write
from .targets import store_option, with_store


@click.group("store")
def store_command() -> None:
    """Show and migrate the layout of a store.

    \b
    Examples:
      baton store migrate --store runs.db --dry-run
      baton store migrate --store postgresql://user@host/database
    """


@store_command.command()
@store_option
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@options.debug
def migrate(store: str, dry_run: bool) -> None:
    """Bring the file or the tables to the layout of this version.

    A store does this by itself when it is opened. Do it beforehand if the tables are large, or if the workers' user may
    not change them. Workers of an older version cannot use the new layout.
    """

    async def run(opened: Store) -> tuple[int, int]:
        if not isinstance(opened, PostgresStore | SQLiteStore):
            raise SetupError(f"{opened!r} has no layout to migrate")
        version, newest = await opened.layout()
        if not dry_run and version != newest:
            await opened.list(limit=1)
        return version, newest

    version, newest = with_store(store, run)
    if version == newest:
        write(f"the layout is version {version}, which is the newest")
    elif dry_run:
        write(f"the layout {_describe(version)} would be migrated to version {newest}")
    else:
        write(f"the layout {_describe(version)} was migrated to version {newest}")


def _describe(version: int) -> str:
    return f"of version {version}" if version else "of an empty store"
