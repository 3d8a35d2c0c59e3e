"""Lifecycle hooks for runs and agents. Each hook is called once: a resumed run does not repeat it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import Any, Generic, cast

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


class RunHooks(Generic[C]):
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


class AgentHooks(Generic[C]):
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

    def on_model_start(self, ctx: RunContext[C], agent: Any, request: ModelRequest) -> Any:
        """Called before a call of the agent's model.

        Args:
            ctx: The context.
            agent: The agent.
            request: The request to the model.
        """

    def on_model_end(self, ctx: RunContext[C], agent: Any, response: ModelResponse) -> Any:
        """Called after a call of the agent's model.

        Args:
            ctx: The context.
            agent: The agent.
            response: The model's response.
        """

    def on_tool_start(self, ctx: RunContext[C], agent: Any, call: ToolCall) -> Any:
        """Called before a call of one of the agent's tools.

        Args:
            ctx: The context.
            agent: The agent.
            call: The tool call.
        """

    def on_tool_end(self, ctx: RunContext[C], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """Called after a call of one of the agent's tools.

        Args:
            ctx: The context.
            agent: The agent.
            call: The tool call.
            result: The recorded result.
        """

    def on_handoff(self, ctx: RunContext[C], agent: Any, source: Any) -> Any:
        """Called on both agents before a transfer from `source` to `agent`.

        Args:
            ctx: The context.
            agent: The agent.
            source: The agent that hands over.
        """


class HookDispatcher:
    """Dispatches to the run's and the agent's own hooks, once each.

    Args:
        agent: The agent.
        run: The run's hooks.
        own: The agent's hooks.
    """

    __slots__ = ("_agent", "_own", "_run")

    def __init__(self, agent: Any, run: RunHooks | None, own: AgentHooks | None) -> None:
        self._agent = agent
        self._run = run or _NO_RUN_HOOKS
        self._own = own or _NO_AGENT_HOOKS

    async def start(self, ctx: RunContext[Any], *, is_past: bool) -> None:
        """Dispatch the start of the agent."""
        arguments = (self._agent,)
        await dispatch(
            ctx, "start", (self._run.on_agent_start, arguments), (self._own.on_start, arguments), is_past=is_past
        )

    async def end(self, ctx: RunContext[Any], output: Any, *, is_past: bool) -> None:
        """Dispatch the end of the agent."""
        arguments = (self._agent, output)
        await dispatch(ctx, "end", (self._run.on_agent_end, arguments), (self._own.on_end, arguments), is_past=is_past)

    async def model_start(self, ctx: RunContext[Any], request: ModelRequest | None, *, turn: int) -> None:
        """Dispatch the start of a model call; `request` is None if the call is recorded."""
        arguments = (self._agent, request)
        run_hook, own_hook = (self._run.on_model_start, arguments), (self._own.on_model_start, arguments)
        await dispatch(ctx, f"model_start{turn}", run_hook, own_hook, is_past=request is None)

    async def model_end(self, ctx: RunContext[Any], response: ModelResponse | None, *, turn: int) -> None:
        """Dispatch the end of a model call; `response` is None if the call is recorded."""
        arguments = (self._agent, response)
        run_hook, own_hook = (self._run.on_model_end, arguments), (self._own.on_model_end, arguments)
        await dispatch(ctx, f"model_end{turn}", run_hook, own_hook, is_past=response is None)

    async def tool_start(self, ctx: RunContext[Any], call: ToolCall, *, is_past: bool = False) -> None:
        """Dispatch the start of a tool call."""
        arguments = (self._agent, call)
        run_hook, own_hook = (self._run.on_tool_start, arguments), (self._own.on_tool_start, arguments)
        await dispatch(ctx, "tool_start", run_hook, own_hook, is_past=is_past)

    async def tool_end(
        self, ctx: RunContext[Any], call: ToolCall, result: ToolReturned, *, is_past: bool = False
    ) -> None:
        """Dispatch the end of a tool call."""
        arguments = (self._agent, call, result)
        run_hook, own_hook = (self._run.on_tool_end, arguments), (self._own.on_tool_end, arguments)
        await dispatch(ctx, "tool_end", run_hook, own_hook, is_past=is_past)

    async def handoff(self, ctx: RunContext[Any], target: Any, *, is_past: bool) -> None:
        """Dispatch a transfer."""
        source, target_hooks = self._agent, cast("AgentHooks", target.hooks or _NO_AGENT_HOOKS)
        run_hook, own_hook = (self._run.on_handoff, (source, target)), (self._own.on_handoff, (target, source))
        await dispatch(ctx, "handoff", run_hook, own_hook, (target_hooks.on_handoff, (target, source)), is_past=is_past)


_NO_RUN_HOOKS = RunHooks()
_NO_AGENT_HOOKS = AgentHooks()


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
    log.write(StepCompleted(key, ctx._origin, time(), f"{HOOK_STEP}{point}", None, _all_changes(scopes)))


def _all_changes(scopes: Sequence[RunContext[Any]]) -> ValueChanges | None:
    changes = [found for own in scopes if (found := own._all_changes()) is not None]
    if len(changes) < 2:
        return changes[0] if changes else None
    written: dict[str, Any] = {}
    for each in changes:
        written.update(each.written)
    return ValueChanges(written, tuple({key for each in changes for key in each.removed} - set(written)))


_NOT_OVERRIDDEN = {
    value for hooks in (RunHooks, AgentHooks) for name, value in vars(hooks).items() if name.startswith("on_")
}
"""Hooks that are not overridden: there is nothing to call or record."""


def dispatcher_for(agent: Any, run: RunHooks | None) -> HookDispatcher | None:
    """Return the dispatcher for an agent; None if there are no hooks."""
    return None if run is None and agent.hooks is None else HookDispatcher(agent, run, agent.hooks)


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
