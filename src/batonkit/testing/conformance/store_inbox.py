"""Checks of stores: messages that wait for a thread."""

import asyncio
from collections.abc import Callable

from ...errors import InboxFullError, MessageGoneError, RunConflictError, RunExistsError, ThreadBusyError
from ...stores import CancelWhen, RunFlags, WaitingMessage, WaitMode
from .store_checks import (
    StoreWithInbox,
    expect,
    expect_error,
    expect_log,
    expect_same,
    inbox_check,
    opened,
    record_of,
)

LIMIT = 100
ROUNDS = 20


def _message(run_id: str, mode: WaitMode = "queue", thread: str = "t") -> WaitingMessage:
    return WaitingMessage(run_id=run_id, thread=thread, mode=mode, owner="ann", body=run_id.encode() + b"\x00\xff")


async def _enqueue(store: StoreWithInbox, *run_ids: str, mode: WaitMode = "queue", thread: str = "t") -> None:
    for run_id in run_ids:
        await store.enqueue(_message(run_id, mode, thread), limit=LIMIT)


async def _ids(store: StoreWithInbox, thread: str = "t") -> list[str]:
    return [message.run_id for message in await store.inbox(thread)]


@inbox_check.opening
async def messages_wait_in_order(open: Callable[[], StoreWithInbox]) -> None:
    """Messages are kept in the order in which they came, and another store reads them."""
    async with opened(open) as store:
        await store.create("r", [b"one"], thread="t")
        expect_same(await store.enqueue(_message("b", "steer"), limit=LIMIT), True, "enqueue while a run is running")
        await _enqueue(store, "a", "c")
        await _enqueue(store, "d", thread="t2")
    async with opened(open) as later:
        messages = await later.inbox("t")
        expect_same([message.run_id for message in messages], ["b", "a", "c"], "the messages of a thread, oldest first")
        first, second, third = messages
        expect(first.number < second.number < third.number, "a later message has a lower number")
        expect_same(
            (first.thread, first.mode, first.owner, first.body), ("t", "steer", "ann", b"b\x00\xff"), "a message"
        )
        expect(first.created_at > 0, "a message has no time")
        expect_same([one.run_id for one in await later.inbox("t", limit=2)], ["b", "a"], "two messages")
        expect_same(list(await later.inbox("other")), [], "the messages of a thread without any")
        expect_same(await later.waiting("a"), second, "a message by its id")
        expect_same((await later.waiting("r"), await later.waiting("none")), (None, None), "messages that do not wait")


@inbox_check
async def a_message_has_an_id_of_its_own(store: StoreWithInbox) -> None:
    """The id of a message is neither that of a run nor that of another message."""
    await store.create("r", [], thread="t")
    await _enqueue(store, "a")
    for taken in ("r", "a"):
        attempt = store.enqueue(_message(taken, thread="t2"), limit=LIMIT)
        await expect_error(attempt, RunExistsError, f"a second {taken!r}")
    expect_same(await _ids(store) + await _ids(store, "t2"), ["a"], "the messages")


@inbox_check
async def an_inbox_has_a_limit(store: StoreWithInbox) -> None:
    """No more than the given number of messages wait for a thread."""
    await store.create("r", [], thread="t")
    for number in range(3):
        await store.enqueue(_message(f"m{number}"), limit=3)
    await expect_error(store.enqueue(_message("m3"), limit=3), InboxFullError, "a message too many")
    await store.enqueue(_message("other", thread="t2"), limit=3)
    expect_same(await _ids(store), ["m0", "m1", "m2"], "the messages of a full inbox")
    await store.withdraw("m1")
    await store.enqueue(_message("m4"), limit=3)
    expect_same(await _ids(store), ["m0", "m2", "m4"], "the messages after one was withdrawn")


