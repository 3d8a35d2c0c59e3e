"""Guardrails around an agent, before it runs or in parallel with its first model call."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import msgspec
from typing_extensions import TypeVar

from ..arguments import check_arguments
from ..context import RunContext
from ..errors import SetupError
from ..events import Action, Exit, Transfer
from ..messages import Message
from ..models import Chunk, Model, ModelRequest
from ..tools.guardrails import (
    GuardrailChecks,
    GuardrailFunction,
    GuardrailReturn,
    Guardrails,
    reject_duplicate_names,
    to_guardrails,
)
from ..wording import show
from .activation import AgentContext
from .base import BaseAgent, C, Out
from .compiled import compile_agent
from .definition import AgentDefinition
from .wrappers import AgentWrapper, ThenTransfer


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
    _has_passed: bool = False

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Call the wrapped model."""
        return self._model.respond(request) if self._has_passed else self._respond_after_checks(request)

    async def finish(self) -> None:
        """Run the guardrails now if the model was never called. Raises GuardrailTrippedError."""
        if not self._has_passed:
            await self._checks.enforce(self._messages)
            self._has_passed = True

    async def _respond_after_checks(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        # One task reads the whole response: a provider must close in a task what it opened there.
        reader = asyncio.create_task(self._read(request, chunks))
        try:
            await self._checks.enforce(self._messages, on_trip=reader.cancel)
            self._has_passed = True
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


Ctx = TypeVar("Ctx", default=Any)

GuardMode: TypeAlias = Literal["blocking", "parallel"]
ModelAgent: TypeAlias = AgentDefinition[Any, Any]
InputCheck: TypeAlias = Callable[[RunContext[Ctx], Sequence[Message]], GuardrailReturn | Awaitable[GuardrailReturn]]


class GuardedAgent(AgentWrapper[C, Out]):
    """Runs guardrails on the input and output of an agent.

    Args:
        inner: The wrapped agent.
        input: Guardrails for the messages that the agent reads.
        output: Guardrails for the agent's output.
        model_agent: The agent whose first model call runs in parallel with the input guardrails, or None.
    """

    def __init__(
        self, inner: BaseAgent[C, Out], input: Guardrails, output: Guardrails, model_agent: ModelAgent | None
    ) -> None:
        super().__init__(inner)
        self.input = input
        self.output = output
        self._model_agent = model_agent

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the agent between its guardrails. A transfer has no output to check."""
        checks = GuardrailChecks(self.input, ctx, "input")
        # Recorded verdicts are always read, so that a replay accounts for them.
        if self._model_agent is None or checks.are_recorded:
            await checks.enforce(ctx.messages())
            action = await self.inner.run(ctx)
        else:
            action = await self._run_in_parallel(ctx, self._model_agent, checks)
        if self.output and type(action) is not Transfer:
            output = action.result if isinstance(action, Exit) and action.result is not None else ctx.output
            if output is not None:
                await GuardrailChecks(self.output, ctx, "output").enforce(output)
        return action

    async def _run_in_parallel(
        self, ctx: AgentContext[C], model_agent: ModelAgent, checks: GuardrailChecks
    ) -> Action | None:
        compiled = compile_agent(model_agent, ctx)
        model = GuardedModel(compiled.model, checks, ctx.messages())
        # Only this activation uses the model that holds back its response.
        agents = {model_agent.name: msgspec.structs.replace(compiled, model=model)}
        ctx._options = replace(ctx._options, compiled_agents=agents)
        action = await self.inner.run(ctx)
        # Code around the agent may not have called the model; the checks run all the same.
        await model.finish()
        return action


@check_arguments
def with_guardrails(
    agent: BaseAgent[C, Out],
    *,
    input_guardrails: Sequence[InputCheck[C]] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    mode: GuardMode = "blocking",
) -> GuardedAgent[C, Out]:
    """Add guardrails to an agent. A check that does not pass raises `GuardrailTrippedError`.

    Args:
        agent: The agent.
        input_guardrails: Checks `(ctx, messages)` of the conversation that the agent reads.
        output_guardrails: Checks `(ctx, output)` of its answer.
        mode: `"blocking"` runs the input guardrails before the agent; `"parallel"` runs them during its first model
            call and holds back the response until they have passed.

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
    layers = list(_layers(agent))
    inside = [layer for layer in layers if isinstance(layer, GuardedAgent)]
    reject_duplicate_names(f"the input of {owner}", [*inputs, *(each for layer in inside for each in layer.input)])
    reject_duplicate_names(f"the output of {owner}", [*outputs, *(each for layer in inside for each in layer.output)])
    if outputs and any(isinstance(layer, ThenTransfer) for layer in layers):
        raise SetupError(
            f"{owner} would never check an output, because then_transfer always ends with a transfer; "
            "put the guardrails inside it: then_transfer(with_guardrails(…), to=…)"
        )
    model_agent = _find_model_agent(layers, owner) if mode == "parallel" else None
    return GuardedAgent(agent, inputs, outputs, model_agent)


def _layers(agent: BaseAgent[Any, Any]) -> Iterator[BaseAgent[Any, Any]]:
    """Yield the agent and the agents it wraps, the innermost last."""
    layer: Any = agent
    while isinstance(layer, BaseAgent):
        yield cast("BaseAgent[Any, Any]", layer)
        layer = getattr(cast(Any, layer), "inner", None)


def _find_model_agent(layers: Sequence[BaseAgent[Any, Any]], owner: str) -> ModelAgent:
    innermost = layers[-1]
    if isinstance(innermost, AgentDefinition):
        return innermost
    raise SetupError(
        f'{owner} has mode="parallel", but {innermost!r} does not call a model itself; use mode="blocking"'
    )
