"""Several agents at once, on the same history; what they say and write is joined in the order of declaration."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Literal, cast

from msgspec import Struct

from ..agents import AgentContext, AgentHooks, BaseAgent
from ..agents.base import FlowOutcome
from ..agents.hooks import run_with_deadline
from ..context.history import History
from ..context.values import TrackedValues
from ..errors import BranchesFailedError, BranchTimeoutError, SetupError, check_choice, ends_run
from ..events import Action, BreakLoop, Exit, StepCompleted
from ..handoffs import Handoff
from ..log import FAILED
from ..messages import UserMessage
from .reducers import Reducer
from .sequential import Workflow

_logger = logging.getLogger("baton.workflows")


class _Branch(Struct):
    """One step on its way: its own history and values, and how it ended."""

    place: str
    step: BaseAgent[Any, Any]
    history: History
    values: TrackedValues
    outcome: FlowOutcome | None = None
    failure: str = ""
    """What went wrong, if that is to be passed over."""


class ParallelAgent(Workflow[dict[str, Any]]):
    """Runs all its sub-agents at once. None of them reads what the others say; who comes after reads all of it.

    `on_error="collect"` lets all branches end and then raises BranchesFailedError, "fail_fast" stops the others at the
    first error, "ignore" goes on without the branches that failed. `reducers` say how a value that several branches
    write is merged; without one, the branch that is declared last wins. The output is a dict of the branches' outputs.
    """

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
            raise SetupError(f"`{name}` has max_concurrency={max_concurrency!r}; give at least 1, or None for no limit")
        if branch_timeout is not None and not (_is_number(branch_timeout, int, float) and branch_timeout > 0):
            raise SetupError(f"`{name}` has branch_timeout={branch_timeout!r}; give seconds, or None for no limit")
        for key, reducer in (reducers or {}).items():
            if not callable(reducer):
                raise SetupError(f"`{name}` has reducers[{key!r}]={reducer!r}; give a function (current, written)")
        self.max_concurrency = max_concurrency
        self.on_error = on_error
        self.branch_timeout = branch_timeout
        self.reducers = dict(reducers or {})
        self._names = _apart([step.name for step in self.sub_agents])

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the branches, wait for all of them, and join what they said and wrote."""
        mark = len(ctx._history.entries)
        branches = [
            _Branch(str(place), step, ctx._history.fork(), TrackedValues(dict(ctx._run.values)))
            for place, step in enumerate(self.sub_agents)
        ]
        try:
            await self._run_all(ctx, branches)
        finally:
            # Also of a run that stops here: its result shows what was said so far.
            for branch in branches:
                if branch.failure:
                    ctx._history.add(UserMessage(branch.failure), ctx._origin)
                else:
                    ctx._history.join(branch.history, mark)
        self._merge(ctx, branches)
        named = zip(self._names, branches, strict=True)
        ended = {name: branch.outcome for name, branch in named if branch.outcome is not None}
        ctx.output = {name: outcome.output for name, outcome in ended.items()}
        return _strongest([*ended.values()], ctx)

    async def _run_all(self, ctx: AgentContext[Any], branches: Sequence[_Branch]) -> None:
        room = asyncio.Semaphore(self.max_concurrency) if self.max_concurrency is not None else None
        begin = self._work if room is None and self.on_error != "ignore" else partial(self._run_branch, room=room)
        create = asyncio.get_running_loop().create_task
        tasks = [create(begin(ctx, branch)) for branch in branches]
        if self.on_error == "fail_fast":
            for task in tasks:
                task.add_done_callback(partial(_stop_the_others, tasks))
        await _all_ended(tasks)
        ended = [_ending_of(task) for task in tasks]
        raised = {
            name: error for name, error in zip(self._names, ended, strict=True) if isinstance(error, BaseException)
        }
        if raised:
            self._raise_what_ended(raised)
        for branch, outcome in zip(branches, ended, strict=True):
            branch.outcome = cast("FlowOutcome | None", outcome)

    def _raise_what_ended(self, raised: Mapping[str, BaseException]) -> None:
        errors = {name: error for name, error in raised.items() if isinstance(error, Exception)}
        for error in errors.values():
            if self.on_error == "fail_fast" or ends_run(error):
                raise error
        # A question first: what failed beside it is tried again when the answer is there. Nobody but the branch itself
        # can have cancelled it: then it gave up, and the run stops as it would in a sequence.
        for error in raised.values():
            if not isinstance(error, Exception):
                raise error
        raise BranchesFailedError(self.name, errors) from next(iter(errors.values()))

    async def _run_branch(
        self, ctx: AgentContext[Any], branch: _Branch, *, room: asyncio.Semaphore | None
    ) -> FlowOutcome | None:
        """What a branch comes to that must wait for room, or may fail without harm; None if it has failed."""
        log, inside = ctx._run.log, f"{ctx._scope}/{branch.place}"
        key = f"{inside}/{FAILED}"
        failed = log.find(key, StepCompleted) if log.has_past else None
        if failed is not None:
            ctx._run.meter.count_again(log.visit(inside))
            branch.failure = str(failed.result)
            return None
        try:
            if room is None:
                return await self._work(ctx, branch)
            async with room:
                return await self._work(ctx, branch)
        except Exception as error:
            if self.on_error != "ignore" or ends_run(error):
                raise
            _logger.warning("`%s` failed in `%s`; the others go on", branch.step.name, self.name, exc_info=True)
            branch.failure = f"[{branch.step.name}] failed: {type(error).__name__}: {error}"
            log.write(StepCompleted(key, ctx._origin, time(), FAILED, branch.failure))
            return None

    def _work(self, ctx: AgentContext[Any], branch: _Branch) -> Coroutine[Any, Any, FlowOutcome]:
        run = ctx._run.part(values=branch.values)
        work = ctx.run_agent(branch.step, branch.place, _run=run, history=branch.history)
        seconds = self.branch_timeout
        if seconds is None:
            return work
        return run_with_deadline(work, seconds, lambda: BranchTimeoutError(self.name, branch.step.name, seconds))

    def _merge(self, ctx: AgentContext[Any], branches: Sequence[_Branch]) -> None:
        """Write to the run's values what the branches wrote to theirs."""
        for branch in branches:
            if branch.failure:
                continue
            for key in branch.values.touched:
                if key not in branch.values:
                    ctx.values.delete(key)
                    continue
                written, reduce = branch.values[key], self.reducers.get(key)
                ctx.values.set(key, written if reduce is None else reduce(ctx.values.get(key), written))


