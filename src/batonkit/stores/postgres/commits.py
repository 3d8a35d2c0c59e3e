"""Group commits of a PostgreSQL store: statements that wait at the same time share one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from types import CoroutineType
from typing import Any, LiteralString

from ...errors import StoreError
from ..records import copy_of
from .pool import PostgresPool, Row, Values

_MAX_GROUP = 500
"""The number of statements in one transaction."""
_PATIENCE = 0.25
"""Seconds for which a statement that waits for a lock may hold up other runs and the renewal of leases."""


class _Job:
    """A statement that waits for the next transaction."""

    __slots__ = ("commit", "done", "since", "statement", "values")

    def __init__(self, statement: LiteralString, values: Values, loop: asyncio.AbstractEventLoop) -> None:
        self.statement: LiteralString = statement
        self.values = values
        self.since = monotonic()
        self.done: asyncio.Future[list[Row] | None] = loop.create_future()
        self.commit: asyncio.Task[None] | None = None
        """Executes the statement; None as long as it waits."""


class _RepeatError(Exception):
    """The transaction of a group was rolled back; each statement is to be repeated alone."""


class _Queue:
    """The statements of one event loop."""

    def __init__(self, pool: PostgresPool, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        """Commits what waits, group by group."""
        self._pool = pool
        self._patience = min(_PATIENCE, pool.timeout / 10)
        self._waiting: list[_Job] = []
        self._is_alone = False
        self._alone_ended = asyncio.Event()

    async def change(self, statement: LiteralString, values: Values) -> list[Row] | None:
        if self.task is None and not self._is_alone:
            return await self._change_alone(statement, values)
        job = _Job(statement, values, self.loop)
        self._waiting.append(job)
        if self.task is None:
            self.task = self.loop.create_task(self._commit_waiting(), name="baton commits")
        try:
            return await job.done
        except _RepeatError:
            return await self._pool.change(statement, values, since=job.since)
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
            # The caller must know whether the statement was executed. Its transaction has a time limit.
            while job.commit is not None and not job.commit.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([job.commit])
            raise

    async def _change_alone(self, statement: LiteralString, values: Values) -> list[Row] | None:
        self._is_alone = True
        try:
            return await self._pool.change(statement, values)
        finally:
            self._is_alone = False
            self._alone_ended.set()

    async def _commit_waiting(self) -> None:
        try:
            if self._is_alone:
                self._alone_ended.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience):
                        await self._alone_ended.wait()
                # If it still waits for a lock, nothing waits for it any more.
                self._is_alone = False
            while self._waiting:
                jobs = self._waiting[:_MAX_GROUP]
                self._waiting = self._waiting[_MAX_GROUP:]
                commit = self.loop.create_task(self._commit(jobs))
                for job in jobs:
                    job.commit = commit
                # Not for long: a statement that waits for a lock must not hold up the next group.
                await asyncio.wait([commit], timeout=self._patience)
        finally:
            self.task = None
            for job in self._waiting:
                job.done.cancel()

    async def _commit(self, jobs: Sequence[_Job]) -> None:
        """Execute statements in one transaction, and set the outcome of each."""
        try:
            if len(jobs) == 1:
                outcomes = [await self._pool.change(jobs[0].statement, jobs[0].values, since=jobs[0].since)]
            else:
                outcomes = await self._commit_group(jobs)
        except StoreError as failure:
            _fail(jobs, partial(copy_of, failure))
        except _RepeatError:
            _fail(jobs, _RepeatError)
        except BaseException:
            # The event loop ends, and the waiters are cancelled too.
            for job in jobs:
                job.done.cancel()
            raise
        else:
            for job, rows in zip(jobs, outcomes, strict=True):
                if not job.done.done():
                    job.done.set_result(rows)

    async def _commit_group(self, jobs: Sequence[_Job]) -> Sequence[list[Row]]:
        groups: dict[LiteralString, list[_Job]] = {}
        for job in jobs:
            groups.setdefault(job.statement, []).append(job)
        statements: list[tuple[LiteralString, Sequence[Values]]] = [
            (statement, [job.values for job in group]) for statement, group in groups.items()
        ]
        since = min(job.since for job in jobs)
        results = await self._pool.pipeline(statements, lock_seconds=self._patience, since=since)
        if results is None:
            raise _RepeatError
        remaining = {statement: iter(rows) for statement, rows in zip(groups, results, strict=True)}
        return [next(remaining[job.statement]) for job in jobs]


def _fail(jobs: Sequence[_Job], new_error: Callable[[], Exception]) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(new_error())


class PipelineCommitter:
    """Executes statements that wait at the same time in one pipeline and transaction.

    A statement is executed alone and at once if no other one is in progress. While a transaction is in progress,
    further statements wait for the next one.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._queue: _Queue | None = None

    # Not `async def`: every turn of a stored run calls it, and a further coroutine costs time.
    def change(self, statement: LiteralString, values: Values) -> "CoroutineType[Any, Any, list[Row] | None]":
        """Execute a statement; see `PostgresPool.change`."""
        loop = asyncio.get_running_loop()
        queue = self._queue
        if queue is None or queue.loop is not loop:
            # Another thread's loop keeps its own queue.
            queue = self._queue = _Queue(self._pool, loop)
        return queue.change(statement, values)

    async def drain(self) -> None:
        """Wait until nothing waits in this event loop."""
        queue = self._queue
        if queue is not None and queue.loop is asyncio.get_running_loop() and queue.task is not None:
            await asyncio.wait([queue.task])
