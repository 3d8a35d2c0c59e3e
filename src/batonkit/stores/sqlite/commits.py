"""Group commits of an SQLite store: writes of several runs that wait at the same time share one transaction."""

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from ...errors import BatonError
from .file import SQLiteConnection, Work

T = TypeVar("T")
Outcome = tuple[Any, BatonError | None]
"""The result of a write, or the error with which the store refuses it."""


def write_group(file: SQLiteConnection, works: Sequence[Work[Any]]) -> list[Outcome] | None:
    """Run writes in one transaction, each in a savepoint of its own.

    One that is refused does not affect the others.

    Returns:
        The outcomes in order; None, with nothing written, if the transaction failed.
    """
    outcomes: list[Outcome] = []

    def run_all(connection: sqlite3.Connection) -> None:
        for work in works:
            connection.execute("SAVEPOINT one")
            try:
                outcomes.append((work(connection), None))
            except BatonError as refusal:
                connection.execute("ROLLBACK TO one")
                outcomes.append((None, refusal))
            connection.execute("RELEASE one")

    try:
        file.write(run_all)
    except Exception:  # noqa: BLE001 - each write is repeated alone, where it raises its own error.
        return None
    return outcomes


class _Iteration:
    """The writes that wait for the end of the current iteration of an event loop."""

    def __init__(self, file: SQLiteConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._file = file
        self._run_id = ""
        self._waiting: list[tuple[Work[Any], asyncio.Future[Any]]] = []
        self._is_open = False
        self._has_several = False

    def join(self, run_id: str, work: Work[T]) -> "asyncio.Future[T | None] | None":
        """Add a write, or return None if it is the first run that writes in this iteration."""
        if self._run_id == run_id and not self._has_several:
            return None
        self._run_id = run_id
        if not self._is_open:
            self._is_open = True
            self.loop.call_soon(self.commit)
            if not self._has_several:
                return None
        done: asyncio.Future[T | None] = self.loop.create_future()
        self._waiting.append((work, done))
        return done

    def commit(self) -> None:
        """Commit what waits, and resume the writers."""
        jobs = [job for job in self._waiting if not job[1].done()]
        self._waiting = []
        self._is_open = False
        self._has_several = len(jobs) > 1
        outcomes: Sequence[Outcome] | None = None
        try:
            if len(jobs) > 1:
                outcomes = write_group(self._file, [work for work, _ in jobs])
        finally:
            for (_, done), (result, refusal) in zip(jobs, outcomes or [(None, None)] * len(jobs), strict=True):
                done.set_result(result) if refusal is None else done.set_exception(refusal)


class LoopCommitter:
    """Combines the writes of several runs in one iteration of the event loop.

    The first run that writes in an iteration commits at once, so that a run alone never waits for others.
    """

    def __init__(self, file: SQLiteConnection) -> None:
        self._file = file
        self._iteration: _Iteration | None = None

    def join(self, run_id: str, work: Work[T]) -> "asyncio.Future[T | None] | None":
        """Add a write to the transaction of this iteration.

        Returns:
            A future with the result, or with None if the transaction failed and the caller must repeat the write
            alone. Without a future, no other run has written in this iteration, and the caller writes at once.
        """
        loop = asyncio.get_running_loop()
        iteration = self._iteration
        if iteration is None or iteration.loop is not loop:
            # Another thread's loop keeps its own iteration and commits it.
            iteration = self._iteration = _Iteration(self._file, loop)
        return iteration.join(run_id, work)

    def commit(self) -> None:
        """Commit what waits in this event loop."""
        if self._iteration is not None and self._iteration.loop is asyncio.get_running_loop():
            self._iteration.commit()


Job = tuple[Work[Any], Future[Any]]


class ThreadCommitter:
    """Combines concurrent writes into one commit, which waits for the disk in a thread."""

    def __init__(self, file: SQLiteConnection) -> None:
        self._file = file
        self._waiting: list[Job] = []
        self._is_writing = False
        self._lock = Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, work: Work[T]) -> T:
        """Run `work` as a part of the next transaction.

        A task that is cancelled during the commit continues when the commit has succeeded or failed.
        """
        job: Future[T] = Future()
        self._add((work, job))
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait([done])
                _ = done.exception()
            raise

    def close(self) -> None:
        """Write what is queued, end the thread and close the file."""
        thread = self._thread
        self._thread = None
        if thread is not None:
            thread.shutdown()
        self._file.close()

    def _add(self, job: Job) -> None:
        with self._lock:
            self._waiting.append(job)
            if not self._is_writing:
                self._is_writing = True
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="baton-sqlite")
                self._thread.submit(self._write_all)

    def _write_all(self) -> None:
        while True:
            with self._lock:
                group = self._waiting
                self._waiting = []
                if not group:
                    self._is_writing = False
                    return
            group = [(work, job) for work, job in group if job.set_running_or_notify_cancel()]
            outcomes = write_group(self._file, [work for work, _ in group]) if len(group) > 1 else None
            if outcomes is None:
                self._write_each(group)
                continue
            for (_, job), (result, refusal) in zip(group, outcomes, strict=True):
                job.set_result(result) if refusal is None else job.set_exception(refusal)

    def _write_each(self, group: list[Job]) -> None:
        for work, job in group:
            try:
                job.set_result(self._file.write(work))
            except BaseException as failure:  # noqa: BLE001 - the waiter gets it.
                job.set_exception(failure)