@inbox_check
async def writes_tell_what_waits(store: StoreWithInbox) -> None:
    """Append, renew, acquire and the record show whether messages wait or steer."""
    lease = await store.create("r", [b"one"], thread="t", worker="me", ttl=60)
    expect_same(await store.append("r", 1, [b"two"], fence=lease.fence), RunFlags(), "the flags of a quiet thread")
    await _enqueue(store, "a", mode="steer")
    await _enqueue(store, "b")
    expect_same(await store.append("r", 2, [b"three"]), RunFlags("", "steer"), "the flags with a message that steers")
    expect_same((await store.renew([lease], ttl=60))["r"].inbox, "steer", "`inbox` of a renewed lease")
    expect_same((await record_of(store, "r")).inbox, "steer", "`inbox` of the record")
    expect_same((await store.acquire("r", "me", ttl=0)).inbox, "steer", "`inbox` of an acquired lease")
    await store.withdraw("a")
    expect_same(await store.append("r", 3, []), RunFlags("", "waiting"), "the flags with a message that does not steer")
    await store.append("r", 3, [], status="suspended")
    await _enqueue(store, "c")
    expect_same(await store.append("r", 3, [], status="completed"), RunFlags("", "waiting"), "the flags at the end")
    await store.create("s", [b"one"], thread="t2")
    expect_same(await store.append("s", 1, []), RunFlags(), "the flags of another thread")


@inbox_check
async def a_message_to_no_run_is_for_its_sender(store: StoreWithInbox) -> None:
    """`enqueue` and `notify` tell whether an unfinished run will look after the messages."""
    expect_same(await store.enqueue(_message("a"), limit=LIMIT), False, "enqueue in a thread without runs")
    expect_same(await store.notify("t"), False, "notify in a thread without runs")
    await store.create("a", [b"one"], thread="t", from_inbox=True)
    expect_same(await store.notify("t"), True, "notify while a run is running")
    await store.append("a", 1, [], status="failed")
    expect_same(await store.enqueue(_message("b", "steer"), limit=LIMIT), False, "enqueue after the run has failed")
    await store.append("a", 1, [], status="running")
    expect_same(await store.notify("t"), True, "notify after the run was resumed")
    expect_same((await record_of(store, "a")).inbox, "steer", "`inbox` after notify")


@inbox_check
async def a_preempting_message_cancels(store: StoreWithInbox) -> None:
    """A message that preempts requests the cancellation of the running run after its turn."""
    await store.create("r", [b"one"], thread="t")
    await _enqueue(store, "a", mode="preempt")
    expect_same(await store.append("r", 1, []), RunFlags("after_turn", "waiting"), "the flags of a run to preempt")
    await store.request_cancel("r", "after_response")
    await _enqueue(store, "b", mode="preempt")
    expect_same((await record_of(store, "r")).cancel_requested, "after_response", "a request for an earlier time")
    await store.append("r", 1, [], status="cancelled")
    await store.create("s", [b"one"], thread="t2", status="suspended")
    await _enqueue(store, "c", mode="preempt", thread="t2")
    expect_same((await record_of(store, "s")).cancel_requested, "", "the request to a suspended run")


@inbox_check
async def cancel_requests_have_an_order(store: StoreWithInbox) -> None:
    """A request for an earlier time replaces one for a later time, and not the other way round."""
    await store.create("r", [])
    requests: tuple[tuple[CancelWhen, CancelWhen], ...] = (
        ("after_turn", "after_turn"),
        ("after_response", "after_response"),
        ("after_turn", "after_response"),
        ("now", "now"),
        ("after_response", "now"),
    )
    for when, wanted in requests:
        await store.request_cancel("r", when)
        expect_same((await record_of(store, "r")).cancel_requested, wanted, f"`cancel_requested` after {when!r}")


