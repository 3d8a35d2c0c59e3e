"""Commits that wait for the disk, in a thread of their own, shared by everybody who waits at the same time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from sqlite3 import Connection, Error
from threading import Lock
from typing import Any, TypeVar

from ..errors import BatonError
from .sqlite_file import SQLiteConnection, Work

T = TypeVar("T")
Job = tuple[Work[Any], Future[Any]]


class GroupCommitter:
    """Writes to a file for several tasks with one commit: whoever comes while the disk is busy shares the next."""

    def __init__(self, file: SQLiteConnection) -> None:
        self._file = file
        self._waiting: list[Job] = []
        self._is_writing = False
        self._lock = Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, work: Work[T]) -> T:
        """Do some work as a part of the next transaction.

        A task that is cancelled while its work is being written learns of it when that is decided, and not before.
        """
        job: Future[T] = Future()
        self._add((work, job))
        answer = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait([answer])
                _ = answer.exception()
            raise

    def close(self) -> None:
        """Write what is waiting, end the thread and close the file."""
        thread, self._thread = self._thread, None
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
                group, self._waiting = self._waiting, []
                if not group:
                    self._is_writing = False
                    return
            group = [(work, job) for work, job in group if job.set_running_or_notify_cancel()]
            if len(group) < 2 or not self._written_together(group):
                for work, job in group:
                    _settle(job, lambda work=work: self._file.write(work))

    def _written_together(self, group: list[Job]) -> bool:
        """Whether one transaction has held them all. If not, nothing is written, and each can be tried alone."""
        outcomes: list[tuple[Any, BatonError | None]] = []

        def everything(connection: Connection) -> None:
            for work, _ in group:
                connection.execute("SAVEPOINT one")
                try:
                    outcomes.append((work(connection), None))
                except BatonError as refusal:
                    connection.execute("ROLLBACK TO one")
                    outcomes.append((None, refusal))
                connection.execute("RELEASE one")

        try:
            self._file.write(everything)
        except (BatonError, Error):
            return False
        for (_, job), (result, refusal) in zip(group, outcomes, strict=True):
            job.set_result(result) if refusal is None else job.set_exception(refusal)
        return True


def _settle(job: Future[Any], work: Callable[[], Any]) -> None:
    try:
        job.set_result(work())
    except BaseException as failure:  # noqa: BLE001 - whoever waits for the job gets it.
        job.set_exception(failure)
