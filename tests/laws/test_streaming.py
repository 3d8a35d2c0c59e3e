"""Streaming on or off changes no logged event, and what is delivered is what is logged, with deltas between (T28)."""

from collections import defaultdict
from contextlib import suppress

from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.plans import Scenario
from tests.laws.play import RUN_ID, Play, in_loop
from tests.laws.strategies import scenarios

from baton import BatonError, RunResult
from baton.events import AgentResponded, Delta, Event, TextDelta, ToolCallDelta
from baton.messages import text_of


@given(scenario=scenarios())
def test_the_log_is_the_same_streamed_or_not(scenario: Scenario) -> None:
    note(repr(scenario))
    silent, streamed = Play(scenario), Play(scenario, in_pieces=True)
    delivered: list[Event | Delta] = []

    expected = in_loop(silent.run())
    result = in_loop(streamed.run(deliver_to=delivered))

    assert _timeless(result.events) == _timeless(expected.events)
    assert (result.status, result._output, result.values) == (expected.status, expected._output, expected.values)
    assert result.messages == expected.messages
    assert streamed.voice.seen == silent.voice.seen
    assert streamed.stage.deeds == silent.stage.deeds


@given(scenario=scenarios())
def test_what_is_delivered_is_what_is_logged(scenario: Scenario) -> None:
    note(repr(scenario))
    play = Play(scenario, in_pieces=True)
    delivered: list[Event | Delta] = []

    result = in_loop(play.run(deliver_to=delivered))

    assert tuple(event for event in delivered if isinstance(event, Event)) == result.events


@given(scenario=scenarios())
def test_deltas_make_up_what_is_said_afterwards(scenario: Scenario) -> None:
    note(repr(scenario))
    play = Play(scenario, in_pieces=True)
    delivered: list[Event | Delta] = []
    in_loop(play.run(deliver_to=delivered))

    text, arguments = "", defaultdict[int, str](str)
    for event in delivered:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
        elif isinstance(event, AgentResponded) and event.model:
            message = event.message
            assert text == (text_of(message.content) if isinstance(message.content, str) else "")
            assert [arguments[index] or "{}" for index in range(len(message.tool_calls))] == [
                call.arguments for call in message.tool_calls
            ]
            text, arguments = "", defaultdict[int, str](str)
    assert (text, arguments) == ("", {})


@given(scenario=scenarios(), how_many=st.integers(1, 30))
def test_who_leaves_early_leaves_a_run_that_can_be_resumed(scenario: Scenario, how_many: int) -> None:
    note(repr(scenario))
    expected = in_loop(Play(scenario).run())
    play = Play(scenario, in_pieces=True)

    left = in_loop(_left_after(how_many, play))
    if left.status != "cancelled":
        return
    resumed = in_loop(play.take_up(left.events))

    assert (resumed.status, resumed._output, resumed.values) == (expected.status, expected._output, expected.values)
    assert resumed.messages == expected.messages


async def _left_after(how_many: int, play: Play) -> RunResult[object]:
    live = play.runner.stream("go", run_id=RUN_ID)
    with suppress(BatonError):
        async with live:
            async for _ in live:
                how_many -= 1
                if not how_many:
                    break
    return live.result


def _timeless(events: tuple[Event, ...]) -> list[Event]:
    return [replace(event, timestamp=0.0) for event in events]