@inbox_check
async def the_oldest_message_becomes_a_run(store: StoreWithInbox) -> None:
    """A message becomes a run and leaves the inbox at once; no other run overtakes it."""
    await store.create("r", [b"one"], thread="t")
    await _enqueue(store, "a", "b")
    await _enqueue(store, "c", mode="steer")
    attempt = store.create("a", [b"a"], thread="t", from_inbox=True)
    await expect_error(attempt, ThreadBusyError, "a message as a run while another run is running")
    await store.append("r", 1, [], status="completed")
    busy = await expect_error(store.create("new", [], thread="t"), ThreadBusyError, "a run before waiting messages")
    expect_same((busy.run_id, busy.status), ("a", "waiting"), "what ThreadBusyError tells")
    attempt = store.create("b", [b"b"], thread="t", from_inbox=True)
    await expect_error(attempt, ThreadBusyError, "a message before an older one")
    attempt = store.create("a", [b"a"], thread="t", previous="", from_inbox=True)
    await expect_error(attempt, ThreadBusyError, "a message that follows another run than the last")
    expect_same(await _ids(store), ["a", "b", "c"], "the messages after refusals")
    lease = await store.create("a", [b"a"], thread="t", previous="r", worker="me", ttl=60, from_inbox=True)
    expect_same((lease.run_id, lease.worker, lease.fence), ("a", "me", 1), "the lease")
    record = await record_of(store, "a")
    expect_same((record.previous, record.inbox), ("r", "waiting"), "the record of a run made of a message")
    await expect_log(store, "a", [b"a"])
    expect_same((await _ids(store), await store.waiting("a")), (["b", "c"], None), "the messages that are left")
    await store.append("a", 1, [], status="completed")
    await expect_error(store.create("a", [], thread="t", from_inbox=True), RunExistsError, "a message that is a run")
    attempt = store.create("x", [], thread="t2", from_inbox=True)
    await expect_error(attempt, MessageGoneError, "a run of a message that does not wait")
    await store.create("b", [], thread="t", from_inbox=True)
    expect_same((await record_of(store, "b")).inbox, "steer", "`inbox` of a run before a message that steers")


@inbox_check
async def a_run_takes_the_oldest_messages(store: StoreWithInbox) -> None:
    """`append` with `take` removes the oldest messages, in order, or writes nothing."""
    lease = await store.create("r", [b"one"], thread="t", worker="me", ttl=60)
    await _enqueue(store, "a", "b", mode="steer")
    await _enqueue(store, "c")
    for wrong in (["b"], ["b", "a"], ["x"], ["a", "b", "c", "d"]):
        attempt = store.append("r", 1, [b"lost"], take=wrong)
        await expect_error(attempt, MessageGoneError, f"to take {wrong}")
    await expect_error(store.append("r", 0, [b"x"], take=["a"]), RunConflictError, "to take at another line")
    expect_same(await _ids(store), ["a", "b", "c"], "the messages after refusals")
    flags = await store.append("r", 1, [b"two", b"three"], take=["a", "b"], fence=lease.fence)
    expect_same(flags, RunFlags("", "waiting"), "the flags after two messages were taken")
    await expect_log(store, "r", [b"one", b"two", b"three"])
    expect_same(await _ids(store), ["c"], "the messages that are left")
    expect_same(await store.append("r", 3, [b"four"], take=["c"]), RunFlags(), "the flags after the last one")
    expect_same((await record_of(store, "r")).inbox, "", "`inbox` of the record")
    await expect_error(store.append("r", 4, [b"x"], take=["c"]), MessageGoneError, "to take a message again")
    await expect_log(store, "r", [b"one", b"two", b"three", b"four"])


@inbox_check
async def a_message_can_be_withdrawn(store: StoreWithInbox) -> None:
    """A withdrawn message is gone, and only a waiting one can be withdrawn."""
    await store.create("r", [b"one"], thread="t")
    await _enqueue(store, "a", mode="steer")
    expect_same(await store.withdraw("a"), True, "withdraw of a waiting message")
    expect_same(await store.withdraw("a"), False, "withdraw of a message that is gone")
    expect_same(await store.withdraw("r"), False, "withdraw of a run")
    expect_same(await store.append("r", 1, [], status="completed"), RunFlags(), "the flags of the run")
    await store.create("s", [], thread="t")
    await _enqueue(store, "a")
    expect_same(await _ids(store), ["a"], "a message whose id was used by one that was withdrawn")


