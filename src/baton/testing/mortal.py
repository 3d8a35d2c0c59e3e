"""A store whose writer can be made to die, and the clock by which its lease runs out."""

from collections.abc import Sequence
from time import time
from typing import Any, Literal, TypeAlias

from ..errors import RunConflictError
from ..stores import Lease, MemoryStore, RunStatus

Moment: TypeAlias = Literal["when it was stored", "before the next was stored"]
"""When a process dies at an event: as soon as that is stored, or when it wants to store what it did afterwards."""

_LONG = 1_000_000.0


class ProcessDiedError(RunConflictError):
    """The process that wrote to the store is dead. As with any conflict, whoever drives the run stops."""

    def __init__(self) -> None:
        super().__init__("", "the process is dead")


class CrashingStore(MemoryStore):
    """Keeps the log of one run in memory. Its writer dies where it is told to; the next one finds what was stored.

    A batch may be torn: stores differ in what they store in one piece, and a log must be good up to any event.
    """

    def __init__(self) -> None:
        super().__init__(clock=lambda: time() + self._elapsed)
        self._elapsed = 0.0
        self._last: int | None = None
        self._moment: Moment = "when it was stored"
        self.is_dead = False
        """Whether the present process has died."""
        self.commits: list[int] = []
        """How many events there were after each time something was stored."""

    def let_die(self, event: int, moment: Moment) -> None:
        """Have the present process die at this event; the first one of a run is number 1."""
        self._last, self._moment = event, moment

    def next_process(self) -> None:
        """The dead do not write any more, and their lease runs out."""
        self._last, self.is_dead = None, False
        self._elapsed += _LONG

    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        """Begin a run with its first lines, or with those that the process lives to write."""
        self._check_alive()
        # The first line is not an event: it names the format.
        kept = lines if self._last is None else lines[: self._last + 1]
        lease = await super().create(run_id, kept, **about)
        self._stored(len(kept), is_torn=len(kept) < len(lines))
        return lease

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Add lines, or those that the process lives to write. The status is stored with the last of them, or not."""
        self._check_alive()
        room = len(lines) if self._last is None else self._last + 1 - expected_seq
        if self._last is not None and room <= 0:
            self._die()
        kept = lines[:room]
        is_torn = len(kept) < len(lines)
        await super().append(run_id, expected_seq, kept, status=None if is_torn else status, fence=fence)
        self._stored(expected_seq + len(kept), is_torn=is_torn)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer; the dead cannot."""
        self._check_alive()
        return await super().renew(lease, ttl=ttl)

    async def release(self, lease: Lease) -> None:
        """Give a lease back; the dead do not."""
        if not self.is_dead:
            await super().release(lease)

    def _stored(self, lines: int, *, is_torn: bool) -> None:
        self.commits.append(lines - 1)
        if is_torn or (self._last is not None and self._moment == "when it was stored" and lines > self._last):
            self._die()

    def _check_alive(self) -> None:
        if self.is_dead:
            raise ProcessDiedError

    def _die(self) -> None:
        self.is_dead = True
        raise ProcessDiedError
