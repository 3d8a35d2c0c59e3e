"""Logs of realtime sessions: replay, crashes after every event, and resuming."""

from collections import Counter
from collections.abc import Iterable, Sequence
from tempfile import TemporaryDirectory
from typing import Any, get_args

from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from tests.laws.clockless import without_a_clock
from tests.laws.executions import run_in_loop
from tests.laws.realtime_sessions import RUN_ID, SessionExecution, SessionPlan, session_plans
from tests.laws.realtime_teams import make_realtime_runner
from tests.laws.teams import Environment

from batonkit import RunResult
from batonkit.log import (
    AgentResponded,
    Event,
    InterruptRaised,
    RunCompleted,
    RunFailed,
    StepCompleted,
    ToolReturned,
    decode_lines,
    decode_log,
    encode_log,
)
from batonkit.log.fold import history_from_log
from batonkit.messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from batonkit.stores import SQLiteStore
from batonkit.testing.crash_lab import CrashingStore, Moment

_HANDOFF_INPUT = "handed over with:"


@given(plan=session_plans())
def test_a_replayed_session_has_the_same_log(plan: SessionPlan) -> None:
    note(repr(plan))
    execution = SessionExecution(plan)
    result = without_a_clock(execution.run())
    event(f"ends {result.status} {type(result.error).__name__ if result.error else ''}")
    assert not execution.complaints()

    _check_history(result)
    before = execution.environment.effects.copy(), len(execution.model.requests), len(execution.model.connections)
    if result.status == "completed":
        replayed = run_in_loop(
            make_realtime_runner(plan.setup, execution.environment, execution.model).text_runner.runs.replay(
                result.events
            )
        )
        assert replayed.events == result.events
        assert _comparable(replayed) == _comparable(result)
    assert (execution.environment.effects, len(execution.model.requests), len(execution.model.connections)) == before
    assert all(count == 1 for count in execution.environment.effects.values()), "an effect happened twice"