async def _all_ended(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Wait for all tasks. If the run is cancelled so are they, and they are waited for all the same, however often.

    What `gather` does, at half its cost for each branch.
    """
    running, cancelled = len(tasks), None
    ended = asyncio.get_running_loop().create_future()

    def count(_: object) -> None:
        nonlocal running
        running -= 1
        if not running and not ended.done():
            ended.set_result(None)

    for task in tasks:
        task.add_done_callback(count)
    while running:
        try:
            await ended
        except asyncio.CancelledError as error:
            cancelled, ended = error, asyncio.get_running_loop().create_future()
            for task in tasks:
                task.cancel()
    if cancelled is not None:
        for task in tasks:
            _ending_of(task)  # Looked at, so that asyncio does not complain that nobody did.
        raise cancelled


def _ending_of(task: "asyncio.Task[Any]") -> Any:
    """What a task gave or raised."""
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _stop_the_others(tasks: "Sequence[asyncio.Task[Any]]", ended: "asyncio.Task[Any]") -> None:
    if not ended.cancelled() and isinstance(ended.exception(), Exception):
        for task in tasks:
            task.cancel()


def _apart(names: Sequence[str]) -> list[str]:
    """The names of the branches; the second of two with the same name has a number."""
    apart: dict[str, None] = {}
    for name in names:
        number, free = 1, name
        while free in apart or (number > 1 and free in names):
            number += 1
            free = f"{name}#{number}"
        apart[free] = None
    return list(apart)


def _strongest(outcomes: Sequence[FlowOutcome], ctx: AgentContext[Any]) -> Action | None:
    """What the whole ends with: an exit of any branch, else a break of the loop around, else nothing."""
    for kind in (Exit, BreakLoop):
        for outcome in outcomes:
            if type(outcome.action) is kind:
                if kind is Exit:
                    ctx.output = outcome.output
                return outcome.action
    return None
