"""Guardrails around an agent, before it runs or in parallel with its first model call."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..arguments import check_arguments
from ..errors import SetupError
from ..events import Action, Exit, Finish, Transfer
from ..messages import Message
from ..models import ModelRequest, ModelResponse
from ..tools.guardrails import (
    GuardrailChecks,
    GuardrailFunction,
    Guardrails,
    reject_duplicate_names,
    to_guardrails,
)
from ..wording import show
from .activation import AgentContext
from .base import BaseAgent, C, Out
from .definition import AgentDefinition, InputCheck
from .middleware import Layer, MiddlewareStack
from .middleware_chains import HeldDeltas, MiddlewareContext, ModelCallChain
from .wrappers import AgentWrapper, ThenTransfer


class ParallelChecks(msgspec.Struct):
    """Input guardrails beside the first model call of an activation; its outermost middleware.

    Args:
        checks: The guardrails.
        messages: The messages to check.
    """

    _checks: GuardrailChecks
    _messages: Sequence[Message]
    _have_passed: bool = False

    def around(self, stack: MiddlewareStack | None) -> MiddlewareStack:
        """Return the middleware of an activation with the guardrails around it.

        Args:
            stack: The middleware without them.
        """
        stack = stack or MiddlewareStack()
        layer = Layer("guardrail:input", self._model_call)
        return msgspec.structs.replace(stack, model=(layer, *stack.model))

    async def finish(self) -> None:
        """Run the guardrails now if the model was never called. Raises GuardrailTrippedError."""
        if not self._have_passed:
            await self._checks.enforce(self._messages)
            self._have_passed = True

    async def _model_call(
        self, ctx: MiddlewareContext, request: ModelRequest, next: Callable[..., Coroutine[Any, Any, ModelResponse]]
    ) -> ModelResponse:
        """Call the model while the guardrails run; hold back its response until they have passed."""
        if self._have_passed:
            return await next(request)
        chain = cast("ModelCallChain", ctx._chain)
        held = chain.held = chain.held or HeldDeltas()
        held.holders += 1
        response = asyncio.create_task(next(request))
        try:
            await self._checks.enforce(self._messages, on_trip=response.cancel)
            self._have_passed = True
            held.release()
            return await response
        finally:
            response.cancel()
            await asyncio.gather(response, return_exceptions=True)


RunFunction: TypeAlias = Callable[[AgentContext[Any]], Coroutine[Any, Any, Action | None]]
Layers: TypeAlias = Sequence[BaseAgent[Any, Any]]
GuardMode: TypeAlias = Literal["blocking", "parallel"]


class AgentGuards(msgspec.Struct, frozen=True):
    """The guardrails of one agent, and their execution around its activations.

    Args:
        before: Input guardrails that run before the agent.
        during: Input guardrails that run during its first model call.
        output: Output guardrails.
    """

    before: Guardrails
    during: Guardrails
    output: Guardrails

    @classmethod
    def build(
        cls, owner: str, inputs: Guardrails, outputs: Guardrails, *, layers: Layers, inside: Layers = ()
    ) -> "AgentGuards":
        """Sort the guardrails, and check them.

        Args:
            owner: The owner, for error messages.
            inputs: The input guardrails.
            outputs: The output guardrails.
            layers: The guarded agent and the agents it wraps, the innermost last.
            inside: Those whose own guardrails run as well.

        Raises:
            SetupError: Two guardrails have the same name, or a parallel one has no model call to run beside.
        """
        for stage, own in (("input", inputs), ("output", outputs)):
            inner = [each for layer in inside for each in getattr(layer, f"{stage}_guardrails", ())]
            reject_duplicate_names(f"the {stage} of {owner}", [*own, *inner])
        before = tuple(each for each in inputs if not each.parallel)
        during = tuple(each for each in inputs if each.parallel)
        if during and not isinstance(layers[-1], AgentDefinition):
            raise SetupError(
                f'{owner} has mode="parallel", but {layers[-1]!r} does not call a model itself; use mode="blocking"'
            )
        return cls(before, during, outputs)

    async def run(self, ctx: AgentContext[Any], run: RunFunction) -> Action | None:
        """Run the agent between its guardrails. A transfer has no output to check.

        Args:
            ctx: The context of the activation.
            run: Runs the agent.
        """
        if self.before:
            await GuardrailChecks(self.before, ctx, "input").enforce(ctx.messages())
        action = await (self._run_in_parallel(ctx, run) if self.during else run(ctx))
        if self.output and type(action) is not Transfer:
            has_result = isinstance(action, Exit | Finish) and action.result is not None
            output = cast("Exit | Finish", action).result if has_result else ctx.output
            if output is not None:
                await GuardrailChecks(self.output, ctx, "output").enforce(output)
        return action

    async def _run_in_parallel(self, ctx: AgentContext[Any], run: RunFunction) -> Action | None:
        checks = GuardrailChecks(self.during, ctx, "input")
        parallel = ParallelChecks(checks, ctx.messages())
        if checks.are_recorded:
            # Read now, so that a replay applies their value changes where they were made.
            await parallel.finish()
        stack, ctx._middleware = ctx._middleware, parallel.around(ctx._middleware)
        try:
            action = await run(ctx)
        finally:
            # The guardrails refer to the context: together they would be freed by the garbage collector only.
            ctx._middleware = stack
        # Code around the agent may not have called the model; the checks run all the same.
        await parallel.finish()
        return action


class GuardedAgent(AgentWrapper[C, Out]):
    """Runs guardrails on the input and output of any agent.

    Args:
        inner: The wrapped agent.
        input_guardrails: Guardrails for the messages that the agent reads.
        output_guardrails: Guardrails for the agent's output.
        guards: Runs them.
    """

    def __init__(
        self,
        inner: BaseAgent[C, Out],
        input_guardrails: Guardrails,
        output_guardrails: Guardrails,
        guards: AgentGuards,
    ) -> None:
        super().__init__(inner)
        self.input_guardrails = input_guardrails
        self.output_guardrails = output_guardrails
        self._guards = guards

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the agent between its guardrails.

        Args:
            ctx: The context of the activation.
        """
        return await self._guards.run(ctx, self.inner.run)


