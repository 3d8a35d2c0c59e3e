"""replay(log) == log: replaying a log reproduces the run without any effects."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, note
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import Scenario
from tests.laws.strategies import scenarios

from batonkit import RunResult
from batonkit.errors import BatonError, ReplayMismatchError
from batonkit.log import Event


@given(scenario=scenarios())
def test_replaying_a_completed_run_reproduces_it(scenario: Scenario) -> None:
    note(repr(scenario))
    execution = Execution(scenario)
    result = run_in_loop(execution.run())
    assume(result.status == "completed")
    before = execution.environment.effects.copy(), len(execution.model.requests)

    replayed = run_in_loop(execution.new_runner().runs.replay(result.events))

    assert (execution.environment.effects, len(execution.model.requests)) == before
    assert replayed.events == result.events
    assert _summary(replayed) == _summary(result)


@given(scenario=scenarios())
def test_replaying_a_failed_run_raises_the_same_error(scenario: Scenario) -> None:
    note(repr(scenario))
    execution = Execution(scenario)
    result = run_in_loop(execution.run())
    assume(result.status == "failed")
    before = execution.environment.effects.copy(), len(execution.model.requests)

    with pytest.raises(BatonError) as again:
        run_in_loop(execution.new_runner().runs.replay(result.events))

    assert (execution.environment.effects, len(execution.model.requests)) == before
    assert (type(again.value), str(again.value)) == (type(result.error), str(result.error))


def _summary(result: RunResult[object]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values, result.run_id


@given(scenario=scenarios())
def test_any_prefix_of_a_log_is_replayed_without_effects(scenario: Scenario) -> None:
    note(repr(scenario))
    execution = Execution(scenario)
    result = run_in_loop(execution.run())
    before = execution.environment.effects.copy(), len(execution.model.requests)

    for length in range(1, len(result.events)):
        run_in_loop(_replay(execution, result.events[:length]))
        assert (execution.environment.effects, len(execution.model.requests)) == before, f"after {length} events"


async def _replay(execution: Execution, events: Sequence[Event]) -> None:
    try:
        replayed = await execution.new_runner().runs.replay(events)
    except ReplayMismatchError:
        raise
    except BatonError:
        return
    assert replayed.events == tuple(events)
