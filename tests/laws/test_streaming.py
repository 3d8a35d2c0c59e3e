"""Streaming does not change the log; the stream delivers the logged events, with deltas in between."""

from collections import defaultdict
from contextlib import suppress

from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.executions import RUN_ID, Execution, run_in_loop
from tests.laws.plans import Scenario
from tests.laws.strategies import scenarios

from batonkit import BatonError, RunResult
from batonkit.log import AgentResponded, Delta, Event, TextDelta, ToolCallDelta
from batonkit.messages import text_of


@given(scenario=scenarios())
def test_the_log_is_the_same_with_and_without_streaming(scenario: Scenario) -> None:
    note(repr(scenario))
    unstreamed, streamed = Execution(scenario), Execution(scenario, stream=True)
    delivered: list[Event | Delta] = []

    expected = run_in_loop(unstreamed.run())
    result = run_in_loop(streamed.run(deliver_to=delivered))

    assert _without_timestamps(result.events) == _without_timestamps(expected.events)
    assert (result.status, result._output, result.values) == (expected.status, expected._output, expected.values)
    assert result.messages == expected.messages
    assert streamed.model.seen == unstreamed.model.seen
    assert streamed.environment.effects == unstreamed.environment.effects


@given(scenario=scenarios())
def test_a_stream_delivers_the_logged_events(scenario: Scenario) -> None:
    note(repr(scenario))
    execution = Execution(scenario, stream=True)
    delivered: list[Event | Delta] = []

    result = run_in_loop(execution.run(deliver_to=delivered))

    assert tuple(event for event in delivered if isinstance(event, Event)) == result.events


@given(scenario=scenarios())
def test_deltas_add_up_to_the_response_that_follows(scenario: Scenario) -> None:
    note(repr(scenario))
    execution = Execution(scenario, stream=True)
    delivered: list[Event | Delta] = []
    run_in_loop(execution.run(deliver_to=delivered))

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


@given(scenario=scenarios(), event_count=st.integers(1, 30))
def test_a_run_whose_stream_was_left_early_can_be_resumed(scenario: Scenario, event_count: int) -> None:
    note(repr(scenario))
    expected = run_in_loop(Execution(scenario).run())
    execution = Execution(scenario, stream=True)

    left = run_in_loop(_leave_after(event_count, execution))
    if left.status != "cancelled":
        return
    resumed = run_in_loop(execution.resume_from(left.events))

    assert (resumed.status, resumed._output, resumed.values) == (expected.status, expected._output, expected.values)
    assert resumed.messages == expected.messages


async def _leave_after(event_count: int, execution: Execution) -> RunResult[object]:
    live = execution.runner.stream("go", run_id=RUN_ID)
    with suppress(BatonError):
        async with live:
            async for _ in live:
                event_count -= 1
                if not event_count:
                    break
    return live.result


def _without_timestamps(events: tuple[Event, ...]) -> list[Event]:
    return [replace(event, timestamp=0.0) for event in events]
