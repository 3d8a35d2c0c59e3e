"""The laws of the log for live conversations: whoever speaks when, and wherever it breaks off (D8, D13, R2, R8, R9)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from tempfile import TemporaryDirectory
from typing import Any, get_args

from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from tests.laws.clockless import without_a_clock
from tests.laws.executions import run_in_loop
from tests.laws.live_play import RUN_ID, LivePlan, LivePlay, live_plans
from tests.laws.live_stage import live_runner
from tests.laws.teams import Environment

from baton import RunResult
from baton.events import (
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
from baton.flow.log_history import history_from_log
from baton.messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from baton.stores import SQLiteStore
from baton.testing.crash_lab import CrashingStore, Moment

_HANDED_OVER = "handed over with:"


@given(plan=live_plans())
def test_a_live_conversation_is_replayed_as_it_was(plan: LivePlan) -> None:
    note(repr(plan))
    play = LivePlay(plan)
    result = without_a_clock(play.hold())
    event(f"ends {result.status} {type(result.error).__name__ if result.error else ''}")
    assert not play.complaints()

    _check_history(result)
    before = play.stage.effects.copy(), len(play.model.requests), len(play.model.connections)
    if result.status == "completed":
        again = run_in_loop(live_runner(plan.desk, play.stage, play.model).text_runner.replay(result.events))
        assert again.events == result.events
        assert _what_counts(again) == _what_counts(result)
    assert (play.stage.effects, len(play.model.requests), len(play.model.connections)) == before
    assert all(count == 1 for count in play.stage.effects.values()), "something was done twice"


@settings(max_examples=settings().max_examples // 3)  # Each is taken up again after each of its events.
@given(plan=live_plans())
def test_a_live_conversation_survives_a_crash_after_every_event(plan: LivePlan) -> None:
    note(repr(plan))
    result = without_a_clock(LivePlay(plan).hold())

    for length in range(1, len(result.events)):
        if any(isinstance(each, RunCompleted) for each in result.events[:length]):
            break
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        after = LivePlay(plan, number=1000, replies=())
        ended = without_a_clock(after.take_up(recorded))

        assert not after.complaints()
        assert ended.events[:length] == tuple(recorded)
        assert ended.status in ("completed", "failed"), ended.interrupts
        _check_history(ended)
        _check_nothing_was_done_again(after, recorded, ended.events)


@settings(max_examples=settings().max_examples // 5)  # Each is held again for each of its events.
@given(plan=live_plans(), moment=st.sampled_from(get_args(Moment)))
def test_a_kept_conversation_survives_the_death_of_its_process(plan: LivePlan, moment: Moment) -> None:
    note(repr(plan))
    whole = CrashingStore()
    without_a_clock(LivePlay(plan).hold(store=whole))
    length = whole.commits[-1]

    for last in range(1, length):
        note(f"died at event {last}, {moment}")
        store, stage = CrashingStore(), Environment()
        store.die_at(last, moment)
        without_a_clock(LivePlay(plan, stage=stage).hold(store=store))
        if not store.is_dead:
            continue
        store.next_process()
        events = without_a_clock(_stored(store))
        after = LivePlay(plan, number=1000, replies=(), stage=stage)
        ended = without_a_clock(after.take_up(store=store))

        assert not after.complaints()
        assert ended.status in ("completed", "failed"), ended.interrupts
        assert ended.events[: len(events)] == tuple(events)
        _check_history(ended)
        _check_what_must_happen_once(stage, plan)


@settings(max_examples=max(10, settings().max_examples // 8))  # Each has a database of its own.
@given(plan=live_plans(), cut=st.integers(1, 60))
def test_a_conversation_in_sqlite_goes_on_after_any_event(plan: LivePlan, cut: int) -> None:
    note(repr(plan))
    result = without_a_clock(LivePlay(plan).hold())
    # How it ended is not part of what another run begins with.
    happened = [each for each in result.events if not isinstance(each, RunCompleted | RunFailed)]
    recorded = happened[: 1 + cut % len(happened)]
    after = LivePlay(plan, number=1000, replies=())
    with TemporaryDirectory() as directory:
        store = SQLiteStore(f"{directory}/runs.db")
        ended = run_in_loop(after.take_up_by_the_clock(recorded, store=store))

    assert not after.complaints()
    assert ended.status in ("completed", "failed"), ended.interrupts
    assert [each.key for each in ended.events[1 : len(recorded)]] == [each.key for each in recorded[1:]]
    _check_history(ended)
    _check_nothing_was_done_again(after, recorded, ended.events)


async def _stored(store: CrashingStore) -> list[Event]:
    return decode_lines(await store.load(RUN_ID))


def _check_what_must_happen_once(stage: Environment, plan: LivePlan) -> None:
    """What processes did, the dead and the living together: what must not happen twice has not."""
    once = {tool.name for agent in plan.desk.team.agents for tool in agent.tools if tool.is_once}
    assert not [key for key, source in stage.effect_sources.items() if source.tool in once and stage.effects[key] > 1]


def _what_counts(result: RunResult[Any]) -> tuple[object, ...]:
    return result.status, result.agent, result.messages, result.values, result.run_id


def _check_history(result: RunResult[Any]) -> None:
    """The session's own history is what the log says, and each call in it has one result, behind it."""
    assert _without_payloads(entry.message for entry in history_from_log(result.events)) == _without_payloads(
        result.messages
    )
    waiting: set[str] = set()
    seen: Counter[str] = Counter()
    for message in result.messages:
        if isinstance(message, AssistantMessage):
            waiting |= {call.id for call in message.tool_calls}
            seen.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, f"a result for `{message.tool_call_id}`, which waits for none"
            waiting.remove(message.tool_call_id)
    assert not waiting, "calls without a result"
    assert all(count == 1 for count in seen.values()), "a call id was used twice"


def _without_payloads(messages: Iterable[Message]) -> list[Message]:
    """What handoffs with input have told the next agent is not read from a log alone."""
    return [each for each in messages if not (isinstance(each, UserMessage) and _HANDED_OVER in text_of(each.content))]


def _check_nothing_was_done_again(after: LivePlay, recorded: Sequence[Event], events: Sequence[Event]) -> None:
    keys = {each.key for each in recorded}
    done = {key.removeprefix(f"{RUN_ID}:") for key in after.stage.effects}
    assert not [scope for scope in done if scope in keys or f"{scope}/agent" in keys], (
        "what was recorded was done again"
    )
    assert all(count == 1 for count in after.stage.effects.values())
    begun = {each.key.rpartition("/intent")[0] for each in recorded if _is_intent(each)}
    known = {each.key for each in recorded if isinstance(each, ToolReturned)}
    assert not (begun - known) & done, "what must not be done twice was begun again"
    asked = {each.key for each in events if isinstance(each, InterruptRaised)}
    ended = {each.key for each in events if isinstance(each, ToolReturned)}
    for scope in (begun - known) & ended:
        assert any(key.startswith(f"{scope}/unknown") for key in asked), f"nobody asked what became of {scope}"
    said = [each.key for each in events if isinstance(each, AgentResponded)]
    assert len(said) == len(set(said))


def _is_intent(each: Event) -> bool:
    return isinstance(each, StepCompleted) and "/intent" in each.key
