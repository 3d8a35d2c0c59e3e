"""Observers receive what is written; a run neither waits for them nor depends on them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from baton import Agent, Runner, SetupError, tool
from baton.events import Delta, Event, TextDelta
from baton.runner import EventHandler
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, call


class Notes:
    """Keeps what it reads. Raises where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.past: list[Sequence[Event]] = []
        self.heard: list[Event | Delta] = []
        self.left = 0

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        self._fail_at("begin")
        self.past.append(past)
        yield self.hear
        self.left += 1
        self._fail_at("end")

    def hear(self, event: Event | Delta) -> None:
        self.heard.append(event)
        self._fail_at("event")

    def _fail_at(self, point: str) -> None:
        if point == self.fails:
            raise OSError(f"no room at {point}")


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"{euro} paid"


def team(*readers: Any, stream: bool = False) -> Runner[Any, Any]:
    model = ScriptedModel([call("pay", euro=5), "It is paid."], stream=stream)
    return Runner(Agent("A", tools=[pay]), model=model, observers=readers)


async def test_an_observer_gets_every_event_once() -> None:
    notes = Notes()
    runner = team(notes)
    stopped = await runner.run("Pay")
    assert notes.past == [()]
    assert notes.heard == [*stopped.events]
    result = await runner.resume(stopped.run_id, True)
    assert notes.past[1] == stopped.events
    assert notes.heard == [*result.events]
    assert notes.left == 2


async def test_an_observer_gets_deltas_with_and_without_a_stream() -> None:
    notes = Notes()
    runner = team(notes, stream=True)
    stopped = await runner.run("Pay")
    assert [event for event in notes.heard if isinstance(event, TextDelta)] == []
    async with runner.stream_resume(stopped.run_id, True) as run:
        listened = [event async for event in run]
    assert notes.heard[len(stopped.events) :][-len(listened) :] == listened
    assert "".join(event.text for event in notes.heard if isinstance(event, TextDelta)) == "It is paid."


@pytest.mark.parametrize("events", [True, False])
async def test_an_observer_of_a_stored_run_gets_only_stored_events(events: bool) -> None:
    # DESIGN §6: the log is stored before anyone is told about it; silent is for listeners, and not for the store.
    notes, store = Notes(), MemoryStore()
    script = {"A": [call("clerk", request="Pay 5."), "Done."], "Clerk": [call("pay", euro=5), "Paid."]}
    clerk = Agent("Clerk", description="Pays.", tools=[pay])
    a = Agent("A", tools=[clerk.as_tool(stream_events=events)])
    runner = Runner(a, model=ScriptedModel(script), observers=[notes], store=store)
    stopped = await runner.run("Pay", run_id="r1")
    assert notes.heard == [*stopped.events] == await runner.events("r1")
    result = await runner.resume("r1", True)
    assert result.output == "Done."
    assert notes.heard == [*result.events] == await runner.events("r1")
    assert [len(past) for past in notes.past] == [0, len(stopped.events)]


@pytest.mark.parametrize("point", ["begin", "event", "end"])
async def test_a_failing_observer_is_logged_and_skipped(point: str, caplog: pytest.LogCaptureFixture) -> None:
    broken, notes = Notes(fails=point), Notes()
    runner = team(broken, notes)
    stopped = await runner.run("Pay")
    assert stopped.status == "suspended"
    assert notes.heard == [*stopped.events]
    assert len(broken.heard) == {"begin": 0, "event": 1, "end": len(stopped.events)}[point]
    (told,) = [record for record in caplog.records if record.name == "baton.runner"]
    assert told.exc_info is not None
    assert stopped.run_id in told.getMessage()


async def test_an_observer_is_exited_when_the_run_fails() -> None:
    notes = Notes()
    runner = Runner(Agent("A"), model=ScriptedModel([OSError("no connection")]), observers=[notes])
    with pytest.raises(Exception, match="no connection"):
        await runner.run("Hi")
    assert notes.left == 1
    assert notes.heard[-1].agent == ""


async def test_a_replay_is_not_observed() -> None:
    notes = Notes()
    result = await Runner(Agent("A"), model=ScriptedModel(["Hi."])).run("Hello")
    await Runner(Agent("A"), model=ScriptedModel([]), observers=[notes]).replay(result.events)
    assert notes.past == []


@pytest.mark.parametrize("given", [[Notes], ["notes"], Notes(), None])
def test_invalid_observers_are_refused(given: Any) -> None:
    with pytest.raises(SetupError, match="a list of observers, objects with a method `observe`; not"):
        Runner(Agent("A"), observers=given)
