"""Helpers of the suites for stores, and the suites themselves, which other modules fill."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from ...stores import RunRecord, Store, SupportsChannel, SupportsInbox, SupportsNotes, SupportsRetention

E = TypeVar("E", bound=BaseException)
S = TypeVar("S", bound=Store)


def expect(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with this message unless the condition holds."""
    if not holds:
        raise AssertionError(otherwise)


def expect_same(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError unless both are equal."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_shown(expected)}, found {_shown(actual)}")


async def expect_error(attempt: Awaitable[object], kind: type[E], what: str) -> E:
    """Return the error of this kind that an attempt raises; otherwise raise AssertionError."""
    try:
        result = await attempt
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, but got {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, but the call succeeded: {_shown(result)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


Open: TypeAlias = Callable[[], Store]
"""Opens a store, each time at the same location."""

StoreCheck: TypeAlias = Callable[[Open], Awaitable[None]]
"""A check: raises AssertionError if the store breaks the contract."""


def check_name(check: Callable[..., object]) -> str:
    """Return the name of a check, for pytest's `ids=`."""
    return getattr(check, "__name__", repr(check))


class StoreWithInbox(Store, SupportsInbox, Protocol):
    """A store that keeps messages."""


class StoreWithNotes(Store, SupportsNotes, Protocol):
    """A store that keeps notes."""


class StoreWithRetention(Store, SupportsRetention, Protocol):
    """A store that deletes many runs at once."""


class StoreWithChannel(Store, SupportsChannel, Protocol):
    """A store that sends messages between processes."""


@runtime_checkable
class SupportsRunLocks(Protocol):
    """A store whose runs a test can lock from outside, in a subclass with this method.

    Checks that need it pass a store without it.
    """

    def lock_run(self, run_id: str) -> AbstractAsyncContextManager[None]:
        """Lock a run while a block runs, as a transaction of another process does that changes it.

        Args:
            run_id: The run.
        """
        ...


@asynccontextmanager
async def opened(open: Callable[[], S]) -> AsyncGenerator[S]:
    """Open a store and close it at the end."""
    store = open()
    try:
        yield store
    finally:
        await store.close()


class CheckSuite(Generic[S]):
    """The checks of one protocol, in the order of their definition; a decorator that adds one."""

    def __init__(self) -> None:
        self.checks: list[StoreCheck] = []

    def __call__(self, body: Callable[[S], Awaitable[None]]) -> StoreCheck:
        """Add a check that needs one open store."""

        @wraps(body)
        async def check(open: Callable[[], S]) -> None:
            async with opened(open) as store:
                await body(store)

        return self.opening(check)

    def opening(self, check: Callable[[Callable[[], S]], Awaitable[None]]) -> StoreCheck:
        """Add a check that opens stores itself."""
        added = cast("StoreCheck", check)
        self.checks.append(added)
        return added


store_check = CheckSuite[Store]()
inbox_check = CheckSuite[StoreWithInbox]()
notes_check = CheckSuite[StoreWithNotes]()
retention_check = CheckSuite[StoreWithRetention]()
channel_check = CheckSuite[StoreWithChannel]()


async def record_of(store: Store, run_id: str) -> RunRecord:
    """Return the record of a run that must exist."""
    record = await store.record(run_id)
    if record is None:
        raise AssertionError(f"record({run_id!r}) is None, though the run was created")
    return record


async def expect_log(store: Store, run_id: str, lines: Sequence[bytes]) -> None:
    """Check the lines of a run and their number in its record."""
    expect_same(list(await store.load(run_id)), list(lines), f"the log of {run_id!r}")
    expect_same((await record_of(store, run_id)).seq, len(lines), f"`seq` of the record of {run_id!r}")
