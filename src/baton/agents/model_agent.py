"""The agent that asks a model.

How often a model has failed to mend its calls.

One activation of an agent that asks a model: ask, run the calls, ask again, until there is an outcome.
"""

import asyncio
from collections.abc import AsyncIterable, Coroutine
from time import time
from typing import Any

from msgspec.structs import replace
from typing_extensions import TypeVar

from ..context import HistoryEntry
from ..context.history import WHOLE_MESSAGE
from ..context.run_context import SuspendRun
from ..errors import BatonError, EmptyResponseError, ModelError, OutputError, TurnLimitError
from ..events import Action, AgentResponded, ReasoningDelta, TextDelta, ToolCallDelta
from ..log import EventSink
from ..messages import AssistantMessage, ToolCall, UserMessage, is_empty, text_of
from ..models import (
    Chunk,
    CompleteResponse,
    ModelRequest,
    ModelResponse,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    assemble_response,
)
from .base import AgentContext
from .compiled import build_instructions, compile_agent, disabled_handoffs, with_recorded_tools, with_toolsets
from .definition import AgentDefinition
from .turn import execute_turn


class CorrectionCounter:
    """Counts corrections that failed: turns that are faulty right after a faulty one."""

    __slots__ = ("_allowed", "_failed", "_was_faulty")

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.start_over()

    def note(self, fault: BatonError, *, is_over: bool = False) -> None:
        """A turn was faulty. Raises the fault if too many corrections have failed, unless the agent is done anyway."""
        if self._was_faulty:
            self._failed += 1
        self._was_faulty = True
        if self._failed >= self._allowed and not is_over:
            raise fault

    def passed(self) -> None:
        """A turn was in order."""
        self._was_faulty = False

    def start_over(self) -> None:
        """Somebody else has spoken: what was wrong before does not count."""
        self._was_faulty = False
        self._failed = 0


_OUTPUT_CORRECTIONS = 2
_LAST_TURN = "You have used all your turns with tools. Answer now, as well as you can, with what you know so far."


