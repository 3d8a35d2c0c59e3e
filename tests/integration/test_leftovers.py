"""Servers that tests start end with the tests, also if these are killed; nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.leftovers import clean_up
from tests.waiting import until

POSTGRES = """
from tests.postgres import PostgresServer
server = PostgresServer()
server.start()
folder, pid = server.folder, server.pid
"""
TEMPORAL = """
from pathlib import Path
from tests import leftovers
from tests.temporal_server import TemporalServer
folder = Path("temporal").absolute()
folder.mkdir()
leftovers.remove_with_us(folder)
server = TemporalServer(folder)
server.start()
pid = server.pid
"""
CHILD_OF_A_CHILD = """
import subprocess, sys
from pathlib import Path
from tests import leftovers
folder = Path("files").absolute()
folder.mkdir()
leftovers.remove_with_us(folder)
inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(10_000)"
outer = (
    "import os, subprocess, sys\\n"
    f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE)\\n"
    "child.stdout.readline(); print(child.pid, flush=True); os._exit(0)"
)
pid = int(subprocess.run([sys.executable, "-c", outer], stdout=subprocess.PIPE).stdout)
"""
WAIT = """
from tests.leftovers import watchdog_pid
print(pid, watchdog_pid(), folder, flush=True)
__import__("time").sleep(10_000)
"""


class Program:
    """A program that has started a server, as tests do."""

    def __init__(self, start: str, folder: Path) -> None:
        locks = folder / "locks"
        environment = {**os.environ, "BATON_TESTS_LOCKS": str(locks), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", start + WAIT], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        with self.process.stdout:
            pid, watchdog, path = self.process.stdout.readline().split()
        self.server, self.watchdog, self.folder, self.locks = int(pid), int(watchdog), Path(path), locks

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("start", [POSTGRES, TEMPORAL, CHILD_OF_A_CHILD], ids=["postgres", "temporal", "child"])
async def test_a_server_ends_with_the_process_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, how: signal.Signals
) -> None:
    program = Program(start, tmp_path)
    assert is_running(program.server)
    assert program.folder.exists()
    program.end(how)
    await until(lambda: not is_running(program.server))
    await until(lambda: not program.folder.exists())
    await until(lambda: not is_running(program.watchdog))
    monkeypatch.setenv("BATON_TESTS_LOCKS", str(program.locks))
    said = clean_up()
    assert any(line.startswith(f"ended process {program.server}: ") for line in said)
    assert f"removed {program.folder}" in said
    assert clean_up() == []
    assert [*program.locks.iterdir()] == []


async def test_the_next_start_cleans_up_if_the_watchdog_was_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(CHILD_OF_A_CHILD, tmp_path)
    monkeypatch.setenv("BATON_TESTS_LOCKS", str(program.locks))
    assert clean_up() == []
    assert is_running(program.server), "the program still runs, so nothing is left over"
    os.kill(program.watchdog, signal.SIGKILL)
    await until(lambda: not is_running(program.watchdog))
    program.end(signal.SIGKILL)
    said = clean_up()
    assert any(line.startswith(f"ended process {program.server}: ") for line in said)
    assert f"removed {program.folder}" in said
    assert not is_running(program.server)
    assert not program.folder.exists()
    assert clean_up() == []
