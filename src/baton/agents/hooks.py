"""Who is told of what happens in a run, in time to act on it. Each happens once: a resumed run does not repeat it.

Several callbacks at once: all of them end before anything goes on, and the first failure is the one raised.

Work that must end in time, and the error that says so if it does not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import Any, TypeVar, cast

from ..context import RunContext
from ..context.run_context import needs_await
from ..events import StepCompleted, ToolReturned, ValueChanges
from ..events.types import Interrupt
from ..messages import ToolCall
from ..models import ModelRequest, ModelResponse


async def maybe_await(value: Any) -> Any:
    """What a callback gave, awaited if it is something to wait for."""
    return await value if needs_await(value) else value


async def call_and_await(callback: Any, *args: Any) -> Any:
    """What a callback gives; called only when this is awaited, so that none is left unawaited if another fails."""
    return await maybe_await(callback(*args))


async def gather_callbacks(*values: Any) -> list[Any]:
    """What several callbacks gave. If one fails, the others are cancelled and waited for, and its error is raised."""
    waiting = [value for value in values if needs_await(value)]
    if len(waiting) < 2:
        return [await maybe_await(value) for value in values]
    return await _gathered(values)


async def _gathered(values: Sequence[Any]) -> list[Any]:
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


class RunHooks:
    """Callbacks for all agents of a run. Override what you need; sync or async. One that raises ends the run."""

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """A run begins; `agent` is its root."""

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """A run is completed; `agent` had the floor last."""

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """An agent gets the floor."""

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """An agent gives the floor up; `output` is None if it transfers."""

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> Any:
        """A model is about to be asked."""

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: ModelResponse) -> Any:
        """A model has answered."""

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> Any:
        """A tool is about to be called."""

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """A tool has returned."""

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> Any:
        """Control is about to go from one agent to another."""

    def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> Any:
        """The run stops to ask a question."""


class AgentHooks:
    """Callbacks for one agent, for `Agent(hooks=…)`. Override what you need; one that raises ends the run."""

    def on_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """The agent gets the floor."""

    def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """The agent gives the floor up; `output` is None if it transfers."""

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> Any:
        """The agent's model is about to be asked."""

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: ModelResponse) -> Any:
        """The agent's model has answered."""

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> Any:
        """One of the agent's tools is about to be called."""

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """One of the agent's tools has returned."""

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> Any:
        """Control is about to go from `source` to `agent`; both are told."""


class HookDispatcher:
    """The hooks that concern one agent in one run: the run's and its own. Each call is recorded, and so made once."""

    __slots__ = ("_agent", "_own", "_run")

    def __init__(self, agent: Any, run: RunHooks | None, own: AgentHooks | None) -> None:
        self._agent = agent
        self._run = run or _NOBODY
        self._own = own or _NOBODY_ELSE

    async def start(self, ctx: RunContext[Any], *, is_past: bool) -> None:
        facts = (self._agent,)
        await dispatch(ctx, "start", (self._run.on_agent_start, facts), (self._own.on_start, facts), is_past=is_past)

    async def end(self, ctx: RunContext[Any], output: Any, *, is_past: bool) -> None:
        facts = (self._agent, output)
        await dispatch(ctx, "end", (self._run.on_agent_end, facts), (self._own.on_end, facts), is_past=is_past)

    async def model_start(self, ctx: RunContext[Any], request: ModelRequest | None, *, turn: int) -> None:
        """`request` is None if the model has been asked before."""
        facts = (self._agent, request)
        ours, mine = (self._run.on_model_start, facts), (self._own.on_model_start, facts)
        await dispatch(ctx, f"model_start{turn}", ours, mine, is_past=request is None)

    async def model_end(self, ctx: RunContext[Any], response: ModelResponse | None, *, turn: int) -> None:
        """`response` is None if the model has answered before."""
        facts = (self._agent, response)
        ours, mine = (self._run.on_model_end, facts), (self._own.on_model_end, facts)
        await dispatch(ctx, f"model_end{turn}", ours, mine, is_past=response is None)

    async def tool_start(self, ctx: RunContext[Any], call: ToolCall, *, is_past: bool = False) -> None:
        facts = (self._agent, call)
        ours, mine = (self._run.on_tool_start, facts), (self._own.on_tool_start, facts)
        await dispatch(ctx, "tool_start", ours, mine, is_past=is_past)

    async def tool_end(
        self, ctx: RunContext[Any], call: ToolCall, result: ToolReturned, *, is_past: bool = False
    ) -> None:
        facts = (self._agent, call, result)
        ours, mine = (self._run.on_tool_end, facts), (self._own.on_tool_end, facts)
        await dispatch(ctx, "tool_end", ours, mine, is_past=is_past)

    async def handoff(self, ctx: RunContext[Any], target: Any, *, is_past: bool) -> None:
        source, others = self._agent, cast("AgentHooks", target.hooks or _NOBODY_ELSE)
        ours, mine = (self._run.on_handoff, (source, target)), (self._own.on_handoff, (target, source))
        await dispatch(ctx, "handoff", ours, mine, (others.on_handoff, (target, source)), is_past=is_past)


_NOBODY = RunHooks()
_NOBODY_ELSE = AgentHooks()


HOOK_STEP = "hook:"
"""How the steps are named that record the calling of hooks."""


async def dispatch(
    ctx: RunContext[Any], point: str, *hooks: tuple[Callable[..., Any], tuple[Any, ...]], is_past: bool
) -> None:
    """Call these hooks at once, each with the context and its facts; or not, if the log has come past this point."""
    log, key = ctx._run.log, f"{ctx._scope}/{HOOK_STEP}{point}"
    recorded = log.find(key, StepCompleted) if log.has_past else None
    if recorded is not None:
        # As when they were called: what hooks write is recorded with them, not with what they are told of.
        RunContext(ctx._run, ctx._origin, key, ctx.tool_call)._apply_changes(recorded.value_changes)
        return
    heard = [(hook, facts) for hook, facts in hooks if getattr(hook, "__func__", None) not in _UNHEARD]
    # A hook that has asked something is not done, though what it is told of may be recorded.
    if not heard or (is_past and not log.has_inside(key)):
        return
    if log.has_past and not log.waits_inside(key):
        log.announce(key, StepCompleted)
    # Each has a scope of its own: what one asks or does in steps is not mixed up with what others do.
    scopes = [RunContext(ctx._run, ctx._origin, f"{key}/{place}", ctx.tool_call) for place in range(len(heard))]
    calls = [call_and_await(hook, own, *facts) for (hook, facts), own in zip(heard, scopes, strict=True)]
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


_UNHEARD = {value for hooks in (RunHooks, AgentHooks) for name, value in vars(hooks).items() if name.startswith("on_")}
"""The hooks that nobody has written: there is nothing to call, and nothing to record."""


def dispatcher_for(agent: Any, run: RunHooks | None) -> HookDispatcher | None:
    """The hooks that concern this agent; None if nobody wants to be told of anything."""
    return None if run is None and agent.hooks is None else HookDispatcher(agent, run, agent.hooks)


T = TypeVar("T")


async def run_with_deadline(work: Awaitable[T], seconds: float, late: Callable[[], Exception]) -> T:
    """What the work gives. Raises what `late` makes when the seconds are over; a TimeoutError of its own stays one."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if deadline.expired():
            raise late() from None
        raise