@inbox_check
async def threads_without_a_run_are_idle(store: StoreWithInbox) -> None:
    """Threads whose messages wait for no unfinished run are listed, the longest waiting first."""
    await _enqueue(store, "a", "b", thread="t1")
    await store.create("r", [b"one"], thread="t2")
    await _enqueue(store, "c", thread="t2")
    await _enqueue(store, "d", thread="t3")
    await store.create("free", [])
    expect_same(list(await store.idle_threads()), ["t1", "t3"], "the idle threads")
    expect_same(list(await store.idle_threads(limit=1)), ["t1"], "one idle thread")
    await store.append("r", 1, [], status="suspended")
    expect_same(list(await store.idle_threads()), ["t1", "t3"], "the idle threads while a run is suspended")
    await store.append("r", 1, [], status="cancelled")
    await store.create("a", [], thread="t1", from_inbox=True)
    expect_same(list(await store.idle_threads()), ["t2", "t3"], "the idle threads after a run ended and one began")
    await store.withdraw("d")
    await store.delete("a")
    expect_same(list(await store.idle_threads()), ["t1", "t2"], "the idle threads after one run was deleted")


@inbox_check
async def a_message_at_the_end_is_noticed(store: StoreWithInbox) -> None:
    """Of a run that ends and a message that arrives, one always learns of the other."""
    for number in range(ROUNDS):
        run_id = f"r{number}"
        thread = f"t{number}"
        await store.create(run_id, [b"one"], thread=thread)
        completing = store.append(run_id, 1, [], status="completed")
        enqueuing = store.enqueue(_message(f"m{number}", thread=thread), limit=LIMIT)
        if number % 2:
            flags, has_run = await asyncio.gather(completing, enqueuing)
        else:
            has_run, flags = await asyncio.gather(enqueuing, completing)
        expect(bool(flags.inbox) or not has_run, "neither the run nor the sender of the message learned of the other")


@inbox_check
async def a_message_leaves_once(store: StoreWithInbox) -> None:
    """Of those that take, withdraw and create a run of a message at once, one succeeds."""
    for number in range(ROUNDS):
        run_id = f"r{number}"
        thread = f"t{number}"
        await store.create(run_id, [b"one"], thread=thread)
        await _enqueue(store, f"m{number}", mode="steer", thread=thread)
        log = await _take_or_withdraw(store, run_id, f"m{number}")
        await store.append(run_id, len(log), [], status="completed")
        await _enqueue(store, f"next{number}", thread=thread)
        await _create_or_withdraw(store, f"next{number}", thread)
        expect_same(list(await store.inbox(thread)), [], "the messages that are left")


async def _take_or_withdraw(store: StoreWithInbox, run_id: str, message: str) -> list[bytes]:
    """Take and withdraw a message at once; return the log of the run that may have taken it."""
    attempts = [store.append(run_id, 1, [b"took"], take=[message]), store.withdraw(message)]
    taken, withdrawn = await asyncio.gather(*attempts, return_exceptions=True)
    expect(isinstance(taken, RunFlags | MessageGoneError), f"append with take raised {taken!r}")
    expect_same(isinstance(taken, RunFlags), withdrawn is False, "whether one took it, and the other did not withdraw")
    log = [b"one"] if withdrawn else [b"one", b"took"]
    await expect_log(store, run_id, log)
    return log


async def _create_or_withdraw(store: StoreWithInbox, message: str, thread: str) -> None:
    """Create a run of a message four times and withdraw it, all at once."""
    attempts = [store.create(message, [b"one"], thread=thread, from_inbox=True) for _ in range(4)]
    *created, withdrawn = await asyncio.gather(*attempts, store.withdraw(message), return_exceptions=True)
    refusals = (RunExistsError, MessageGoneError, ThreadBusyError)
    for result in (*created, withdrawn):
        is_failure = isinstance(result, BaseException) and not isinstance(result, refusals)
        expect(not is_failure, f"of five that took the message, one raised {result!r}")
    runs = [result for result in created if not isinstance(result, BaseException)]
    expect_same(len(runs) + (withdrawn is True), 1, "how many of five took the message")
