"""The parallel agent: branches on copies of one history, joined in the order of declaration."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from time import time
from typing import Any, Literal

from msgspec import Struct

from .._checks import check_arguments, check_choice
from .._wording import error_text, show
from ..agents import AgentContext, AgentHooks, BaseAgent
from ..agents.agent_context import Answer, FlowOutcome
from ..agents.hooks import run_with_deadline
from ..context.run_context import most_severe
from ..context.run_state import ends_run
from ..context.values import TrackedValues
from ..errors import BranchesFailedError, BranchTimeoutError, SetupError
from ..handoffs import Handoff
from ..log import Action, BreakLoop, CancelTask, Exit, Finish, StepCompleted, keys
from ..log.history import History
from .reducers import Reducer
from .sequential import Workflow

_logger = logging.getLogger("baton.workflows")


class _Branch(Struct):
    """A running sub-agent with its own history and values."""

    place: str
    step: BaseAgent[Any, Any]
    history: History
    values: TrackedValues
    outcome: FlowOutcome | None = None
    failed: StepCompleted | None = None
    """The report of its error, if the error was ignored."""


class ParallelAgent(Workflow[dict[str, Any]]):
    """An agent that runs all its sub-agents concurrently. Its output is a dict of their outputs.

    A branch does not read the messages of the other branches; agents that run later read all of them.

    Args:
        name: The name of the agent.
        sub_agents: The branches, at least one.
        description: The description for models that may transfer to it.
        max_concurrency: Maximum number of branches that run at once; None for no limit.
        on_error: "collect" lets all branches end and then raises BranchesFailedError, "fail_fast" cancels the others
            at the first error, "ignore" continues without the failed branches.
        branch_timeout: Maximum seconds per branch; None for no limit.
        reducers: Functions that merge a value that several branches wrote, by key. Without one, the branch that is
            declared last wins.
        handoffs: The agents that it can transfer to.
        hooks: Hooks for its start, end and handoffs.
    """

    @check_arguments
    def __init__(
        self,
        name: str,
        *,
        sub_agents: Sequence[BaseAgent[Any, Any]],
        description: str = "",
        max_concurrency: int | None = None,
        on_error: Literal["collect", "fail_fast", "ignore"] = "collect",
        branch_timeout: float | None = None,
        reducers: Mapping[str, Reducer] | None = None,
        handoffs: Sequence[BaseAgent[Any, Any] | Handoff | str] = (),
        hooks: AgentHooks | None = None,
    ) -> None:
        super().__init__(name, sub_agents=sub_agents, description=description, handoffs=handoffs, hooks=hooks)
        check_choice(f"on_error of `{name}`", on_error, ("collect", "fail_fast", "ignore"))
        if max_concurrency is not None and not (_is_number(max_concurrency, int) and max_concurrency >= 1):
            raise SetupError(
                f"`{name}` has max_concurrency={show(max_concurrency)}; give at least 1, or None for no limit"
            )
        if branch_timeout is not None and not (_is_number(branch_timeout, int, float) and branch_timeout > 0):
            raise SetupError(
                f"`{name}` has branch_timeout={show(branch_timeout)}; give seconds above 0, or None for no limit"
            )
        for key, reducer in (reducers or {}).items():
            if not callable(reducer):
                raise SetupError(f"`{name}` has reducers[{key!r}]={show(reducer)}; give a function (current, written)")
        self.max_concurrency = max_concurrency
        self.on_error = on_error
        self.branch_timeout = branch_timeout
        self.reducers = dict(reducers or {})
        self._names = _unique_names([step.name for step in self.sub_agents])

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the branches, then join their histories and values.

        Args:
            ctx: The context of the activation.
        """
        mark = len(ctx._history.entries)
        branches = [
            _Branch(str(place), step, ctx._history.fork(), TrackedValues(dict(ctx._run.values)))
            for place, step in enumerate(self.sub_agents)
        ]
        try:
            await self._run_all(ctx, branches)
        finally:
            # Also if the run stops here: its result shows the messages so far.
            for branch in branches:
                if branch.failed is None:
                    ctx._history.join(branch.history, mark)
                else:
                    ctx._history.apply(branch.failed, ctx._origin)
        self._merge(ctx, branches)
        named = zip(self._names, branches, strict=True)
        outcomes = {name: branch.outcome for name, branch in named if branch.outcome is not None}
        said = tuple([key for outcome in outcomes.values() for key in outcome.answer.said])
        ctx._answer = Answer({name: outcome.output for name, outcome in outcomes.items()}, said)
        return _strongest([*outcomes.values()], ctx)

    async def _run_all(self, ctx: AgentContext[Any], branches: Sequence[_Branch]) -> None:
        limit = nullcontext() if self.max_concurrency is None else asyncio.Semaphore(self.max_concurrency)
        tasks = [asyncio.create_task(self._run_branch(ctx, branch, limit)) for branch in branches]
        if self.on_error == "fail_fast":
            for task in tasks:
                task.add_done_callback(partial(_cancel_others, tasks))
        results: list[FlowOutcome | BaseException | None] = await asyncio.gather(*tasks, return_exceptions=True)
        raised = dict[str, BaseException]()
        for name, branch, result in zip(self._names, branches, results, strict=True):
            if isinstance(result, BaseException):
                raised[name] = result
            else:
                branch.outcome = result
        if raised:
            self._raise_first(raised)

    def _raise_first(self, raised: Mapping[str, BaseException]) -> None:
        errors = {name: error for name, error in raised.items() if isinstance(error, Exception)}
        for error in errors.values():
            if self.on_error == "fail_fast" or ends_run(error):
                raise error
        # Interrupts first: failed branches are tried again when the answer is there.
        others = [error for error in raised.values() if not isinstance(error, Exception)]
        if others:
            raise most_severe(others)
        raise BranchesFailedError(self.name, errors) from next(iter(errors.values()))

    async def _run_branch(
        self, ctx: AgentContext[Any], branch: _Branch, limit: AbstractAsyncContextManager[None]
    ) -> FlowOutcome | None:
        """Run a branch under the concurrency limit; return None if its error was ignored."""
        log = ctx._run.log
        inside = keys.inside(ctx._scope, branch.place)
        key = keys.failure(inside)
        failed = log.find(key, StepCompleted) if log.has_past else None
        if failed is not None:
            ctx._run.recount(inside)
            branch.failed = failed
            return None
        try:
            async with limit:
                return await self._run_step(ctx, branch)
        except Exception as error:
            if self.on_error != "ignore" or ends_run(error):
                raise
            _logger.warning(
                "`%s` failed in `%s`; the other branches continue", branch.step.name, self.name, exc_info=True
            )
            ctx._run.forget_open_calls(inside)
            report = f"[{branch.step.name}] failed: {type(error).__name__}: {error_text(error)}"
            branch.failed = StepCompleted(key, ctx._origin, time(), keys.FAILED, report)
            log.write(branch.failed)
            return None

    async def _run_step(self, ctx: AgentContext[Any], branch: _Branch) -> FlowOutcome:
        run = ctx._run.part(values=branch.values)
        running = ctx._run_inner(branch.step, branch.place, run=run, history=branch.history)
        seconds = self.branch_timeout
        if seconds is None:
            return await running
        return await run_with_deadline(
            running, seconds, lambda: BranchTimeoutError(self.name, branch.step.name, seconds)
        )

    def _merge(self, ctx: AgentContext[Any], branches: Sequence[_Branch]) -> None:
        for branch in branches:
            if branch.failed is not None:
                continue
            for key in branch.values.touched:
                if key not in branch.values:
                    ctx.values.delete(key)
                    continue
                written = branch.values[key]
                reduce = self.reducers.get(key)
                ctx.values.set(key, written if reduce is None else reduce(ctx.values.get(key), written))


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _cancel_others(tasks: Sequence[asyncio.Task[Any]], ended: asyncio.Task[Any]) -> None:
    if not ended.cancelled() and isinstance(ended.exception(), Exception):
        for task in tasks:
            task.cancel()


def _unique_names(names: Sequence[str]) -> list[str]:
    """Number branches with the same name: `A`, `A#2`."""
    unique: dict[str, None] = {}
    for name in names:
        number = 1
        free = name
        while free in unique or (number > 1 and free in names):
            number += 1
            free = f"{name}#{number}"
        unique[free] = None
    return list(unique)


def _strongest(outcomes: Sequence[FlowOutcome], ctx: AgentContext[Any]) -> Action | None:
    """Return the strongest action: an exit, the end of a task, a break of the loop, or None."""
    acted = [outcome for outcome in outcomes if outcome.action is not None]
    for kind in (Exit, Finish, CancelTask, BreakLoop) if acted else ():
        for outcome in acted:
            if type(outcome.action) is kind:
                if kind is Exit:
                    ctx._answer = outcome.answer
                return outcome.action
    return None