@settings(max_examples=settings().max_examples // 3)  # Each session is resumed after each of its events.
@given(plan=session_plans())
def test_a_session_survives_a_crash_after_every_event(plan: SessionPlan) -> None:
    note(repr(plan))
    result = without_a_clock(SessionExecution(plan).run())

    for length in range(1, len(result.events)):
        if any(isinstance(each, RunCompleted) for each in result.events[:length]):
            break
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        resumed = SessionExecution(plan, number=1000, replies=())
        ended = without_a_clock(resumed.resume(recorded))

        assert not resumed.complaints()
        assert ended.events[:length] == tuple(recorded)
        assert ended.status in ("completed", "failed"), ended.interrupts
        _check_history(ended)
        _check_no_repeated_effects(resumed, recorded, ended.events)


@settings(max_examples=settings().max_examples // 5)  # Each session is run again for each of its events.
@given(plan=session_plans(), moment=st.sampled_from(get_args(Moment)))
def test_a_stored_session_survives_a_crash_of_its_process(plan: SessionPlan, moment: Moment) -> None:
    note(repr(plan))
    complete_store = CrashingStore()
    without_a_clock(SessionExecution(plan).run(store=complete_store))
    length = complete_store.commits[-1]

    for crash_at in range(1, length):
        note(f"died at event {crash_at}, {moment}")
        store, environment = CrashingStore(), Environment()
        store.die_at(crash_at, moment)
        without_a_clock(SessionExecution(plan, environment=environment).run(store=store))
        if not store.is_dead:
            continue
        store.next_process()
        events = without_a_clock(_load_events(store))
        resumed = SessionExecution(plan, number=1000, replies=(), environment=environment)
        ended = without_a_clock(resumed.resume(store=store))

        assert not resumed.complaints()
        assert ended.status in ("completed", "failed"), ended.interrupts
        assert ended.events[: len(events)] == tuple(events)
        _check_history(ended)
        _check_once_tools(environment, plan)


@settings(max_examples=max(10, settings().max_examples // 8))  # Each session has its own database.
@given(plan=session_plans(), cut=st.integers(1, 60))
def test_a_session_in_sqlite_can_be_resumed_after_any_event(plan: SessionPlan, cut: int) -> None:
    note(repr(plan))
    result = without_a_clock(SessionExecution(plan).run())
    # A fork must not start with the end of the original run.
    events = [each for each in result.events if not isinstance(each, RunCompleted | RunFailed)]
    recorded = events[: 1 + cut % len(events)]
    resumed = SessionExecution(plan, number=1000, replies=())
    with TemporaryDirectory() as directory:
        store = SQLiteStore(f"{directory}/runs.db")
        ended = run_in_loop(resumed.resume_with_clock(recorded, store=store))

    assert not resumed.complaints()
    assert ended.status in ("completed", "failed"), ended.interrupts
    assert [each.key for each in ended.events[1 : len(recorded)]] == [each.key for each in recorded[1:]]
    _check_history(ended)
    _check_no_repeated_effects(resumed, recorded, ended.events)


async def _load_events(store: CrashingStore) -> list[Event]:
    return decode_lines(await store.load(RUN_ID))


def _check_once_tools(environment: Environment, plan: SessionPlan) -> None:
    """Check that tools with the effect `once` ran once over all processes."""
    once = {tool.name for agent in plan.setup.team.agents for tool in agent.tools if tool.is_once}
    assert not [
        key
        for key, source in environment.effect_sources.items()
        if source.tool in once and environment.effects[key] > 1
    ]


def _comparable(result: RunResult[Any]) -> tuple[object, ...]:
    return result.status, result.agent, result.messages, result.values, result.run_id


def _check_history(result: RunResult[Any]) -> None:
    """Check that the history agrees with the log, and each call has one result that follows it."""
    assert _without_payloads(entry.message for entry in history_from_log(result.events)) == _without_payloads(
        result.messages
    )
    open_calls: set[str] = set()
    call_counts: Counter[str] = Counter()
    for message in result.messages:
        if isinstance(message, AssistantMessage):
            open_calls |= {call.id for call in message.tool_calls}
            call_counts.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            assert message.tool_call_id in open_calls, f"a result without an open call `{message.tool_call_id}`"
            open_calls.remove(message.tool_call_id)
    assert not open_calls, "calls without a result"
    assert all(count == 1 for count in call_counts.values()), "a call id was used twice"


def _without_payloads(messages: Iterable[Message]) -> list[Message]:
    """Remove the messages with handoff inputs, which a log alone does not contain."""
    return [
        each for each in messages if not (isinstance(each, UserMessage) and _HANDOFF_INPUT in text_of(each.content))
    ]


def _check_no_repeated_effects(resumed: SessionExecution, recorded: Sequence[Event], events: Sequence[Event]) -> None:
    keys = {each.key for each in recorded}
    executed = {key.removeprefix(f"{RUN_ID}:") for key in resumed.environment.effects}
    assert not [scope for scope in executed if scope in keys or f"{scope}/agent" in keys], (
        "a recorded effect happened again"
    )
    assert all(count == 1 for count in resumed.environment.effects.values())
    started = {each.key.rpartition("/intent")[0] for each in recorded if _is_intent(each)}
    finished = {each.key for each in recorded if isinstance(each, ToolReturned)}
    assert not (started - finished) & executed, "a tool with the effect once was started again"
    interrupts = {each.key for each in events if isinstance(each, InterruptRaised)}
    ended = {each.key for each in events if isinstance(each, ToolReturned)}
    for scope in (started - finished) & ended:
        assert any(key.startswith(f"{scope}/unknown") for key in interrupts), (
            f"no interrupt asked for the outcome of {scope}"
        )
    responses = [each.key for each in events if isinstance(each, AgentResponded)]
    assert len(responses) == len(set(responses))


def _is_intent(each: Event) -> bool:
    return isinstance(each, StepCompleted) and "/intent" in each.key
