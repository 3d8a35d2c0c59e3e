"""The log of a stored run restores exactly the requests that its models received."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from hypothesis import given, note
from hypothesis import strategies as st
from tests.laws.executions import RUN_ID, Execution, run_in_loop
from tests.laws.facts import Conversation, Thread, compactions, conversations
from tests.laws.plans import Scenario
from tests.laws.strategies import scenarios
from tests.laws.trees import Tree, trees
from tests.laws.workflow_teams import WorkflowTeam, run_to_end

from batonkit import Runner
from batonkit.agents import Compaction, HistoryPolicy
from batonkit.inspection.shown_requests import view_compared
from batonkit.log import AgentResponded, HistoryEntry
from batonkit.messages import Message
from batonkit.models import ModelRequest
from batonkit.stores import MemoryStore
from batonkit.team import RecordedRequest


def _every_second(entries: Sequence[HistoryEntry]) -> list[Message]:
    return [entry.message for entry in entries if entry.is_user_input or entry.is_answer]


POLICIES: list[HistoryPolicy] = ["rewritten", "verbatim", "lineage", "answers", "none", _every_second]


def _describe(request: ModelRequest | RecordedRequest) -> str:
    rest = (request.tools, request.settings, request.output_schema, request.tool_choice, request.instructions)
    return msgspec.json.encode((request.agent, tuple(request.messages), *rest)).decode()


def check_requests(runner: Runner[Any, Any], run_id: str, sent: Sequence[ModelRequest], status: str) -> None:
    """Compare the restored requests with those that were sent."""
    restored, events = run_in_loop(runner.runs.requests(run_id)), run_in_loop(runner.runs.events(run_id))
    responses = [event for event in events if isinstance(event, AgentResponded) and event.model]
    assert [*restored] == [event.key for event in responses]
    lost = Counter(map(_describe, sent))
    lost.subtract(map(_describe, restored.values()))
    assert min(lost.values(), default=0) >= 0, "a restored request was never sent"
    # The response to a request that exceeds a limit is not recorded.
    assert lost.total() <= (0 if status == "completed" else 1)
    # The views for display have the same messages, and a handoff accounts for all that the receiver read.
    for key, request in restored.items():
        view = view_compared(restored, events, key)
        assert tuple([each.message for each in view.messages]) == request.messages
        if view.handoff is not None:
            read = [each.message for each in view.handoff.messages if each.mark != "withheld"]
            assert tuple(read) == request.messages


@given(scenario=scenarios(), policy=st.sampled_from(POLICIES), compaction=st.none() | compactions)
def test_the_requests_of_any_run_are_restored(
    scenario: Scenario, policy: HistoryPolicy, compaction: Compaction | None
) -> None:
    note(repr(scenario))
    execution = Execution(scenario, projection=policy, compaction=compaction)
    execution.runner = execution.runner.clone(store=MemoryStore())
    result = run_in_loop(execution.run())
    check_requests(execution.runner, RUN_ID, execution.model.requests, result.status)


@given(tree=trees(), order=st.randoms(use_true_random=False), compaction=st.none() | compactions)
def test_the_requests_of_any_workflow_are_restored(tree: Tree, order: Random, compaction: Compaction | None) -> None:
    note(repr(tree))
    team = WorkflowTeam(tree, store=MemoryStore(), compaction=compaction)
    ended = run_in_loop(run_to_end(team, order=order))
    check_requests(team.runner(), ended.result.run_id, team.model.requests, ended.result.status)


@given(conversation=conversations, compaction=st.none() | compactions, pick=st.integers(0, 10**6))
def test_the_requests_of_any_thread_are_restored_also_after_runs_were_deleted(
    conversation: Conversation, compaction: Compaction | None, pick: int
) -> None:
    note(f"{conversation!r}\n{compaction!r}")
    thread = Thread(conversation, compaction)
    run_in_loop(thread.run_all())
    run_ids = [f"r{number}" for number in range(len(conversation.runs))]
    runner = thread.new_runner()
    whole = {run_id: run_in_loop(runner.runs.requests(run_id)) for run_id in run_ids}
    restored = [request for requests in whole.values() for request in requests.values()]
    assert Counter(map(_describe, restored)) == Counter(map(_describe, thread.model.requests))

    deleted = pick % len(run_ids)
    for run_id in run_ids[:deleted]:
        run_in_loop(thread.store.delete(run_id))
    for run_id in run_ids[deleted:]:
        for key, request in run_in_loop(runner.runs.requests(run_id)).items():
            before = whole[run_id][key]
            remaining = iter(before.messages)
            assert all(message in remaining for message in request.messages), "nothing else, in the same order"
            own = [m for m, source in zip(before.messages, before.sources, strict=True) if source.run_id == run_id]
            assert all(message in request.messages for message in own), "the log of the run itself has it"
            assert (request.instructions, request.tools) == (before.instructions, before.tools)
