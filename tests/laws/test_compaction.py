"""Compaction that loses nothing changes nothing: with a summary that keeps all messages, prompts are the same."""

from collections.abc import Sequence
from random import Random

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests.laws.executions import Execution, run_in_loop
from tests.laws.facts import Conversation, Thread, compactions, conversations
from tests.laws.plans import Scenario
from tests.laws.providers import objections
from tests.laws.strategies import scenarios
from tests.laws.trees import Tree, trees
from tests.laws.workflow_teams import WorkflowTeam, run_to_end

from batonkit import RunResult
from batonkit.agents import Compaction
from batonkit.log import AgentResponded, Event, HistoryCompacted, decode_log, encode_log

_FEW = settings().max_examples // 4


def without_summaries(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Return classes and keys; the keys of events that stop a run have the length of the log."""
    return [
        (type(event).__name__, event.key if event.origin.id else "")
        for event in events
        if not isinstance(event, HistoryCompacted)
    ]


def summary_of(result: RunResult[object]) -> tuple[object, ...]:
    error = None if result.error is None else (type(result.error).__name__, str(result.error))
    return result.status, error, result._output, result.agent, result.messages, result.values


# The history policies, refused transfers and invalid calls of the random scenarios.
@settings(max_examples=settings().max_examples * 2)
@given(scenario=scenarios(), compaction=compactions)
def test_prompts_are_the_same_as_without_compaction(scenario: Scenario, compaction: Compaction) -> None:
    note(f"{scenario!r}\n{compaction!r}")
    plain, compact = Execution(scenario), Execution(scenario, compaction=compaction)
    expected, result = run_in_loop(plain.run()), run_in_loop(compact.run())

    assert compact.model.seen == plain.model.seen
    assert [objections(seen) for seen in compact.model.seen] == [[]] * len(compact.model.seen)
    assert summary_of(result) == summary_of(expected)
    assert without_summaries(result.events) == without_summaries(expected.events)


@settings(max_examples=_FEW * 2)  # Each is run again after each of its events.
@given(scenario=scenarios(), compaction=compactions)
def test_a_compacted_run_survives_a_crash_after_every_event(scenario: Scenario, compaction: Compaction) -> None:
    note(f"{scenario!r}\n{compaction!r}")
    uncrashed = Execution(scenario, compaction=compaction)
    result = run_in_loop(uncrashed.run())
    assume(result.status == "completed")

    for length in range(1, len(result.events)):
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        # The summaries are in the log: a runner without compaction reads them as well.
        for own in (compaction, None):
            resumed = Execution(scenario, compaction=own)
            ended = run_in_loop(resumed.resume_from(recorded))
            responses = sum(isinstance(event, AgentResponded) and bool(event.model) for event in recorded)

            assert resumed.model.seen == uncrashed.model.seen[responses:]
            assert summary_of(ended) == summary_of(result)


# Parallel branches, loops, agents as tools and transfers inside them.
@settings(max_examples=settings().max_examples * 2)
@given(tree=trees(), compaction=compactions)
def test_a_workflow_has_the_same_result_with_compaction(tree: Tree, compaction: Compaction) -> None:
    note(f"{tree!r}\n{compaction!r}")
    expected = run_in_loop(run_to_end(WorkflowTeam(tree, answers_inline=True)))
    ended = run_in_loop(run_to_end(WorkflowTeam(tree, answers_inline=True, compaction=compaction)))

    assert ended.summary == expected.summary
    if not _has_parallel_branches(tree):
        assert without_summaries(ended.events) == without_summaries(expected.events)


def _has_parallel_branches(tree: Tree) -> bool:
    return "parallel" in repr(tree)


@settings(max_examples=_FEW)  # Each is run again after each of its events.
@given(tree=trees(max_agents=6), compaction=compactions, order=st.randoms(use_true_random=False))
def test_a_compacted_workflow_survives_a_crash_after_every_event(
    tree: Tree, compaction: Compaction, order: Random
) -> None:
    note(f"{tree!r}\n{compaction!r}")
    uncrashed = run_in_loop(run_to_end(WorkflowTeam(tree, compaction=compaction), order=order))
    assume(len(uncrashed.events) < 90)

    for length in range(1, len(uncrashed.events)):
        note(f"crashed after {length} events, the last being {uncrashed.events[length - 1]}")
        recorded = decode_log(encode_log(uncrashed.events[:length]))
        ended = run_in_loop(run_to_end(WorkflowTeam(tree, compaction=compaction), recorded, order=order))

        assert ended.summary == uncrashed.summary


@given(tree=trees(), compaction=compactions)
def test_replaying_a_compacted_workflow_reproduces_it(tree: Tree, compaction: Compaction) -> None:
    note(f"{tree!r}\n{compaction!r}")
    team = WorkflowTeam(tree, answers_inline=True, compaction=compaction)
    ended = run_in_loop(run_to_end(team))
    assume(ended.result.status == "completed")

    for own in (compaction, None):
        replaying = WorkflowTeam(tree, answers_inline=True, compaction=own)
        replayed = run_in_loop(replaying.runner().runs.replay(decode_log(encode_log(ended.events))))

        assert replayed.events == ended.events
        assert summary_of(replayed) == summary_of(ended.result)


# Answers are hashes of the facts in the prompts, over the runs of a thread.
@settings(max_examples=settings().max_examples * 2)
@given(conversation=conversations, compaction=compactions)
def test_answers_of_a_thread_are_the_same_as_without_compaction(
    conversation: Conversation, compaction: Compaction
) -> None:
    note(f"{conversation!r}\n{compaction!r}")
    plain, compact = Thread(conversation, None), Thread(conversation, compaction)

    assert run_in_loop(compact.run_all()) == run_in_loop(plain.run_all())
    assert compact.model.invalid == []


@settings(max_examples=_FEW * 2)
@given(conversation=conversations, compaction=compactions, pick=st.integers(0, 10**6))
def test_a_fork_of_a_compacted_run_of_a_thread_has_the_same_answers(
    conversation: Conversation, compaction: Compaction, pick: int
) -> None:
    note(f"{conversation!r}\n{compaction!r}")
    thread = Thread(conversation, compaction)
    said = run_in_loop(thread.run_all())
    last = len(conversation.runs) - 1
    ended, answers = run_in_loop(thread.fork(f"r{last}", pick))

    note(f"forked at {ended}")
    assert answers == said[len(said) - len(answers) :]
