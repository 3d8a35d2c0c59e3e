"""Crash after every event: recorded effects do not happen again, and the run ends as without a crash."""

from collections import Counter

from hypothesis import assume, given, note, settings
from tests.laws.executions import RUN_ID, Execution, run_in_loop
from tests.laws.plans import AgentPlan, CallPlan, ReplyPlan, RunPlan, Scenario, TeamPlan, ToolPlan
from tests.laws.strategies import scenarios

from batonkit import RunResult
from batonkit.log import (
    AgentResponded,
    ControlTransferred,
    Event,
    InterruptRaised,
    StepCompleted,
    ToolReturned,
    decode_log,
    encode_log,
)


@settings(max_examples=settings().max_examples // 2)  # Each is run again after each of its events.
@given(scenario=scenarios())
def test_a_run_survives_a_crash_after_every_event(scenario: Scenario) -> None:
    note(repr(scenario))
    uncrashed = Execution(scenario)
    result = run_in_loop(uncrashed.run())
    assume(result.status == "completed")

    for length in range(1, len(result.events)):
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        resumed = Execution(scenario)
        ended = run_in_loop(resumed.resume_from(recorded))

        assert _summary(ended) == _summary(result)
        assert ended.events[:length] == result.events[:length]
        assert _effects(ended.events) == _effects(result.events)
        _check_no_repeated_effects(uncrashed, resumed, recorded)


def _summary(result: RunResult[object]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values


def _effects(events: tuple[Event, ...]) -> Counter[tuple[str, str]]:
    kinds = (AgentResponded, ToolReturned, StepCompleted, ControlTransferred, InterruptRaised)
    return Counter((type(event).__name__, event.key) for event in events if isinstance(event, kinds))


def _check_no_repeated_effects(uncrashed: Execution, resumed: Execution, recorded: list[Event]) -> None:
    keys = {event.key for event in recorded}
    responses = sum(isinstance(event, AgentResponded) and bool(event.model) for event in recorded)
    assert not [key for key in resumed.environment.effects if _is_recorded(key, keys)], (
        "a recorded effect happened again"
    )
    assert all(count == 1 for count in resumed.environment.effects.values())
    assert all(
        key in resumed.environment.effects or _is_recorded(key, keys) for key in uncrashed.environment.effects
    ), "an effect is missing"
    assert resumed.model.seen == uncrashed.model.seen[responses:], (
        "a model request differs from the run without a crash"
    )


def _is_recorded(idempotency_key: str, recorded: set[str]) -> bool:
    """Return whether the log has the result of this effect, or the agent that a function returned."""
    scope = idempotency_key.removeprefix(f"{RUN_ID}:")
    return scope in recorded or f"{scope}/agent" in recorded


def test_every_effect_has_a_matching_event_in_the_log() -> None:
    calls = (CallPlan("tool"), CallPlan("tool", 1), CallPlan("tool", 2))
    tools = (ToolPlan("ok", "ok"), ToolPlan("stepping", "stepping"), ToolPlan("give_b", "handing", "B"))
    team = TeamPlan((AgentPlan("A", tools), AgentPlan("B")))
    execution = Execution(Scenario(team, RunPlan(), (ReplyPlan(calls=calls),)))
    result = run_in_loop(execution.run())

    recorded = {event.key for event in result.events}
    assert len(execution.environment.effects) == 4
    assert all(_is_recorded(key, recorded) for key in execution.environment.effects)
