"""An agent around an agent: guardrails judge what it is given to read, and what it answers.

A model around a model: its first answer is held back until guardrails, asked at the same time, let it through.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

import msgspec
from typing_extensions import TypeVar

from ..context import RunContext
from ..errors import SetupError
from ..events import Action, Exit, Transfer
from ..messages import Message
from ..models import Chunk, Model, ModelRequest
from ..tools.guardrails import (
    Guardrail,
    GuardrailChecks,
    GuardrailFunction,
    GuardrailReturn,
    as_guardrails,
    refuse_same_names,
)
from .base import AgentContext, BaseAgent
from .compiled import compile_agent
from .definition import AgentDefinition
from .wrappers import AgentWrapper, ThenTransfer


class GuardedModel:
    """The model of one activation, with the checks of that activation's input beside its first call."""

    __slots__ = ("_checks", "_has_passed", "_messages", "_model")

    def __init__(self, model: Model, checks: GuardrailChecks, messages: Sequence[Message]) -> None:
        self._model = model
        self._checks = checks
        self._messages = messages
        self._has_passed = False

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self._model.name

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """The answer of the model inside."""
        return self._model.respond(request) if self._has_passed else self._held_back(request)

    async def finish(self) -> None:
        """Ask the guardrails now if the agent never asked its model. Raises GuardrailTrippedError if one says no."""
        if not self._has_passed:
            await self._checks.enforce(self._messages)
            self._has_passed = True

    async def _held_back(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        heard: asyncio.Queue[Chunk | None] = asyncio.Queue()
        # One task reads the answer from its beginning to its end: what a provider opens in a task it must close there.
        hearing = asyncio.create_task(self._hear(request, heard))
        try:
            await self._checks.enforce(self._messages, on_trip=hearing.cancel)
            self._has_passed = True
            while (chunk := await heard.get()) is not None:
                yield chunk
            await hearing
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, request: ModelRequest, heard: "asyncio.Queue[Chunk | None]") -> None:
        try:
            chunks = self._model.respond(request)
            try:
                async for chunk in chunks:
                    heard.put_nowait(chunk)
            finally:
                close = getattr(chunks, "aclose", None)
                if close is not None:
                    await close()
        finally:
            heard.put_nowait(None)


C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

GuardMode: TypeAlias = Literal["blocking", "parallel"]
InputCheck: TypeAlias = Callable[[RunContext[Any], Sequence[Message]], GuardrailReturn | Awaitable[GuardrailReturn]]


class GuardedAgent(AgentWrapper[C, Out]):
    """Runs another agent under its own name if its input passes, and lets its output out if that passes."""

    def __init__(
        self,
        inner: BaseAgent[C, Out],
        input: tuple[Guardrail, ...],
        output: tuple[Guardrail, ...],
        *,
        asker: AgentDefinition[Any, Any] | None,
    ) -> None:
        """`asker` is the agent, in or behind `inner`, whose first model call the input is judged beside; or None."""
        super().__init__(inner)
        self.input = input
        self.output = output
        self._asker = asker

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Let the inner agent work between the guardrails. A transfer has no output to judge."""
        checks = GuardrailChecks(self.input, ctx, "input")
        # What is recorded is asked for in any case, so that a replay accounts for it and a recorded no counts.
        if self._asker is None or checks.are_recorded:
            await checks.enforce(ctx.messages())
            action = await self.inner.run(ctx)
        else:
            action = await self._run_beside(ctx, self._asker, checks)
        if self.output and type(action) is not Transfer:
            output = action.result if isinstance(action, Exit) and action.result is not None else ctx.output
            if output is not None:
                await GuardrailChecks(self.output, ctx, "output").enforce(output)
        return action

    async def _run_beside(
        self, ctx: AgentContext[C], asker: AgentDefinition[Any, Any], checks: GuardrailChecks
    ) -> Action | None:
        manner = compile_agent(asker, ctx)
        model = GuardedModel(manner.model, checks, ctx.messages())
        # Only in this activation does the agent ask the model that holds its answer back.
        manners = {asker.name: msgspec.structs.replace(manner, model=model)}
        ctx._options = replace(ctx._options, compiled_agents=manners)
        action = await self.inner.run(ctx)
        # Code around the agent may have done without the model; unjudged it does not end.
        await model.finish()
        return action


def with_guardrails(
    agent: BaseAgent[C, Out],
    *,
    input_guardrails: Sequence[InputCheck] = (),
    output_guardrails: Sequence[GuardrailFunction] = (),
    mode: GuardMode = "blocking",
) -> GuardedAgent[C, Out]:
    """The agent, with guardrails on what it reads (ctx, messages) and on what it answers (ctx, output).

    A no raises GuardrailTrippedError. `mode` is when the input is judged: "blocking", before the agent does anything, or
    "parallel", while its model is first asked; the answer is then held back until all guardrails have passed it.
    """
    if not isinstance(agent, BaseAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(f"guarded({agent!r}) has nothing to guard; give an agent")
    owner = f"guarded(`{agent.name}`)"
    if mode not in ("blocking", "parallel"):
        raise SetupError(f'{owner} has mode={mode!r}; use "blocking" or "parallel"')
    of_input, of_output = as_guardrails(owner, input_guardrails=input_guardrails, output_guardrails=output_guardrails)
    layers = list(_layers(agent))
    inside = [layer for layer in layers if isinstance(layer, GuardedAgent)]
    refuse_same_names(f"the input of {owner}", [*of_input, *(each for layer in inside for each in layer.input)])
    refuse_same_names(f"the output of {owner}", [*of_output, *(each for layer in inside for each in layer.output)])
    if of_output and any(isinstance(layer, ThenTransfer) for layer in layers):
        raise SetupError(
            f"{owner} would never judge an output, because then_transfer makes every end a transfer; "
            "put the guardrails inside it: then_transfer(guarded(…), to=…)"
        )
    return GuardedAgent(agent, of_input, of_output, asker=_asker_in(layers, owner) if mode == "parallel" else None)


def _layers(agent: BaseAgent[Any, Any]) -> Iterator[BaseAgent[Any, Any]]:
    """The agent and the agents it is wrapped around, the innermost last."""
    layer: Any = agent
    while isinstance(layer, BaseAgent):
        yield cast("BaseAgent[Any, Any]", layer)
        layer = getattr(cast(Any, layer), "inner", None)


def _asker_in(layers: Sequence[BaseAgent[Any, Any]], owner: str) -> AgentDefinition[Any, Any]:
    innermost = layers[-1]
    if isinstance(innermost, AgentDefinition):
        return innermost
    raise SetupError(
        f'{owner} has mode="parallel", but {innermost!r} asks no model of its own that guardrails could run beside; '
        'use mode="blocking"'
    )
