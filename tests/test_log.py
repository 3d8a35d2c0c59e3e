"""The log of a run: each thing once, found again by its key, and told to whoever listens."""

import asyncio

import pytest

from baton.errors import ReplayMismatchError
from baton.events import (
    AgentFinished,
    AgentStarted,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    StepCompleted,
    TextDelta,
    ToolReturned,
)
from baton.events.base import RUN_ORIGIN
from baton.log import Log, ReadOnlyLog

A = Origin("1", "A")
START, END = AgentStarted("1/start", A, 1.0), AgentFinished("1/end", A, 2.0)


class Ear:
    """Somebody who listens, and may be full."""

    def __init__(self) -> None:
        self.heard: list[Event | Delta] = []
        self.overheard: list[Event] = []
        self.is_full = False
        self.is_patient = False
        self.is_heard = True
        self.emptied = asyncio.Event()

    def put(self, event: Event | Delta) -> None:
        self.heard.append(event)

    def put_hushed(self, event: Event) -> None:
        self.overheard.append(event)

    async def room(self) -> None:
        await self.emptied.wait()


def test_what_is_written_is_found_by_its_key() -> None:
    log = Log()
    assert log.find("1/start", AgentStarted) is None
    log.write(START)
    assert log.find("1/start", AgentStarted) is START
    assert log.events == [START]


def test_a_key_taken_twice_is_noticed_at_the_next_look() -> None:
    # DESIGN §1: whatever happened is written once, and never done twice.
    log = Log([START])
    log.write(AgentFinished("1/start", A, 3.0))
    with pytest.raises(
        ReplayMismatchError, match="at `1/start` the log has Started, but the code produces a second Fin"
    ):
        log.find("1/end", AgentFinished)


def test_a_log_with_one_key_twice_cannot_be_loaded() -> None:
    with pytest.raises(ReplayMismatchError, match="a second Started"):
        Log([START, AgentStarted("1/start", A, 5.0)])


def test_a_key_that_means_something_else_is_a_mismatch() -> None:
    log = Log([START])
    with pytest.raises(ReplayMismatchError) as caught:
        log.find("1/start", AgentFinished)
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == (
        "1/start",
        "AgentStarted",
        "AgentFinished",
    )


def test_nothing_can_be_added_to_a_log_that_is_only_read() -> None:
    log = ReadOnlyLog([START])
    with pytest.raises(ReplayMismatchError) as caught:
        log.write(END)
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == ("1/end", "nothing", "AgentFinished")
    assert log.find("1/start", AgentStarted) is START


def test_what_the_code_has_not_asked_for_again_is_known() -> None:
    log = Log([START, END])
    assert log.unvisited(AgentStarted, AgentFinished) is START
    log.find("1/start", AgentStarted)
    assert log.unvisited(AgentStarted, AgentFinished) is END
    assert log.unvisited(AgentStarted) is None
    log.find("1/end", AgentFinished)
    assert log.unvisited(AgentStarted, AgentFinished) is None


def test_what_is_written_now_need_not_be_asked_for() -> None:
    log = Log([START])
    log.write(END)
    log.find("1/start", AgentStarted)
    assert log.unvisited(AgentStarted, AgentFinished) is None


def test_open_questions_are_those_without_an_answer() -> None:
    one, two = InterruptRaised("1/ask1", A, 1.0, "?"), InterruptRaised("1/ask2", A, 1.0, "??")
    log = Log([START, one])
    log.write(two)
    assert list(log.open_questions()) == ["1/ask1", "1/ask2"]
    log.write(InterruptAnswered("1/ask1!", A, 2.0, "1/ask1", "yes"))
    assert log.open_questions() == {"1/ask2": two}


async def test_the_listener_hears_what_is_new_and_not_what_was_loaded() -> None:
    ear = Ear()
    log = Log([START])
    log.attach(ear)
    log.write(END)
    delta = TextDelta(A, "x")
    log.tell(delta)
    assert ear.heard == [END, delta]
    assert log.events == [START, END]


async def test_a_full_listener_is_waited_for() -> None:
    ear = Ear()
    log = Log()
    log.attach(ear)
    await log.settle()
    ear.is_full = True
    waiting = asyncio.ensure_future(log.settle())
    await asyncio.sleep(0)
    assert not waiting.done()
    ear.emptied.set()
    await waiting


async def test_without_a_listener_nothing_waits_and_deltas_are_gone() -> None:
    log = Log()
    log.tell(TextDelta(RUN_ORIGIN, "x"))
    await log.settle()
    assert log.events == []


def test_what_is_hushed_is_recorded_and_told_apart() -> None:
    log, ear = Log(), Ear()
    log.attach(ear)
    log.hush("1/m1.0/")
    inner = AgentStarted("1/m1.0/1/start", Origin("1/m1.0/1", "B", A), 1.5)
    for event in (START, inner, END):
        log.write(event)
    log.tell(TextDelta(inner.origin, "hm"))
    assert log.events == [START, inner, END]
    assert ear.heard == [START, END]
    assert ear.overheard == [inner]


@pytest.mark.parametrize(
    "end", [ToolReturned("1/m1.0", A, 3.0, "c", "t"), StepCompleted("1/m1.0/2/failed", A, 3.0, "failed", "it failed")]
)
def test_a_question_is_closed_by_the_end_of_what_it_was_asked_in(end: Event) -> None:
    # W5
    asked = InterruptRaised("1/m1.0/2/1/ask1", A, 1.0, "sure?")
    beside = InterruptRaised("1/m1.00/ask1", A, 2.0, "and here?")
    assert list(Log([START, asked, beside, end]).open_questions()) == [beside.key]
    assert list(Log([START, asked, beside]).open_questions()) == [asked.key, beside.key]
    assert list(Log([START, end, asked]).open_questions()) == [asked.key], "a hook may ask about what has ended"


def test_what_is_inside_an_effect_is_told_apart_from_its_neighbours() -> None:
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


def test_a_hushed_part_delivers_only_its_questions_until_it_is_over() -> None:
    # A3
    log, ear = Log(), Ear()
    log.attach(ear)
    log.hush("1/m1.0/")
    inner = Origin("1/m1.0/1", "B", A)
    asked, said = InterruptRaised("1/m1.0/1/ask1", inner, 1.0), AgentStarted("1/m1.0/1/start", inner, 1.0)
    for event in (said, asked, START):
        log.write(event)
    log.tell(TextDelta(inner, "word"))
    assert (ear.heard, ear.overheard) == ([asked, START], [said])
    assert (log.listener(inner), log.listener(A)) == (None, ear)
    log.unhush("1/m1.0/")
    log.tell(TextDelta(inner, "word"))
    assert (len(ear.heard), log.events) == (3, [said, asked, START])
