"""Crash at every event: what is recorded is never done again, and the run ends as if nothing had happened (D8)."""

from collections import Counter

from hypothesis import assume, given, note, settings
from tests.laws.plans import AgentPlan, CallPlan, ReplyPlan, RunPlan, Scenario, TeamPlan, ToolPlan
from tests.laws.play import RUN_ID, Play, in_loop
from tests.laws.strategies import scenarios

from baton import RunResult
from baton.events import (
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
    whole = Play(scenario)
    result = in_loop(whole.run())
    assume(result.status == "completed")

    for length in range(1, len(result.events)):
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        after = Play(scenario)
        ended = in_loop(after.take_up(recorded))

        assert _what_counts(ended) == _what_counts(result)
        assert ended.events[:length] == result.events[:length]
        assert _effects(ended.events) == _effects(result.events)
        _check_nothing_was_done_again(whole, after, recorded)


def _what_counts(result: RunResult[object]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values


def _effects(events: tuple[Event, ...]) -> Counter[tuple[str, str]]:
    kinds = (AgentResponded, ToolReturned, StepCompleted, ControlTransferred, InterruptRaised)
    return Counter((type(event).__name__, event.key) for event in events if isinstance(event, kinds))


def _check_nothing_was_done_again(whole: Play, after: Play, recorded: list[Event]) -> None:
    keys = {event.key for event in recorded}
    said = sum(isinstance(event, AgentResponded) and bool(event.model) for event in recorded)
    assert not [key for key in after.stage.deeds if _is_recorded(key, keys)], "what was recorded was done again"
    assert all(count == 1 for count in after.stage.deeds.values())
    assert all(key in after.stage.deeds or _is_recorded(key, keys) for key in whole.stage.deeds), "something is undone"
    assert after.voice.seen == whole.voice.seen[said:], "a model was asked something else than without the crash"


def _is_recorded(idempotency_key: str, recorded: set[str]) -> bool:
    """Whether the log has what came of this effect: a result, or the agent that a function returned."""
    scope = idempotency_key.removeprefix(f"{RUN_ID}:")
    return scope in recorded or f"{scope}/agent" in recorded


def test_the_ledger_and_the_log_speak_of_the_same_effects() -> None:
    calls = (CallPlan("tool"), CallPlan("tool", 1), CallPlan("tool", 2))
    tools = (ToolPlan("ok", "ok"), ToolPlan("stepping", "stepping"), ToolPlan("give_b", "handing", "B"))
    team = TeamPlan((AgentPlan("A", tools), AgentPlan("B")))
    play = Play(Scenario(team, RunPlan(), (ReplyPlan(calls=calls),)))
    result = in_loop(play.run())

    recorded = {event.key for event in result.events}
    assert len(play.stage.deeds) == 4
    assert all(_is_recorded(key, recorded) for key in play.stage.deeds)
