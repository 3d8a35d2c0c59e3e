"""The handoff contract (DESIGN §4) as a state machine: random turns, random teams, all policies."""

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.attended import AttendedRuns
from tests.laws.plans import ReplyPlan, RunPlan, TeamPlan
from tests.laws.play import is_approval
from tests.laws.strategies import answers, approvals, replies, runs, teams

from baton.errors import AnswerError
from baton.tools import Approval

_MOST_STEPS_TO_THE_END = 100


class HandoffContract(RuleBasedStateMachine):
    """Models say what they like, tools take their time, people answer when they please, and runs are cancelled.

    What must come of it is in `contract` (one turn) and `story` (one run); both know nothing of Baton's code.
    """

    attended: AttendedRuns | None = None
    is_broken = False

    @initialize(team=teams(), run=runs, is_streamed=st.booleans())
    def begin(self, team: TeamPlan, run: RunPlan, is_streamed: bool) -> None:
        self.attended = AttendedRuns(team, run, is_streamed=is_streamed)

    @property
    def run(self) -> AttendedRuns:
        assert self.attended is not None
        return self.attended

    @precondition(lambda self: self.run.asked is not None)
    @rule(reply=replies)
    def model_says(self, reply: ReplyPlan) -> None:
        self.run.say(reply)

    @precondition(lambda self: bool(self.run.stage.gates))
    @rule(pick=st.integers(0, 3))
    def tool_goes_on(self, pick: int) -> None:
        self.run.open_gate(pick)

    @precondition(lambda self: self.run.status == "suspended")
    @rule(approval=approvals, answer=answers, how_many=st.integers(0, 4))
    def outside_answers(self, approval: object, answer: object, how_many: int) -> None:
        self.run.resume(_answers(self.run, approval, answer, how_many))

    @precondition(lambda self: self.run.status == "suspended")
    @rule()
    def outside_answers_what_nobody_asked(self) -> None:
        before = self.run.live.events
        with pytest.raises(AnswerError):
            self.run.resume({"nobody/ask1": True})
        assert self.run.live.events == before

    @precondition(lambda self: self.run.status in ("failed", "cancelled"))
    @rule(approval=approvals, answer=answers, how_many=st.integers(0, 4))
    def somebody_takes_it_up(self, approval: object, answer: object, how_many: int) -> None:
        self.run.resume(_answers(self.run, approval, answer, how_many))

    @precondition(lambda self: self.run.status == "running")
    @rule()
    def somebody_cancels(self) -> None:
        self.run.cancel()
        assert self.run.status == "cancelled"

    @precondition(lambda self: self.run.status == "completed")
    @rule()
    def another_run_begins(self) -> None:
        self.run.start()

    @invariant()
    def everything_is_as_the_contract_wants_it(self) -> None:
        if self.attended is not None:
            self.is_broken = True
            self.attended.check()
            self.is_broken = False

    def teardown(self) -> None:
        if self.attended is None:
            return
        try:
            if not self.is_broken:
                self._to_the_end(self.attended)
        finally:
            self.attended.close()

    def _to_the_end(self, run: AttendedRuns) -> None:
        """Every run comes to an end once models only talk and people answer."""
        run.stage.has_open_gates = True
        for _ in range(_MOST_STEPS_TO_THE_END):
            if run.asked is not None:
                run.say(ReplyPlan("enough"))
            elif run.stage.gates:
                run.open_gate(0)
            elif run.status == "suspended":
                run.resume(_answers(run, Approval(True), "yes", 10))
            else:
                break
        note(f"at the end: {run.live.result!r}")
        run.check()
        assert run.status != "running"


def _answers(run: AttendedRuns, approval: object, answer: object, how_many: int) -> dict[str, object]:
    open_questions = run.live.result.interrupts[:how_many]
    return {question.id: approval if is_approval(question) else answer for question in open_questions}


TestHandoffContract = HandoffContract.TestCase
# The most important law, and among the cheapest.
TestHandoffContract.settings = settings(max_examples=3 * settings().max_examples)
