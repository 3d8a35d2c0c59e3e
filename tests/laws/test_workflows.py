"""Workflows of any shape have the same result with and without suspensions, partial answers and crashes.

Workflows and agents as tools, compared with an oracle that uses no log.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests.laws.executions import run_in_loop
from tests.laws.oracle import AgentFailure, End, Line, Oracle
from tests.laws.trees import Tree, trees
from tests.laws.workflow_teams import EndedRun, WorkflowTeam, run_to_end

from batonkit.log import AgentResponded, Event, InterruptRaised, StepCompleted, decode_log, encode_log
from batonkit.messages import text_of

_MANY = settings().max_examples * 3
_FEW = settings().max_examples // 4


@settings(max_examples=_MANY)
@given(tree=trees())
def test_a_workflow_gives_the_result_of_plain_recursion(tree: Tree) -> None:
    note(repr(tree))
    inline = run_in_loop(run_to_end(WorkflowTeam(tree, answers_inline=True)))

    _check_against_oracle(inline, tree)


@given(tree=trees(), order=st.randoms(use_true_random=False))
def test_the_order_of_answers_does_not_change_the_result(tree: Tree, order: Random) -> None:
    note(repr(tree))
    inline = run_in_loop(run_to_end(WorkflowTeam(tree, answers_inline=True)))
    team = WorkflowTeam(tree)
    suspended = run_in_loop(run_to_end(team, order=order))
    assume(any(isinstance(event, InterruptRaised) for event in suspended.events))

    assert suspended.summary == inline.summary
    _check_against_oracle(suspended, tree)
    assert team.steps_taken.total() == _step_count(suspended.events), "a step was repeated"
    assert not suspended.result.interrupts or suspended.result.status == "failed"


@settings(max_examples=_FEW)  # Each is run again after each of its events.
@given(tree=trees(max_agents=6), order=st.randoms(use_true_random=False))
def test_a_workflow_survives_a_crash_after_every_event(tree: Tree, order: Random) -> None:
    note(repr(tree))
    team = WorkflowTeam(tree)
    uncrashed = run_in_loop(run_to_end(team, order=order))
    assume(len(uncrashed.events) < 90)

    for length in range(1, len(uncrashed.events)):
        note(f"crashed after {length} events, the last being {uncrashed.events[length - 1]}")
        recorded = decode_log(encode_log(uncrashed.events[:length]))
        resumed_team = WorkflowTeam(tree)
        ended = run_in_loop(run_to_end(resumed_team, recorded, order=order))

        assert ended.summary == uncrashed.summary
        assert _responses(ended.events) == _responses(uncrashed.events)
        assert resumed_team.steps_taken.total() + _step_count(recorded) == team.steps_taken.total(), (
            "a step was repeated or skipped"
        )


@given(tree=trees(), order=st.randoms(use_true_random=False))
def test_replaying_a_completed_workflow_reproduces_it(tree: Tree, order: Random) -> None:
    note(repr(tree))
    team = WorkflowTeam(tree)
    uncrashed = run_in_loop(run_to_end(team, order=order))
    assume(uncrashed.result.status == "completed")
    before = team.steps_taken.copy()

    replayed = EndedRun(run_in_loop(team.runner().runs.replay(decode_log(encode_log(uncrashed.events)))))

    assert team.steps_taken == before
    assert replayed.events == uncrashed.events
    assert replayed.summary == uncrashed.summary


def _check_against_oracle(ended: EndedRun, tree: Tree) -> None:
    oracle, lines, values = Oracle(), [Line(None, "go")], dict[str, Any]()
    end = _expected_end(oracle, tree, lines, values)
    if isinstance(end, AgentFailure):
        assert ended.summary == ("failed", end.kind, end.text)
        return
    result = ended.result
    assert result.status == "completed"
    assert [text_of(message.content) for message in result.messages] == [line.text for line in lines]
    assert (result.values, result.output) == (values, end.output)
    assert _responses(ended.events) == oracle.responses_by_path
    assert _step_count(ended.events) == oracle.steps


def _expected_end(oracle: Oracle, tree: Tree, lines: list[Line], values: dict[str, Any]) -> End | AgentFailure:
    try:
        return oracle.flow(tree, lines, values, ())
    except AgentFailure as failure:
        return failure


def _step_count(events: Sequence[Event]) -> int:
    return sum(isinstance(event, StepCompleted) and event.name == "s" for event in events)


def _responses(events: Sequence[Event]) -> Counter[tuple[tuple[str, ...], str]]:
    return Counter((event.path, event.text) for event in events if isinstance(event, AgentResponded))
