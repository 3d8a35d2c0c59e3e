"""Lifecycle hooks for runs and agents. Each hook is called once: a resumed run does not repeat it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ..context import RunContext
from ..context.run_context import needs_await
from ..events import StepCompleted, ToolReturned, ValueChanges
from ..events.types import Interrupt
from ..messages import ToolCall
from ..models import ModelRequest, ModelResponse

C = TypeVar("C", default=Any, contravariant=True)
T = TypeVar("T")


async def maybe_await(value: Any) -> Any:
    """Return a callback's result, awaited if it is awaitable."""
    return await value if needs_await(value) else value


async def call_and_await(callback: Any, *args: Any) -> Any:
    """Call a callback once this is awaited, so that no result is left unawaited."""
    return await maybe_await(callback(*args))


async def gather_callbacks(*values: Any) -> list[Any]:
    """Await several results. If one fails, cancel and await the others, then raise its error."""
    if sum(map(needs_await, values)) < 2:
        return [await maybe_await(value) for value in values]
    return await _gather(values)


async def _gather(values: Sequence[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(maybe_await(value)) for value in values]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        ended: Sequence[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [each for each in ended if isinstance(each, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, asyncio.CancelledError)), errors[0])
    return list(ended)


class ModelAndToolHooks(Generic[C]):
    """The callbacks that `RunHooks` and `AgentHooks` have in common."""

    def on_model_start(self, ctx: RunContext[C], agent: Any, request: ModelRequest) -> Any:
        """Called before a model call.

        Args:
            ctx: The context.
            agent: The agent.
            request: The request to the model.
        """

    def on_model_end(self, ctx: RunContext[C], agent: Any, response: ModelResponse) -> Any:
        """Called after a model call.

        Args:
            ctx: The context.
            agent: The agent.
            response: The model's response.
        """

    def on_compaction_failed(self, ctx: RunContext[C], agent: Any, error: Exception) -> Any:
        """Called when the history of an agent was to be compacted and the summarizer failed.

        The agent continues with the whole history.

        Args:
            ctx: The context.
            agent: The agent.
            error: The error of the summarizer.
        """

    def on_tool_start(self, ctx: RunContext[C], agent: Any, call: ToolCall) -> Any:
        """Called before a tool call.

        Args:
            ctx: The context.
            agent: The agent.
            call: The tool call.
        """

    def on_tool_end(self, ctx: RunContext[C], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """Called after a tool call.

        Args:
            ctx: The context.
            agent: The agent.
            call: The tool call.
            result: The recorded result.
        """


class RunHooks(ModelAndToolHooks[C]):
    """Callbacks for all agents of a run, for `Runner(hooks=…)`.

    Override the methods you need, sync or async. An exception ends the run.
    """

    def on_run_start(self, ctx: RunContext[C], agent: Any) -> Any:
        """Called when a run starts; `agent` is its root.

        Args:
            ctx: The context.
            agent: The agent.
        """

    def on_run_end(self, ctx: RunContext[C], agent: Any, output: Any) -> Any:
        """Called when a run is completed; `agent` was active last.

        Args:
            ctx: The context.
            agent: The agent.
            output: The output.
        """

    def on_agent_start(self, ctx: RunContext[C], agent: Any) -> Any:
        """Called when an agent becomes active.

        Args:
            ctx: The context.
            agent: The agent.
        """

    def on_agent_end(self, ctx: RunContext[C], agent: Any, output: Any) -> Any:
        """Called when an agent has finished; `output` is None if it transfers.

        Args:
            ctx: The context.
            agent: The agent.
            output: The output.
        """

    def on_handoff(self, ctx: RunContext[C], from_agent: Any, to_agent: Any) -> Any:
        """Called before a transfer.

        Args:
            ctx: The context.
            from_agent: The agent that hands over.
            to_agent: The agent that takes over.
        """

    def on_interrupt(self, ctx: RunContext[C], interrupt: Interrupt) -> Any:
        """Called when the run is suspended by an interrupt.

        Args:
            ctx: The context.
            interrupt: The open interrupt.
        """


class AgentHooks(ModelAndToolHooks[C]):
    """Callbacks for one agent, for `Agent(hooks=…)`.

    Override the methods you need, sync or async. An exception ends the run.
    """

    def on_start(self, ctx: RunContext[C], agent: Any) -> Any:
        """Called when the agent becomes active.

        Args:
            ctx: The context.
            agent: The agent.
        """

    def on_end(self, ctx: RunContext[C], agent: Any, output: Any) -> Any:
        """Called when the agent has finished; `output` is None if it transfers.

        Args:
            ctx: The context.
            agent: The agent.
            output: The output.
        """

    def on_handoff(self, ctx: RunContext[C], agent: Any, source: Any) -> Any:
        """Called on both agents before a transfer from `source` to `agent`.

        Args:
            ctx: The context.
            agent: The agent.
            source: The agent that hands over.
        """


HookPoint: TypeAlias = Literal[
    "start", "end", "model_start", "model_end", "compaction_failed", "tool_start", "tool_end"
]
"""A point in the life of an agent: the hooks of the agent are called `on_` and this name."""

_RUN_HOOK_NAMES = {"start": "agent_start", "end": "agent_end"}
"""The points that have another name among the hooks of a run."""


class HookDispatcher:
    """Dispatches to the run's and the agent's own hooks, once each.

    Args:
        agent: The agent.
        run: The run's hooks.
    """

    __slots__ = ("_agent", "_own", "_run")

    def __init__(self, agent: Any, run: RunHooks | None) -> None:
        self._agent = agent
        self._run = run if run is not None else _NO_RUN_HOOKS
        self._own = _hooks_of(agent)

    async def call(
        self, ctx: RunContext[Any], point: HookPoint, *arguments: Any, turn: int | str = "", is_past: bool = False
    ) -> None:
        """Dispatch to the hooks of a point.

        Args:
            ctx: The context of the hooks' scope.
            point: The point.
            *arguments: The arguments of the hooks after the context and the agent.
            turn: The number of the model call, if the scope has several.
            is_past: Whether the event that the hooks are about is recorded.
        """
        run_hook = getattr(self._run, f"on_{_RUN_HOOK_NAMES.get(point, point)}")
        own_hook = getattr(self._own, f"on_{point}")
        given = (self._agent, *arguments)
        await dispatch(ctx, f"{point}{turn}", (run_hook, given), (own_hook, given), is_past=is_past)

    async def handoff(self, ctx: RunContext[Any], target: Any, *, is_past: bool) -> None:
        """Dispatch a transfer."""
        source, target_hooks = self._agent, _hooks_of(target)
        run_hook, own_hook = (self._run.on_handoff, (source, target)), (self._own.on_handoff, (target, source))
        await dispatch(ctx, "handoff", run_hook, own_hook, (target_hooks.on_handoff, (target, source)), is_past=is_past)


_NO_RUN_HOOKS = RunHooks()
_NO_AGENT_HOOKS = AgentHooks()


def _hooks_of(agent: Any) -> AgentHooks:
    # Not `or`: hooks that are also a list are falsy while it is empty.
    return agent.hooks if agent.hooks is not None else _NO_AGENT_HOOKS


HOOK_STEP = "hook:"
"""Prefix of the names of steps that record hook calls."""


async def dispatch(
    ctx: RunContext[Any], point: str, *hooks: tuple[Callable[..., Any], tuple[Any, ...]], is_past: bool
) -> None:
    """Call hooks concurrently and record it, unless the log is already past this point.

    Args:
        ctx: The context of the hooks' scope.
        point: Identifies the point in the scope.
        *hooks: Hooks with their arguments after the context.
        is_past: Whether the event that the hooks are about is recorded.
    """
    log, key = ctx._run.log, f"{ctx._scope}/{HOOK_STEP}{point}"
    recorded = log.find(key, StepCompleted) if log.has_past else None
    if recorded is not None:
        # Value changes of hooks are recorded with the hook step, not with the event they are about.
        RunContext(ctx._run, ctx._origin, key, ctx.tool_call)._apply_changes(recorded.value_changes)
        return
    called = [(hook, arguments) for hook, arguments in hooks if getattr(hook, "__func__", None) not in _NOT_OVERRIDDEN]
    # A hook suspended by its own interrupt is not done, though the event may be recorded.
    if not called or (is_past and not log.has_inside(key)):
        return
    if log.has_past and not log.waits_inside(key):
        log.announce(key, StepCompleted)
    # Each has its own scope, so that interrupts and steps of different hooks are not mixed up.
    scopes = [RunContext(ctx._run, ctx._origin, f"{key}/{index}", ctx.tool_call) for index in range(len(called))]
    calls = [call_and_await(hook, own, *arguments) for (hook, arguments), own in zip(called, scopes, strict=True)]
    await gather_callbacks(*calls)
    if ctx._run.suspended_by:
        ctx._run.check_suspended(f"the hook on_{point}", key)
    changes = ValueChanges.merge(own._all_changes() for own in scopes)
    log.write(StepCompleted(key, ctx._origin, time(), f"{HOOK_STEP}{point}", None, changes))


_NOT_OVERRIDDEN = {
    value
    for hooks in (ModelAndToolHooks, RunHooks, AgentHooks)
    for name, value in vars(hooks).items()
    if name.startswith("on_")
}
"""Hooks that are not overridden: there is nothing to call or record."""


async def run_with_deadline(work: Awaitable[T], seconds: float, make_error: Callable[[], Exception]) -> T:
    """Await work, and raise `make_error()` when the time is up.

    Args:
        work: The work; a TimeoutError of its own is passed through.
        seconds: The time limit.
        make_error: Makes the error for the timeout.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if deadline.expired():
            raise make_error() from None
        raise
