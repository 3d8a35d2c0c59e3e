"""A run that is resumed from a snapshot continues as one that is read from its beginning (performance B3)."""

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import assume, currently_in_test_context, given, note, settings
from hypothesis import strategies as st
from tests.laws.executions import RUN_ID, Execution, run_in_loop
from tests.laws.facts import (
    NAMES,
    Conversation,
    Step,
    Thread,
    compactions,
    conversations,
    identity,
    with_shared_summaries,
)
from tests.laws.plans import Scenario
from tests.laws.snapshots import EverySnapshot, SnapshotStore, check_same, describe, take_often
from tests.laws.strategies import scenarios
from tests.laws.trees import Tree, trees
from tests.laws.workflow_teams import RUN_ID as WORKFLOW_ID
from tests.laws.workflow_teams import WorkflowTeam, run_to_end

from baton import Runner, RunResult
from baton.agents import Compaction
from baton.events import AgentResponded, Event
from baton.stores import MemoryStore


class Snapshotted(Execution):
    """An execution whose runs are in a store, with a snapshot wherever one can be taken."""

    def new_runner(self) -> Runner[Any, Any]:
        return take_often(super().new_runner())


@settings(max_examples=settings().max_examples // 2)  # Each is resumed twice after each of its events.
@given(scenario=scenarios(), compaction=st.none() | compactions)
def test_a_run_continues_the_same_with_and_without_its_snapshots(
    scenario: Scenario, compaction: Compaction | None
) -> None:
    # B3
    note(f"{scenario!r}\n{compaction!r}")

    async def check() -> None:
        store = SnapshotStore()
        events = (await Snapshotted(scenario, compaction=compaction, store=store).run()).events
        for length in range(1, len(events)):
            note(f"resumed after {length} events, the last being {events[length - 1]}")
            found: list[dict[str, object]] = []
            for uses_snapshot in (False, True):
                copy = await store.cut(RUN_ID, length, uses_snapshot=uses_snapshot)
                resumed = Snapshotted(scenario, compaction=compaction, store=copy)
                ended = await resumed.resume_from(events[:length])
                outside = resumed.environment
                effects = {"seen": resumed.model.seen, "effects": outside.effects, "callbacks": outside.callbacks}
                found.append(await describe(ended, resumed.runner) | effects)
            check_same(found)

    with EverySnapshot():
        run_in_loop(check())


# Parallel branches, loops, agents as tools, custom agents and transfers between them.
@settings(max_examples=settings().max_examples // 2)
@given(tree=trees(max_agents=6), compaction=st.none() | compactions)
def test_a_workflow_continues_the_same_with_and_without_its_snapshots(
    tree: Tree, compaction: Compaction | None
) -> None:
    # B3
    note(f"{tree!r}\n{compaction!r}")

    async def check() -> None:
        store = SnapshotStore()
        events = (await run_to_end(SnapshottedTeam(tree, store=store, compaction=compaction))).events
        assume(len(events) < 90)
        for length in range(1, len(events)):
            note(f"resumed after {length} events, the last being {events[length - 1]}")
            found: list[dict[str, object]] = []
            for uses_snapshot in (False, True):
                copy = await store.cut(WORKFLOW_ID, length, uses_snapshot=uses_snapshot)
                team = SnapshottedTeam(tree, store=copy, compaction=compaction)
                ended = await run_to_end(team, is_stored=True)
                seen = [(request.agent, [*request.messages]) for request in team.model.requests]
                found.append(await describe(ended.result, team.runner()) | {"seen": seen, "steps": team.steps_taken})
            check_same(found)

    with EverySnapshot():
        run_in_loop(check())


class SnapshottedTeam(WorkflowTeam):
    """A workflow whose runs are in a store, with a snapshot wherever one can be taken."""

    def runner(self) -> Runner[Any, Any]:
        return take_often(super().runner())


class SnapshottedThread(Thread):
    """A conversation with a snapshot of its runs wherever one can be taken."""

    def __init__(self, conversation: Conversation, compaction: Compaction | None, store: MemoryStore) -> None:
        super().__init__(conversation, compaction)
        self.store = store

    def new_runner(self) -> Runner[Any, Any]:
        return take_often(super().new_runner())

    async def resume(self, number: int, events: Sequence[Event]) -> RunResult[Any]:
        """Resume a run that has these events."""
        self.model.run = number
        self.model.taken = sum(isinstance(event, AgentResponded) and event.agent in NAMES for event in events)
        return await self.new_runner().resume(f"r{number}")


async def _run_thread(thread: SnapshottedThread, number: int) -> list[Event]:
    for earlier in range(number + 1):
        await thread.run(earlier)
    return await thread.new_runner().events(f"r{number}")


async def _check_thread(conversation: Conversation, compaction: Compaction | None, number: int) -> None:
    store = SnapshotStore()
    thread = SnapshottedThread(conversation, compaction, store)
    events = await _run_thread(thread, number)
    for length in range(1, len(events)):
        await _check_cut(thread, store, number, events[:length])


async def _check_cut(thread: SnapshottedThread, store: SnapshotStore, number: int, events: Sequence[Event]) -> None:
    if currently_in_test_context():
        note(f"resumed after {len(events)} events, the last being {events[-1]}")
    found: list[dict[str, object]] = []
    for uses_snapshot in (False, True):
        copy = await store.cut(f"r{number}", len(events), uses_snapshot=uses_snapshot)
        resumed = SnapshottedThread(thread.conversation, thread.compaction, copy)
        result = await resumed.resume(number, events)
        seen = [(request.agent, [*request.messages]) for request in resumed.model.requests]
        found.append(await describe(result, resumed.new_runner()) | {"seen": seen})
    check_same(found)


# History policies, filters and functions; with a summary for all readers, the first entries are left out.
@settings(max_examples=settings().max_examples // 2)
@given(
    conversation=conversations | conversations.map(with_shared_summaries),
    compaction=st.none() | compactions,
    pick=st.integers(0, 10**6),
)
def test_a_run_of_a_thread_continues_the_same_with_and_without_its_snapshots(
    conversation: Conversation, compaction: Compaction | None, pick: int
) -> None:
    # B3
    note(f"{conversation!r}\n{compaction!r}")
    with EverySnapshot():
        run_in_loop(_check_thread(conversation, compaction, pick % len(conversation.runs)))


@given(conversation=conversations.map(with_shared_summaries), compaction=st.none() | compactions, picks=st.randoms())
def test_a_run_continues_the_same_from_the_snapshots_of_a_run_that_continued_from_one(
    conversation: Conversation, compaction: Compaction | None, picks: Random
) -> None:
    # B3
    number = picks.randrange(len(conversation.runs))
    note(f"{conversation!r}\n{compaction!r}, run {number}")

    async def check() -> None:
        store = SnapshotStore()
        events = await _run_thread(SnapshottedThread(conversation, compaction, store), number)
        first = picks.randrange(1, len(events))
        store = await store.cut(f"r{number}", first, uses_snapshot=True)
        thread = SnapshottedThread(conversation, compaction, store)
        await thread.resume(number, events[:first])
        events = await thread.new_runner().events(f"r{number}")
        await _check_cut(thread, store, number, events[: picks.randrange(first, len(events))])

    with EverySnapshot():
        run_in_loop(check())


def test_the_history_of_an_agent_that_is_a_tool_knows_what_was_dropped() -> None:
    # B3: found by the law above.
    steps = (Step("look", 0), Step("look", 0), Step("look", 0), Step("delegate", 0))
    conversation = Conversation(("rewritten", "rewritten", "rewritten"), (steps,))
    compaction = Compaction(at_tokens=1, keep_last=1, summarizer=identity(seed=0))
    with EverySnapshot():
        run_in_loop(_check_thread(conversation, compaction, 0))


def test_messages_that_a_function_has_chosen_are_kept_when_their_entries_are_dropped() -> None:
    # B3: found by the law above.
    steps = (Step("look", 0), Step("look", 0), Step("transfer", 0), Step("look", 0))
    conversation = Conversation(("rewritten", "function", "rewritten"), (steps,))
    compaction = Compaction(at_tokens=1, keep_last=1, summarizer=identity(seed=0))
    with EverySnapshot():
        run_in_loop(_check_thread(conversation, compaction, 0))
