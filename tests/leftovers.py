"""End the processes and remove the folders of tests that were killed, however they were killed.

`guard()` marks the environment of this process, which every process that it starts inherits, also through others. It
locks a file, and starts a watchdog that waits for the lock: the system releases it when this process ends. The watchdog
then ends the marked processes that are left. If the watchdog was killed as well, the next `clean_up()` does it.

Processes are found in /proc; on systems without it, only folders are removed.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

_MARK = "BATON_TESTS_OF"
"""The environment variable with the name of the lock file of the process that started the tests."""
_FOLDER = "BATON_TESTS_LOCKS"
"""The environment variable with the folder of the lock files, for tests of this module."""
_GRACE = 5.0
"""The seconds in which a process may end itself before it is killed."""
_REPORT = "report"

_lock: IO[str] | None = None
_watchdog: "subprocess.Popen[bytes] | None" = None


def guard() -> None:
    """Let all processes that this one starts from now on end with it."""
    global _lock, _watchdog
    if _lock is not None:
        return
    path = _lock_folder() / f"{uuid4().hex}.lock"
    _lock = path.open("x", encoding="utf-8")
    fcntl.flock(_lock, fcntl.LOCK_EX)
    # The watchdog is not marked, and in a session of its own: what ends the tests must not end it.
    environment = {name: value for name, value in os.environ.items() if name != _MARK}
    command = [sys.executable, "-I", "-S", __file__, path]
    _watchdog = subprocess.Popen(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    os.environ[_MARK] = path.name


def remove_with_us(folder: Path) -> None:
    """Remove a folder when this process ends, unless it is gone by then.

    Args:
        folder: The folder.
    """
    guard()
    assert _lock is not None
    _lock.write(f"{folder.absolute()}\n")
    _lock.flush()


def watchdog_pid() -> int:
    """Return the id of the watchdog's process."""
    assert _watchdog is not None
    return _watchdog.pid


def clean_up() -> list[str]:
    """Clean up after tests that were killed together with their watchdog.

    Returns:
        Everything that was cleaned up since the last call, also by watchdogs, one line each.
    """
    folder = _lock_folder()
    for path in folder.glob("*.lock"):
        _clean_up_after(path, wait=False)
    taken = folder / f"{_REPORT}-{uuid4().hex}"
    try:
        (folder / _REPORT).rename(taken)
    except FileNotFoundError:
        return []
    lines = taken.read_text(encoding="utf-8").splitlines()
    taken.unlink()
    return lines


def _lock_folder() -> Path:
    folder = Path(os.environ.get(_FOLDER) or Path(tempfile.gettempdir()) / f"baton-tests-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to another user; remove it, because it says which processes to end")
    return folder


def _clean_up_after(path: Path, *, wait: bool) -> None:
    """Clean up if the process that locked a file has ended; wait for its end if asked to."""
    try:
        lock = path.open(encoding="utf-8")
    except FileNotFoundError:
        return  # Another process was faster.
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if not path.exists():
            return
        lines = _end_processes(path.name) + _remove_folders(lock.read().splitlines())
        if lines:
            with (path.parent / _REPORT).open("a", encoding="utf-8") as report:
                report.writelines([f"{line}\n" for line in lines])
        path.unlink()


def _end_processes(mark: str) -> list[str]:
    found: dict[int, str] = {}
    for end in (signal.SIGTERM, signal.SIGKILL):
        for pid, command in (running := _marked_processes(mark)).items():
            found.setdefault(pid, command)
            with suppress(ProcessLookupError):
                os.kill(pid, end)
        if not running or _wait_until(lambda: not _marked_processes(mark)):
            break
    return [f"ended process {pid}: {command}" for pid, command in found.items()]


def _remove_folders(folders: list[str]) -> list[str]:
    left = [folder for folder in folders if Path(folder).exists()]
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return [f"removed {folder}" for folder in left]


def _marked_processes(mark: str) -> Mapping[int, str]:
    """Return the commands of running processes with this mark, by process id."""
    wanted = f"{_MARK}={mark}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The environment of a process that has ended, but was not waited for, is empty.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode(errors="replace")[:120]
        except OSError:
            continue  # It has ended, or belongs to another user.
    return found


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _GRACE
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_met


if __name__ == "__main__":
    _clean_up_after(Path(sys.argv[1]), wait=True)
