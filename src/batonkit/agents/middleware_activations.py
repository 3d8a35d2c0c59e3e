"""Execution of middleware around activations."""

from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import Any

from msgspec import Struct

from ..context.deferred_calls import must_be_awaited
from ..context.run_state import ends_run
from ..context.values import TrackedValues
from ..log import Action, Origin, StepCompleted, ValueChanges, keys
from ..messages import Message
from ..tools.tool_guardrails import copy_changes
from .agent_context import AgentContext
from .middleware_layers import describe_error, restore_error
from .seam import Layer


class _ActivationContext(AgentContext[Any], kw_only=True, eq=False):
    """The context of middleware around an activation: own scope, output of the agent."""

    _before_effect: Callable[[], None]
    _inner: AgentContext[Any]

    @property
    def output(self) -> Any:
        """The output of the agent."""
        return self._inner.output

    @output.setter
    def output(self, output: Any) -> None:
        self._inner.output = output

    def messages(self) -> Sequence[Message]:
        """Return the conversation so far, as the agent reads it."""
        return self._inner.messages()

    @must_be_awaited
    async def step(self, name: str, function: Callable[[], Any], *, result_type: Any = None) -> Any:
        """Record a failed attempt that the middleware handles, then the step."""
        self._before_effect()
        return await super().step(name, function, result_type=result_type)

    @must_be_awaited
    async def interrupt(self, payload: Any = None, **options: Any) -> Any:
        """Record a failed attempt that the middleware handles, then the interrupt."""
        self._before_effect()
        return await super().interrupt(payload, **options)

    @must_be_awaited
    async def say(self, content: Any) -> None:
        """Record a failed attempt that the middleware handles, then the message."""
        self._before_effect()
        await super().say(content)
        self._inner._answer = self._answer


class _FailedAttempt(Struct):
    """An attempt that failed with an exception that middleware may handle."""

    ctx: AgentContext[Any]
    values: TrackedValues
    error: Exception


class ActivationChain(Struct):
    """An activation on its way through middleware."""

    layers: tuple[Layer, ...]
    ctx: AgentContext[Any]
    run: Callable[[AgentContext[Any]], Awaitable[Action | None]]
    restart: Callable[[Origin], AgentContext[Any]]
    _attempts: int = 0
    _failed: _FailedAttempt | None = None
    _recorded: _FailedAttempt | None = None
    _fatal: Exception | None = None

    async def call(self) -> Action | None:
        """Run the agent inside its middleware."""
        try:
            action = await self._call(0, "")
        except Exception as error:
            failed = self._recorded
            if failed is not None and failed.error is error:
                # The error ends the run after all, so that resuming it tries again.
                key = keys.inside(keys.failure(failed.ctx._scope), "raised")
                self.ctx._run.log.write(StepCompleted(key, failed.ctx._origin, time(), "raised"))
            raise
        if self._fatal is not None:
            raise self._fatal
        return action

    async def _call(self, position: int, suffix: str) -> Action | None:
        if position == len(self.layers):
            return await self._attempt()
        layer = self.layers[position]
        ctx = self.ctx
        count = 0

        async def following() -> Action | None:
            nonlocal count
            count += 1
            return await self._call(position + 1, keys.repetition(suffix, position, count))

        own = _ActivationContext(
            ctx._run,
            ctx._origin,
            keys.middleware(ctx._scope, layer.name, suffix),
            _history=ctx._history,
            _view=ctx._view,
            _routes=ctx._routes,
            _options=ctx._options,
            _turn_start=ctx._turn_start,
            _flow=ctx._flow,
            _calls=ctx._calls,
            _inner=ctx,
            _before_effect=self._record_failure,
        )
        action = await layer.method(own, following)
        self._record_failure()
        if ctx._run.has_open_calls:
            ctx._run.check_ended(f"middleware `{layer.name}`", own._scope)
        if own._values is not None:
            copy_changes(ctx, own._all_changes())
        return action

    async def _attempt(self) -> Action | None:
        """Run the agent, unless the log has the failure of this attempt."""
        self._record_failure()
        while True:
            self._attempts += 1
            ctx = self.ctx
            if self._attempts > 1:
                ctx = self.restart(Origin(keys.attempt(ctx._scope, self._attempts), ctx.agent, ctx._origin.parent))
            log = ctx._run.log
            key = keys.failure(ctx._scope)
            failed = log.find(key, StepCompleted) if log.has_past else None
            if failed is None:
                return await self._run(ctx)
            # What middleware does, and further attempts, are replayed or counted on their own.
            ctx._run.recount(ctx._scope, besides=keys.MIDDLEWARE)
            ctx._apply_changes(failed.value_changes)
            if log.find(keys.inside(key, "raised"), StepCompleted) is None:
                raise restore_error(failed.result)

    async def _run(self, ctx: AgentContext[Any]) -> Action | None:
        values = TrackedValues(ctx._run.values)
        ctx._run = ctx._run.part(values=values)
        try:
            action = await self.run(ctx)
        except Exception as error:
            if ends_run(error):
                self._fatal = error
            else:
                self._failed = _FailedAttempt(ctx, values, error)
            raise
        if ctx is not self.ctx:
            self.ctx._answer = ctx._answer
            self.ctx._breaks_loop = self.ctx._breaks_loop or ctx._breaks_loop
            copy_changes(self.ctx, ctx._all_changes())
        return action

    def _record_failure(self) -> None:
        """Record the last failure: middleware has handled it, so a resumed run must not try again."""
        failed = self._failed
        if failed is None:
            return
        ctx = failed.ctx
        self._failed = None
        self._recorded = failed
        ctx._run.forget_open_calls(ctx._scope)
        ctx._take_changes()
        changes = ValueChanges.merge((ctx._all_changes(), failed.values.changes()))
        result = describe_error(failed.error)
        event = StepCompleted(keys.failure(ctx._scope), ctx._origin, time(), keys.FAILED, result, changes)
        ctx._run.log.write(event)
        ctx._history.apply(event, ctx._origin)
        # The view of the context has read entries that are gone.
        self.ctx._view = self.restart(self.ctx._origin)._view