@check_arguments
def with_guardrails(
    agent: BaseAgent[C, Out],
    *,
    input_guardrails: Sequence[InputCheck[C]] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    mode: GuardMode = "blocking",
) -> GuardedAgent[C, Out]:
    """Add guardrails to any agent. A check that does not pass raises `GuardrailTrippedError`.

    For an `Agent`, write `Agent(input_guardrails=…, output_guardrails=…)` instead; this is for workflows, remote agents
    and agents of your own.

    Args:
        agent: The agent.
        input_guardrails: Checks `(ctx, messages)` of the conversation that the agent reads.
        output_guardrails: Checks `(ctx, output)` of its answer.
        mode: `"blocking"` runs the input guardrails before the agent, except those with `guardrail(parallel=True)`;
            `"parallel"` runs all of them during its first model call and holds back the response until they pass.

    Raises:
        SetupError: A check is not a guardrail, or two have the same name.
    """
    if not isinstance(agent, BaseAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"with_guardrails({show(agent)}) has nothing to guard; give an agent")
    owner = f"with_guardrails(`{agent.name}`)"
    if mode not in ("blocking", "parallel"):
        raise SetupError(f'{owner} has mode={show(mode)}; use "blocking" or "parallel"')
    checks: Sequence[GuardrailFunction] = input_guardrails
    inputs, outputs = to_guardrails(owner, input_guardrails=checks, output_guardrails=output_guardrails)
    if mode == "parallel":
        inputs = tuple(msgspec.structs.replace(each, parallel=True) for each in inputs)
    layers = list(_layers(agent))
    guards = AgentGuards.build(owner, inputs, outputs, layers=layers, inside=layers)
    if outputs and any(isinstance(layer, ThenTransfer) for layer in layers):
        raise SetupError(
            f"{owner} would never check an output, because then_transfer always ends with a transfer; "
            "put the guardrails inside it: then_transfer(with_guardrails(…), to=…)"
        )
    return GuardedAgent(agent, inputs, outputs, guards)


def _layers(agent: BaseAgent[Any, Any]) -> Iterator[BaseAgent[Any, Any]]:
    """Yield the agent and the agents it wraps, the innermost last."""
    layer: Any = agent
    while isinstance(layer, BaseAgent):
        yield cast("BaseAgent[Any, Any]", layer)
        layer = getattr(cast(Any, layer), "inner", None)
