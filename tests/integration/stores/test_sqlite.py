"""Failures of an SQLite store: typed errors, no partial writes, and recovery afterwards."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.stores.test_sqlite import LINE, _fill

from batonkit.stores import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


_LIMITED = """
    import asyncio, resource, sys
    from batonkit.errors import StoreError
    from batonkit.stores import SQLiteStore

    async def main() -> None:
        store = SQLiteStore(sys.argv[1])
        await store.create("r", [b"first"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        written = 1
        try:
            while written < 10_000:
                await store.append("r", written, [b"x" * 1000])
                written += 1
        except StoreError as error:
            print(error)
        assert written < 10_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert len(await store.load("r")) == written, "earlier writes are kept"
        await store.append("r", written, [b"last"])
        await store.close()
        print(written + 1)

    asyncio.run(main())
"""


async def test_a_file_at_its_size_limit_rejects_writes_until_it_may_grow(path: Path) -> None:
    output = _run_in_process(_LIMITED, str(path))
    assert "StoreError" not in output
    assert f"SQLiteStore('{path}'): " in output
    store = SQLiteStore(path)
    assert len(await store.load("r")) == int(output.split()[-1])
    await store.close()


_READ_ONLY = """
    import asyncio, os, sys
    from batonkit.errors import StoreError
    from batonkit.stores import SQLiteStore

    async def main() -> None:
        store = SQLiteStore(sys.argv[1])
        for attempt in (store.append("run0", 30, [b"more"]), store.create("new", [])):
            try:
                await attempt
                print("written")
            except StoreError as error:
                print(error)

    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    asyncio.run(main())
"""


async def test_a_read_only_file_raises_a_store_error_on_writes(tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    await _fill(folder / "runs.db")
    # The user who reads the file also needs access to its folders.
    for part in (tmp_path, *tmp_path.parents[:3]):
        if part.stat().st_uid == os.getuid() and part != Path(part.anchor):
            part.chmod(part.stat().st_mode | 0o055)
    (folder / "runs.db").chmod(0o444)
    folder.chmod(0o555)
    try:
        output = _run_in_process(_READ_ONLY, str(folder / "runs.db"))
    finally:
        folder.chmod(0o755)
        (folder / "runs.db").chmod(0o644)
    assert output.count("it is not writable") + output.count("it cannot be opened") == 2, output
    store = SQLiteStore(folder / "runs.db")
    await store.append("run0", 30, [LINE])
    await store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_forked_process_reopens_the_file(path: Path) -> None:
    program = """
        import asyncio, os, sys
        from batonkit.stores import SQLiteStore

        store = SQLiteStore(sys.argv[1])
        asyncio.run(store.create("r", [b"parent"]))
        if (child := os.fork()) == 0:
            asyncio.run(store.append("r", 1, [b"child"]))
            asyncio.run(store.close())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(store.append("r", 2, [b"parent"]))
        print(asyncio.run(store.load("r")))
    """
    assert _run_in_process(program, str(path)) == "[b'parent', b'child', b'parent']"


def _run_in_process(program: str, argument: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), argument]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()
