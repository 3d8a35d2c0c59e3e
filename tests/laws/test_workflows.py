"""Workflows of any shape: stopped, answered in parts, crashed and taken up, they come to the same as without all that.

W1 to W6, A1 to A4 and T22, against an oracle that knows no log.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests.laws.floor import Ended, Floor, run_to_end
from tests.laws.oracle import End, Line, Oracle, Trouble
from tests.laws.play import in_loop
from tests.laws.trees import Tree, trees

from baton.events import AgentResponded, Event, InterruptRaised, StepCompleted, decode_log, encode_log
from baton.messages import text_of

_MANY = settings().max_examples * 3
_FEW = settings().max_examples // 4


@settings(max_examples=_MANY)
@given(tree=trees())
def test_a_workflow_comes_to_what_plain_recursion_comes_to(tree: Tree) -> None:
    note(repr(tree))
    known = in_loop(run_to_end(Floor(tree, is_known=True)))

    _check_against_oracle(known, tree)


@given(tree=trees(), order=st.randoms(use_true_random=False))
def test_questions_answered_in_any_order_come_to_the_same(tree: Tree, order: Random) -> None:
    note(repr(tree))
    known = in_loop(run_to_end(Floor(tree, is_known=True)))
    floor = Floor(tree)
    asked = in_loop(run_to_end(floor, order=order))
    assume(any(isinstance(event, InterruptRaised) for event in asked.events))

    assert asked.what_counts == known.what_counts
    _check_against_oracle(asked, tree)
    assert floor.taken.total() == _steps(asked.events), "a step was taken again"
    assert not asked.result.interrupts or asked.result.status == "failed"


@settings(max_examples=_FEW)  # Each is run again after each of its events.
@given(tree=trees(most_agents=6), order=st.randoms(use_true_random=False))
def test_a_workflow_survives_a_crash_after_every_event(tree: Tree, order: Random) -> None:
    note(repr(tree))
    floor = Floor(tree)
    whole = in_loop(run_to_end(floor, order=order))
    assume(len(whole.events) < 90)

    for length in range(1, len(whole.events)):
        note(f"crashed after {length} events, the last being {whole.events[length - 1]}")
        recorded = decode_log(encode_log(whole.events[:length]))
        after = Floor(tree)
        ended = in_loop(run_to_end(after, recorded, order=order))

        assert ended.what_counts == whole.what_counts
        assert _said(ended.events) == _said(whole.events)
        assert after.taken.total() + _steps(recorded) == floor.taken.total(), "a step was taken again, or never"


@given(tree=trees(), order=st.randoms(use_true_random=False))
def test_a_finished_workflow_is_replayed_as_it_was(tree: Tree, order: Random) -> None:
    note(repr(tree))
    floor = Floor(tree)
    whole = in_loop(run_to_end(floor, order=order))
    assume(whole.result.status == "completed")
    before = floor.taken.copy()

    replayed = Ended(in_loop(floor.runner().replay(decode_log(encode_log(whole.events)))))

    assert floor.taken == before
    assert replayed.events == whole.events
    assert replayed.what_counts == whole.what_counts


def _check_against_oracle(ended: Ended, tree: Tree) -> None:
    oracle, lines, values = Oracle(), [Line(None, "go")], dict[str, Any]()
    end = _end_of(oracle, tree, lines, values)
    if isinstance(end, Trouble):
        assert ended.what_counts == ("failed", end.kind, end.text)
        return
    result = ended.result
    assert result.status == "completed"
    assert [text_of(message.content) for message in result.messages] == [line.text for line in lines]
    assert (result.values, result.output) == (values, end.output)
    assert _said(ended.events) == oracle.spoken
    assert _steps(ended.events) == oracle.steps


def _end_of(oracle: Oracle, tree: Tree, lines: list[Line], values: dict[str, Any]) -> End | Trouble:
    try:
        return oracle.flow(tree, lines, values, ())
    except Trouble as trouble:
        return trouble


def _steps(events: Sequence[Event]) -> int:
    return sum(isinstance(event, StepCompleted) and event.name == "s" for event in events)


def _said(events: Sequence[Event]) -> Counter[tuple[tuple[str, ...], str]]:
    return Counter((event.path, event.text) for event in events if isinstance(event, AgentResponded))
