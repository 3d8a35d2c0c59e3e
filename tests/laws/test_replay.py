"""replay(log) == log: the code over its own log gives the same run, and nothing happens outside (D13)."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, note
from tests.laws.plans import Scenario
from tests.laws.play import Play, in_loop
from tests.laws.strategies import scenarios

from baton import RunResult
from baton.errors import BatonError
from baton.events import Event


@given(scenario=scenarios())
def test_a_completed_run_is_replayed_as_it_was(scenario: Scenario) -> None:
    note(repr(scenario))
    play = Play(scenario)
    result = in_loop(play.run())
    assume(result.status == "completed")
    before = play.stage.deeds.copy(), len(play.voice.requests)

    replayed = in_loop(play.new_runner().replay(result.events))

    assert (play.stage.deeds, len(play.voice.requests)) == before
    assert replayed.events == result.events
    assert _what_counts(replayed) == _what_counts(result)


@given(scenario=scenarios())
def test_a_failed_run_fails_again_in_the_same_way(scenario: Scenario) -> None:
    note(repr(scenario))
    play = Play(scenario)
    result = in_loop(play.run())
    assume(result.status == "failed")
    before = play.stage.deeds.copy(), len(play.voice.requests)

    with pytest.raises(BatonError) as again:
        in_loop(play.new_runner().replay(result.events))

    assert (play.stage.deeds, len(play.voice.requests)) == before
    assert (type(again.value), str(again.value)) == (type(result.error), str(result.error))


def _what_counts(result: RunResult[object]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values, result.run_id


@given(scenario=scenarios())
def test_a_replay_has_no_effect_wherever_the_log_ends(scenario: Scenario) -> None:
    note(repr(scenario))
    play = Play(scenario)
    result = in_loop(play.run())
    before = play.stage.deeds.copy(), len(play.voice.requests)

    for length in range(1, len(result.events)):
        in_loop(_replayed(play, result.events[:length]))
        assert (play.stage.deeds, len(play.voice.requests)) == before, f"after {length} events"


async def _replayed(play: Play, events: Sequence[Event]) -> None:
    try:
        await play.new_runner().replay(events)
    except BatonError:
        return
