"""The log of a run: unique keys, lookup by key, and delivery to a sink."""

import asyncio

import pytest

from batonkit.errors import ReplayMismatchError
from batonkit.log import (
    AgentFinished,
    AgentStarted,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    RunCompleted,
    StepCompleted,
    TextDelta,
    ToolReturned,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.log.log import Log, ReadOnlyLog, SuspendRun

A = Origin("1", "A")
START, END = AgentStarted("1/start", A, 1.0), AgentFinished("1/end", A, 2.0)


class RecordingSink:
    """A sink that records events and may be full."""

    def __init__(self) -> None:
        self.delivered: list[Event | Delta] = []
        self.muted: list[Event] = []
        self.is_full = False
        self.can_defer = False
        self.has_subscribers = True
        self.emptied = asyncio.Event()

    def put(self, event: Event | Delta) -> None:
        self.delivered.append(event)

    def put_muted(self, event: Event) -> None:
        self.muted.append(event)

    async def drain(self) -> None:
        await self.emptied.wait()

    async def catch_up(self) -> None:
        await self.emptied.wait()


def test_a_written_event_is_found_by_its_key() -> None:
    log = Log()
    assert log.find("1/start", AgentStarted) is None
    log.write(START)
    assert log.find("1/start", AgentStarted) is START
    assert log.events == [START]


def test_a_duplicate_key_is_noticed_at_the_next_lookup() -> None:
    # Every effect is recorded once and never executed twice.
    log = Log([START])
    log.write(AgentFinished("1/start", A, 3.0))
    with pytest.raises(
        ReplayMismatchError, match="at `1/start` the log has AgentStarted, but the code produces a second AgentFin"
    ):
        log.find("1/end", AgentFinished)


def test_a_log_with_a_duplicate_key_cannot_be_loaded() -> None:
    with pytest.raises(ReplayMismatchError, match="a second AgentStarted"):
        Log([START, AgentStarted("1/start", A, 5.0)])


def test_a_key_of_another_event_class_is_a_mismatch() -> None:
    log = Log([START])
    with pytest.raises(ReplayMismatchError) as caught:
        log.find("1/start", AgentFinished)
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == (
        "1/start",
        "AgentStarted",
        "AgentFinished",
    )


def test_a_read_only_log_refuses_new_events() -> None:
    log = ReadOnlyLog([START, RunCompleted("completed", Origin("", ""), 1.0)])
    with pytest.raises(ReplayMismatchError) as caught:
        log.write(END)
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == ("1/end", "nothing", "AgentFinished")
    assert log.find("1/start", AgentStarted) is START


def test_a_read_only_log_of_an_unfinished_run_stops_the_code_at_its_end() -> None:
    log = ReadOnlyLog([START])
    log.find("1/start", AgentStarted)
    with pytest.raises(SuspendRun):
        log.write(END)
    log.check_end(AgentStarted, AgentFinished)
    elsewhere = ReadOnlyLog([START, END])
    with pytest.raises(SuspendRun):
        elsewhere.write(AgentStarted("2/start", A, 1.0))
    with pytest.raises(ReplayMismatchError, match=r"at `2/start` the log has nothing, .* skips the recorded `1/start`"):
        elsewhere.check_end(AgentStarted, AgentFinished)


def test_unvisited_events_are_reported() -> None:
    log = Log([START, END])
    assert log.unvisited(AgentStarted, AgentFinished) is START
    log.find("1/start", AgentStarted)
    assert log.unvisited(AgentStarted, AgentFinished) is END
    assert log.unvisited(AgentStarted) is None
    log.find("1/end", AgentFinished)
    assert log.unvisited(AgentStarted, AgentFinished) is None


def test_new_events_need_no_visit() -> None:
    log = Log([START])
    log.write(END)
    log.find("1/start", AgentStarted)
    assert log.unvisited(AgentStarted, AgentFinished) is None


def test_open_interrupts_have_no_answer() -> None:
    one, two = InterruptRaised("1/ask1", A, 1.0, "?"), InterruptRaised("1/ask2", A, 1.0, "??")
    log = Log([START, one])
    log.write(two)
    assert list(log.open_interrupts()) == ["1/ask1", "1/ask2"]
    log.write(InterruptAnswered("1/ask1!", A, 2.0, "1/ask1", "yes"))
    assert log.open_interrupts() == {"1/ask2": two}


async def test_the_sink_gets_new_events_and_not_the_loaded_ones() -> None:
    sink = RecordingSink()
    log = Log([START])
    log.attach(sink)
    log.write(END)
    delta = TextDelta(A, "x")
    log.deliver(delta)
    assert sink.delivered == [END, delta]
    assert log.events == [START, END]


async def test_settle_waits_for_a_full_sink() -> None:
    sink = RecordingSink()
    log = Log()
    log.attach(sink)
    await log.settle()
    sink.is_full = True
    waiting = asyncio.ensure_future(log.settle())
    await asyncio.sleep(0)
    assert not waiting.done()
    sink.emptied.set()
    await waiting


async def test_without_a_sink_nothing_waits_and_deltas_are_dropped() -> None:
    log = Log()
    log.deliver(TextDelta(RUN_ORIGIN, "x"))
    await log.settle()
    assert log.events == []


def test_muted_events_are_recorded_but_not_delivered() -> None:
    log, sink = Log(), RecordingSink()
    log.attach(sink)
    log.mute("1/m1.0/")
    inner = AgentStarted("1/m1.0/1/start", Origin("1/m1.0/1", "B", A), 1.5)
    for event in (START, inner, END):
        log.write(event)
    log.deliver(TextDelta(inner.origin, "hm"))
    assert log.events == [START, inner, END]
    assert sink.delivered == [START, END]
    assert sink.muted == [inner]


@pytest.mark.parametrize(
    "end", [ToolReturned("1/m1.0", A, 3.0, "c", "t"), StepCompleted("1/m1.0/2/failed", A, 3.0, "failed", "it failed")]
)
def test_an_interrupt_is_closed_by_the_end_of_its_call_or_branch(end: Event) -> None:
    asked = InterruptRaised("1/m1.0/2/1/ask1", A, 1.0, "sure?")
    beside = InterruptRaised("1/m1.00/ask1", A, 2.0, "and here?")
    assert list(Log([START, asked, beside, end]).open_interrupts()) == [beside.key]
    assert list(Log([START, asked, beside]).open_interrupts()) == [asked.key, beside.key]
    assert list(Log([START, end, asked]).open_interrupts()) == [asked.key], "a hook may ask about what has ended"


def test_events_inside_an_effect_are_distinguished_from_its_neighbours() -> None:
    inside = [InterruptRaised("1/m1.0/1/ask1", A, 1.0), StepCompleted("1/m1.0/hook:x", A, 1.0, "hook:x")]
    neighbours = [
        StepCompleted("1/m1.0", A, 1.0, "s"),
        StepCompleted("1/m1.01/a", A, 1.0, "s"),
        StepCompleted("1/m1.00/b", A, 1.0, "s"),
    ]
    log = Log([*neighbours, *inside])
    assert log.visit("1/m1.0") == inside
    assert log.unvisited(StepCompleted, InterruptRaised) is neighbours[0]
    assert (log.has_inside("1/m1.0"), log.has_inside("1/m1")) == (True, False)
    assert (log.has_inside_besides("1/m1.0", "hook:"), log.has_inside_besides("1/m1.0", "1/")) == (True, True)
    assert (log.waits_inside("1/m1.0"), log.waits_inside("1/m1.01")) == (True, False)


def test_a_muted_prefix_delivers_only_interrupts_until_unmuted() -> None:
    log, sink = Log(), RecordingSink()
    log.attach(sink)
    log.mute("1/m1.0/")
    inner = Origin("1/m1.0/1", "B", A)
    asked, said = InterruptRaised("1/m1.0/1/ask1", inner, 1.0), AgentStarted("1/m1.0/1/start", inner, 1.0)
    for event in (said, asked, START):
        log.write(event)
    log.deliver(TextDelta(inner, "word"))
    assert (sink.delivered, sink.muted) == ([asked, START], [said])
    assert (log.listener(inner), log.listener(A)) == (None, sink)
    log.unmute("1/m1.0/")
    log.deliver(TextDelta(inner, "word"))
    assert (len(sink.delivered), log.events) == (3, [said, asked, START])
