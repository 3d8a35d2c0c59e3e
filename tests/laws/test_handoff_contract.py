"""The handoff contract as a state machine: random turns, random teams, all policies."""

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.executions import fitting, is_approval
from tests.laws.plans import ReplyPlan, RunPlan, TeamPlan
from tests.laws.stepped_runs import SteppedRuns
from tests.laws.strategies import answers, approvals, replies, runs, teams

from batonkit.errors import AnswerError
from batonkit.tools import Approval

_MAX_STEPS = 100


class HandoffContract(RuleBasedStateMachine):
    """Models reply at random, tools block, interrupts are answered at any time, and runs are cancelled.

    `contract` (one turn) and `log_checker` (one run) compute the expected outcome independently of Baton's code.
    """

    runs_under_test: SteppedRuns | None = None
    has_failed = False

    @initialize(team=teams(), run=runs, is_streamed=st.booleans())
    def begin(self, team: TeamPlan, run: RunPlan, is_streamed: bool) -> None:
        self.runs_under_test = SteppedRuns(team, run, is_streamed=is_streamed)

    @property
    def run(self) -> SteppedRuns:
        assert self.runs_under_test is not None
        return self.runs_under_test

    @precondition(lambda self: self.run.pending_request is not None)
    @rule(reply=replies)
    def model_replies(self, reply: ReplyPlan) -> None:
        self.run.say(reply)

    @precondition(lambda self: bool(self.run.environment.gates))
    @rule(pick=st.integers(0, 3))
    def unblock_tool(self, pick: int) -> None:
        self.run.open_gate(pick)

    @precondition(lambda self: self.run.status == "suspended")
    @rule(approval=approvals, answer=answers, how_many=st.integers(0, 4))
    def answer_interrupts(self, approval: object, answer: object, how_many: int) -> None:
        self.run.resume(_answers(self.run, approval, answer, how_many))

    @precondition(lambda self: self.run.status == "suspended")
    @rule()
    def answer_unknown_interrupt(self) -> None:
        before = self.run.live.events
        with pytest.raises(AnswerError):
            self.run.refuse_to_resume({"unknown/ask1": True})
        assert self.run.live.events == before

    @precondition(lambda self: self.run.status in ("failed", "cancelled"))
    @rule(approval=approvals, answer=answers, how_many=st.integers(0, 4))
    def resume_run(self, approval: object, answer: object, how_many: int) -> None:
        self.run.resume(_answers(self.run, approval, answer, how_many))

    @precondition(lambda self: self.run.status == "running")
    @rule()
    def cancel_run(self) -> None:
        self.run.cancel()
        assert self.run.status == "cancelled"

    @precondition(lambda self: self.run.status == "completed")
    @rule()
    def start_another_run(self) -> None:
        self.run.start()

    @invariant()
    def contract_holds(self) -> None:
        if self.runs_under_test is not None:
            self.has_failed = True
            self.runs_under_test.check()
            self.has_failed = False

    def teardown(self) -> None:
        if self.runs_under_test is None:
            return
        try:
            if not self.has_failed:
                self._run_to_end(self.runs_under_test)
        finally:
            self.runs_under_test.close()

    def _run_to_end(self, run: SteppedRuns) -> None:
        """Assert that every run ends once models make no more calls and all interrupts are answered."""
        run.environment.has_open_gates = True
        for _ in range(_MAX_STEPS):
            if run.pending_request is not None:
                run.say(ReplyPlan("enough"))
            elif run.environment.gates:
                run.open_gate(0)
            elif run.status == "suspended":
                run.resume(_answers(run, Approval(True), "yes", 10))
            else:
                break
        note(f"at the end: {run.live.result!r}")
        run.check()
        assert run.status != "running"


def _answers(run: SteppedRuns, approval: object, answer: object, how_many: int) -> dict[str, object]:
    open_questions = run.live.result.interrupts[:how_many]
    return {
        question.id: fitting(question, approval if is_approval(question) else answer) for question in open_questions
    }


TestHandoffContract = HandoffContract.TestCase
# The most important property, and among the cheapest to test.
TestHandoffContract.settings = settings(max_examples=3 * settings().max_examples)
