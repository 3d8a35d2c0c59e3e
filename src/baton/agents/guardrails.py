"""Guardrails around an agent, before it runs or in parallel with its first model call."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..arguments import check_arguments
from ..errors import SetupError
from ..events import Action, Exit, Finish, Transfer
from ..messages import Message
from ..models import Chunk, Model, ModelRequest
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
from .compiled import compile_agent
from .definition import AgentDefinition, InputCheck
from .wrappers import AgentWrapper, ThenTransfer


class _Passed(msgspec.Struct):
    """A flag that all models of an activation share: its parallel guardrails have passed."""

    is_true: bool = False


class GuardedModel(msgspec.Struct):
    """A model that holds back its first response until parallel guardrails have passed.

    Args:
        model: The wrapped model.
        checks: The input guardrails of the activation.
        messages: The messages to check.
    """

    _model: Model
    _checks: GuardrailChecks
    _messages: Sequence[Message]
    _passed: _Passed = msgspec.field(default_factory=_Passed)

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Call the wrapped model."""
        return self._model.respond(request) if self._passed.is_true else self._respond_after_checks(request)

    def guard(self, other: Model) -> "GuardedModel":
        """Return another model behind the same guardrails.

        Args:
            other: The model that middleware has chosen.
        """
        return GuardedModel(other, self._checks, self._messages, self._passed)

    async def finish(self) -> None:
        """Run the guardrails now if the model was never called. Raises GuardrailTrippedError."""
        if not self._passed.is_true:
            await self._checks.enforce(self._messages)
            self._passed.is_true = True

    async def _respond_after_checks(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        # One task reads the whole response: a provider must close in a task what it opened there.
        reader = asyncio.create_task(self._read(request, chunks))
        try:
            await self._checks.enforce(self._messages, on_trip=reader.cancel)
            self._passed.is_true = True
            while (chunk := await chunks.get()) is not None:
                yield chunk
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, request: ModelRequest, chunks: "asyncio.Queue[Chunk | None]") -> None:
        try:
            stream = self._model.respond(request)
            try:
                async for chunk in stream:
                    chunks.put_nowait(chunk)
            finally:
                close = getattr(stream, "aclose", None)
                if close is not None:
                    await close()
        finally:
            chunks.put_nowait(None)


RunFunction: TypeAlias = Callable[[AgentContext[Any]], Coroutine[Any, Any, Action | None]]
Layers: TypeAlias = Sequence[BaseAgent[Any, Any]]
GuardMode: TypeAlias = Literal["blocking", "parallel"]
ModelAgent: TypeAlias = AgentDefinition[Any, Any]


class AgentGuards(msgspec.Struct, frozen=True):
    """The guardrails of one agent, and their execution around its activations.

    Args:
        before: Input guardrails that run before the agent.
        during: Input guardrails that run during its first model call.
        output: Output guardrails.
        model_agent: The agent whose first model call is held back; None if there is none.
    """

    before: Guardrails
    during: Guardrails
    output: Guardrails
    model_agent: ModelAgent | None = None

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
        return cls(before, during, outputs, _find_model_agent(layers, owner) if during else None)

    async def run(self, ctx: AgentContext[Any], run: RunFunction) -> Action | None:
        """Run the agent between its guardrails. A transfer has no output to check.

        Args:
            ctx: The context of the activation.
            run: Runs the agent.
        """
        if self.before:
            await GuardrailChecks(self.before, ctx, "input").enforce(ctx.messages())
        checks = GuardrailChecks(self.during, ctx, "input")
        # Recorded verdicts are always read, so that a replay accounts for them.
        if self.model_agent is None or checks.are_recorded:
            await checks.enforce(ctx.messages())
            action = await run(ctx)
        else:
            action = await self._run_in_parallel(ctx, run, self.model_agent, checks)
        if self.output and type(action) is not Transfer:
            has_result = isinstance(action, Exit | Finish) and action.result is not None
            output = cast("Exit | Finish", action).result if has_result else ctx.output
            if output is not None:
                await GuardrailChecks(self.output, ctx, "output").enforce(output)
        return action

    async def _run_in_parallel(
        self, ctx: AgentContext[Any], run: RunFunction, model_agent: ModelAgent, checks: GuardrailChecks
    ) -> Action | None:
        compiled = compile_agent(model_agent, ctx)
        model = GuardedModel(compiled.model, checks, ctx.messages())
        # Only this activation uses the model that holds back its response.
        agents = {model_agent.name: msgspec.structs.replace(compiled, model=model)}
        ctx._options = replace(ctx._options, compiled_agents=agents)
        action = await run(ctx)
        # Code around the agent may not have called the model; the checks run all the same.
        await model.finish()
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

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Run the agent between its guardrails.

        Args:
            ctx: The context of the activation.
        """
        return self._guards.run(ctx, self.inner.run)


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


def _find_model_agent(layers: Layers, owner: str) -> ModelAgent:
    innermost = layers[-1]
    if isinstance(innermost, AgentDefinition):
        return innermost
    raise SetupError(
        f'{owner} has mode="parallel", but {innermost!r} does not call a model itself; use mode="blocking"'
    )
