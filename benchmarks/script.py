"""The brain behind every contender's stub model: the same answers for all, and proof that they were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.workloads import Outcome, Reply, Workload

StepTool = Callable[[int], Awaitable[str]]


class WrongResult(Exception):
    """A contender finished, but not with what the workload demands."""


class Script:
    """Hands out a workload's replies in order and counts what the contender really did."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.replies = workload.replies
        self.reads_results = workload.shape == "tool_loop"
        """True: the stub must pass the last tool result to `after`. Concurrent runs have no common order to count by,
        and a lost or stale tool result then shows as a wrong count of model calls."""
        self.model_calls = 0
        self.history_read = 0
        self.steps_taken = 0
        self.steps_running = 0
        self.most_steps_running = 0

    def next(self, history_length: int) -> Reply:
        """The reply whose turn it is; every run takes all replies, so the count wraps round at its end."""
        position = self.model_calls % len(self.replies)
        self.model_calls += 1
        self.history_read = history_length
        return self.replies[position]

    def after(self, result: str, history_length: int) -> Reply:
        """The reply that follows a tool result; an empty result means the run has just begun."""
        self.model_calls += 1
        self.history_read = history_length
        return self.replies[int(result) if result else 0]

    async def overlapping(self, history_length: int) -> Reply:
        """The next reply, after a moment in which others can be asked."""
        self.steps_taken += 1
        self.steps_running += 1
        self.most_steps_running = max(self.most_steps_running, self.steps_running)
        await asyncio.sleep(0)
        self.steps_running -= 1
        return self.next(history_length)

    def step_tool(self) -> StepTool:
        """The tool of this workload: it says which step comes next."""

        async def step(n: int) -> str:
            """Take step n and say which one comes next."""
            return str(n + 1)

        async def overlapping_step(n: int) -> str:
            """Take step n and say which one comes next."""
            self.steps_taken += 1
            self.steps_running += 1
            self.most_steps_running = max(self.most_steps_running, self.steps_running)
            await asyncio.sleep(0)
            self.steps_running -= 1
            return str(n + 1)

        overlapping_step.__name__ = "step"
        return overlapping_step if self.workload.shape == "parallel_tools" else step

    def verify(self, outcomes: list[Outcome]) -> None:
        """Raise WrongResult unless every run of a sample did all of its work; then start counting afresh."""
        workload = self.workload
        for outcome in outcomes:
            if outcome != workload.expected:
                raise WrongResult(f"{workload.name}: got {_short(outcome)}, wanted {_short(workload.expected)}")
        wanted_calls = len(outcomes) * workload.copies * len(self.replies)
        if self.model_calls != wanted_calls:
            raise WrongResult(f"{workload.name}: {self.model_calls} model calls, wanted {wanted_calls}")
        # Libraries word a transfer differently, but each must leave the next agent at least one message to read.
        if self.history_read < (workload.least_read or len(self.replies)):
            raise WrongResult(f"{workload.name}: the last model call read only {self.history_read} messages")
        if workload.shape in ("parallel_tools", "branches"):
            self._verify_overlap(len(outcomes) * workload.units)
        self.model_calls = self.history_read = self.steps_taken = self.most_steps_running = 0

    def _verify_overlap(self, wanted_steps: int) -> None:
        if self.steps_taken != wanted_steps:
            raise WrongResult(f"{self.workload.name}: {self.steps_taken} steps were taken, wanted {wanted_steps}")
        if self.most_steps_running < 2:
            raise WrongResult(f"{self.workload.name}: the steps were taken one after the other")


def _short(outcome: Outcome) -> str:
    text = outcome.text if len(outcome.text) <= 40 else f"{outcome.text[:40]}… ({len(outcome.text)} characters)"
    return f"{text!r} from {outcome.agent!r} in {outcome.deltas} deltas"
