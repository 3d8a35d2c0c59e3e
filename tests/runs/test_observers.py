"""Observers receive what is written; a run neither waits for them nor depends on them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError, tool
from batonkit.log import Delta, Event, TextDelta
from batonkit.runs import EventHandler
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call


class RecordingObserver:
    """An observer that records what it receives, and raises at the given point."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.past: list[Sequence[Event]] = []
        self.received: list[Event | Delta] = []
        self.exits = 0

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        self._fail_at("begin")
        self.past.append(past)
        yield self.receive
        self.exits += 1
        self._fail_at("end")

    def receive(self, event: Event | Delta) -> None:
        self.received.append(event)
        self._fail_at("event")

    def _fail_at(self, point: str) -> None:
        if point == self.fails:
            raise OSError(f"failed at {point}")


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"{euro} paid"


def team(*observers: Any, stream: bool = False) -> Runner[Any, Any]:
    model = ScriptedModel([call("pay", euro=5), "It is paid."], stream=stream)
    return Runner(Agent("A", tools=[pay]), model=model, observers=observers)


async def test_an_observer_gets_every_event_once() -> None:
    observer = RecordingObserver()
    runner = team(observer)
    stopped = await runner.run("Pay")
    assert observer.past == [()]
    assert observer.received == [*stopped.events]
    result = await runner.resume(stopped.run_id, True)
    assert observer.past[1] == stopped.events
    assert observer.received == [*result.events]
    assert observer.exits == 2


async def test_an_observer_gets_deltas_with_and_without_a_stream() -> None:
    observer = RecordingObserver()
    runner = team(observer, stream=True)
    stopped = await runner.run("Pay")
    assert [event for event in observer.received if isinstance(event, TextDelta)] == []
    async with runner.stream_resume(stopped.run_id, True) as run:
        streamed = [event async for event in run]
    assert observer.received[len(stopped.events) :][-len(streamed) :] == streamed
    assert "".join(event.text for event in observer.received if isinstance(event, TextDelta)) == "It is paid."


@pytest.mark.parametrize("events", [True, False])
async def test_an_observer_of_a_stored_run_gets_only_stored_events(events: bool) -> None:
    # Events are stored before they are delivered, also those that are not streamed.
    observer, store = RecordingObserver(), MemoryStore()
    script = {"A": [call("clerk", request="Pay 5."), "Done."], "Clerk": [call("pay", euro=5), "Paid."]}
    clerk = Agent("Clerk", description="Pays.", tools=[pay])
    a = Agent("A", tools=[clerk.as_tool(stream_events=events)])
    runner = Runner(a, model=ScriptedModel(script), observers=[observer], store=store)
    stopped = await runner.run("Pay", run_id="r1")
    assert observer.received == [*stopped.events] == await runner.runs.events("r1")
    result = await runner.resume("r1", True)
    assert result.output == "Done."
    assert observer.received == [*result.events] == await runner.runs.events("r1")
    assert [len(past) for past in observer.past] == [0, len(stopped.events)]


@pytest.mark.parametrize("point", ["begin", "event", "end"])
async def test_a_failing_observer_is_logged_and_skipped(point: str, caplog: pytest.LogCaptureFixture) -> None:
    broken, observer = RecordingObserver(fails=point), RecordingObserver()
    runner = team(broken, observer)
    stopped = await runner.run("Pay")
    assert stopped.status == "suspended"
    assert observer.received == [*stopped.events]
    assert len(broken.received) == {"begin": 0, "event": 1, "end": len(stopped.events)}[point]
    (log_record,) = [record for record in caplog.records if record.name == "baton.runner"]
    assert log_record.exc_info is not None
    assert stopped.run_id in log_record.getMessage()


async def test_an_observer_is_exited_when_the_run_fails() -> None:
    observer = RecordingObserver()
    runner = Runner(Agent("A"), model=ScriptedModel([OSError("no connection")]), observers=[observer])
    with pytest.raises(Exception, match="no connection"):
        await runner.run("Hi")
    assert observer.exits == 1
    assert observer.received[-1].agent == ""


async def test_a_replay_is_not_observed() -> None:
    observer = RecordingObserver()
    result = await Runner(Agent("A"), model=ScriptedModel(["Hi."])).run("Hello")
    await Runner(Agent("A"), model=ScriptedModel([]), observers=[observer]).runs.replay(result.events)
    assert observer.past == []


@pytest.mark.parametrize("given", [[RecordingObserver], ["observer"], RecordingObserver(), None])
def test_invalid_observers_are_refused(given: Any) -> None:
    with pytest.raises(SetupError, match="a list of observers, objects with a method `observe`; not"):
        Runner(Agent("A"), observers=given)