class ModelLoop:
    """What one activation keeps in mind while it has the floor."""

    __slots__ = ("_agent", "_ctx", "_faults", "_invalid_answers", "_manner")

    def __init__(self, agent: AgentDefinition[Any, Any], ctx: AgentContext[Any]) -> None:
        self._agent = agent
        self._ctx = ctx
        self._manner = compile_agent(agent, ctx)
        self._faults: CorrectionCounter | None = None
        self._invalid_answers = 0

    async def run(self) -> Action | None:
        """Take turns until one of them settles the matter."""
        agent, ctx = self._agent, self._ctx
        signals = ctx._run.signals
        turn = 0
        while True:
            turn += 1
            if stop := signals.stop:
                # A tool may have swallowed the cancellation; the run is over all the same.
                raise asyncio.CancelledError if stop == "now" else SuspendRun
            is_last = turn > agent.max_turns
            if is_last and (turn > agent.max_turns + 1 or agent.on_max_turns == "error"):
                raise TurnLimitError(agent.name, agent.max_turns)
            said = await self._ask(turn, is_last)
            message = said.message
            if not message.tool_calls:
                if self._accepts(said):
                    return None
                continue
            if is_last:
                raise TurnLimitError(agent.name, agent.max_turns)
            ctx._turn_start = len(ctx._history.entries)
            outcome = await execute_turn(agent, ctx, said, self._manner.toolbox)
            if outcome.fault is not None:
                self._faults = self._faults or CorrectionCounter(ctx._options.max_corrections)
                self._faults.note(outcome.fault, is_over=outcome.action is not None)
            elif self._faults is not None:
                self._faults.passed()
            if outcome.action is not None:
                return outcome.action
            if outcome.answer is not None:
                self._finish_with(self._direct_output(outcome.answer))
                return None

    async def _ask(self, turn: int, is_last: bool) -> AgentResponded:
        ctx = self._ctx
        run, origin, log = ctx._run, ctx._origin, ctx._run.log
        key = f"{ctx._scope}/m{turn}"
        said = log.find(key, AgentResponded) if log.has_past else None
        run.meter.start_model_call(origin)
        if said is None:
            if log.has_past:
                log.announce(key, AgentResponded)
            if self._agent._toolsets:
                self._manner = await with_toolsets(self._manner, ctx, key)
            instructions = self._manner.instructions
            if instructions is None:
                instructions = await build_instructions(ctx, self._agent.instructions, template=self._agent.template)
            disabled = await disabled_handoffs(ctx, self._agent, key) if ctx._routes.conditional else ()
            request = self._request(instructions, turn, is_last, disabled)
            if ctx._hooks is not None:
                await ctx._hooks.model_start(ctx, request, turn=turn)
            try:
                stream = self._manner.model.respond(request)
            except BatonError:
                raise
            except Exception as error:
                raise self._model_error(error) from error
            if type(stream) is CompleteResponse and (log.sink is None or log.listener(origin) is None):
                response = assemble_response(stream.chunks)
            else:
                response = await self._heard(stream)
            said = AgentResponded(
                key,
                origin,
                time(),
                self._checked(response.message, key),
                response.model or self._manner.model.name,
                response.usage,
                response.stop_reason,
                ctx._take_changes(),
                disabled,
            )
            log.write(said)
            if ctx._hooks is not None:
                await ctx._hooks.model_end(ctx, response, turn=turn)
            if log.sink is not None:
                await log.settle(is_patient=self._manner.toolbox.only_reads(said.message.tool_calls))
        else:
            run.call_ids.update([call.id for call in said.message.tool_calls])
            if self._agent._toolsets:
                self._manner = await with_recorded_tools(self._manner, ctx, said)
            if ctx._hooks is not None:
                await ctx._hooks.model_start(ctx, None, turn=turn)
            ctx._apply_changes(said.value_changes)
            if ctx._hooks is not None:
                await ctx._hooks.model_end(ctx, None, turn=turn)
        if said.usage is not None:
            run.meter.add_usage(said.usage, origin)
        return said

    def _request(self, instructions: str, turn: int, is_last: bool, disabled: tuple[str, ...]) -> ModelRequest:
        manner, agent = self._manner, self._agent
        messages = self._ctx.messages()
        log = self._ctx._run.log
        is_heard = log.sink is not None and log.listener(self._ctx._origin) is not None
        if is_last:
            told = [*messages, UserMessage(_LAST_TURN)]
            return ModelRequest(told, instructions, (), manner.settings, manner.output, agent.name, is_heard)
        choice = agent.tool_choice if turn == 1 and agent.tool_choice != "auto" else None
        specs = manner.specs
        if disabled:
            specs = tuple([spec for spec in specs if spec.name not in disabled])
        return ModelRequest(
            messages, instructions, specs, manner.settings, manner.output, agent.name, is_heard, choice
        )

    def _checked(self, message: AssistantMessage | None, key: str) -> AssistantMessage:
        """The model's message, if it says anything, with call ids that no other call of the run has."""
        if message is not None and message.tool_calls:
            used = self._ctx._run.call_ids
            for position, call in enumerate(message.tool_calls):
                if not call.id or call.id in used:
                    return _with_unique_ids(message, key, used, position)
                used.add(call.id)
            return message
        if message is not None and message.content and isinstance(message.content, str):
            return message
        if message is None or is_empty(AssistantMessage(message.content)):
            name = self._manner.model.name
            what = f"the model `{name}` of `{self._agent.name}` answered with neither text nor calls"
            raise EmptyResponseError(what, model=name, retryable=True)
        return message

    async def _heard(self, stream: AsyncIterable[Chunk]) -> ModelResponse:
        """The whole answer; whoever listens to the run hears it piece by piece."""
        sink = self._ctx._run.log.listener(self._ctx._origin)
        chunks: list[Chunk] = []
        try:
            if sink is not None:
                await self._listen(stream, sink, chunks)
            else:
                async for chunk in stream:
                    chunks.append(chunk)  # noqa: PERF401 - a comprehension is one more coroutine for every model call
        except BaseException as error:
            # An iterator that is left halfway keeps its connection open until it is closed.
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
            if not isinstance(error, Exception):
                raise
            if isinstance(error, BatonError):
                raise
            raise self._model_error(error) from error
        return assemble_response(chunks)

    async def _listen(self, stream: AsyncIterable[Chunk], sink: EventSink, chunks: list[Chunk]) -> None:
        keep, put, origin = chunks.append, sink.put, self._ctx._origin
        async for chunk in stream:
            keep(chunk)
            # Text first: nearly every chunk is text, and this runs once per token.
            if type(chunk) is TextChunk:
                put(TextDelta(origin, chunk.text))
            elif type(chunk) is ToolCallChunk:
                put(ToolCallDelta(origin, chunk.index, chunk.id, chunk.name, chunk.arguments))
            elif type(chunk) is ReasoningChunk and chunk.text:
                put(ReasoningDelta(origin, chunk.text))
            if sink.is_full:
                await sink.room()

    def _model_error(self, error: Exception) -> ModelError:
        name = self._manner.model.name
        what = f"the model `{name}` of `{self._agent.name}` raised {type(error).__name__}: {error}"
        return ModelError(what, model=name)

    def _accepts(self, said: AgentResponded) -> bool:
        """Whether this is a valid answer; if not, the model is told why and asked again."""
        agent, ctx, message = self._agent, self._ctx, said.message
        output: Any = text_of(message.content)
        if agent._output_parser is not None:
            try:
                output = agent._output_parser.read(output)
            except ValueError as error:
                if said.stop_reason == "refusal":
                    # Who will not answer at all does not write JSON when told to: asking again changes nothing.
                    raise OutputError(
                        agent.name, f"`{agent._output_parser.type_name}`", f"it refused: {output}"
                    ) from None
                self._invalid_answers += 1
                if self._invalid_answers > _OUTPUT_CORRECTIONS:
                    raise OutputError(agent.name, f"`{agent._output_parser.type_name}`", str(error)) from None
                complaint = f"This answer does not fit the required schema: {error}. Answer again, with JSON only."
                # Only this activation reads of it: to all later ones the answer is what was valid.
                ctx._history.undone_at.append(len(ctx._history.entries))
                for unsupported in (message, UserMessage(complaint)):
                    ctx._history.entries.append(HistoryEntry(unsupported, ctx._origin, undone=(WHOLE_MESSAGE,)))
                return False
        ctx._history.add(message, ctx._origin, is_answer=True)
        self._finish_with(output)
        return True

    def _direct_output(self, answer: str) -> Any:
        """A tool's result that is the answer, as a value of the output type."""
        agent = self._agent
        if agent._output_parser is None:
            return answer
        try:
            return agent._output_parser.read(answer)
        except ValueError as error:
            problems = f"a tool's result is returned directly, and {error}"
            raise OutputError(agent.name, f"`{agent._output_parser.type_name}`", problems) from None

    def _finish_with(self, output: Any) -> None:
        agent, ctx = self._agent, self._ctx
        ctx.output = output
        if agent.output_key is not None:
            plain = (
                agent._output_parser.dump(output)
                if agent._output_parser is not None and not isinstance(output, str)
                else output
            )
            ctx.values.set(agent.output_key, plain)


def _with_unique_ids(message: AssistantMessage, key: str, used: set[str], start: int) -> AssistantMessage:
    """The message with new ids for calls from `start` on that have none, or one that is taken."""
    calls = list(message.tool_calls)
    for position in range(start, len(calls)):
        call = calls[position]
        if not call.id or call.id in used:
            # Some providers leave ids out, or count anew in every turn.
            id = f"call_{key.replace('/', '_').replace('.', '_')}_{position}"
            while id in used:
                id += "x"
            calls[position] = call = ToolCall(id, call.name, call.arguments)
        used.add(call.id)
    return replace(message, tool_calls=tuple(calls))


C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class Agent(AgentDefinition[C, Out]):
    """An agent that asks a model, runs the tools it calls, and answers or hands the conversation on.

    A frozen value: the same agent may stand in several teams and run many times at once.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Ask the model until it answers, transfers or exits."""
        return ModelLoop(self, ctx).run()
