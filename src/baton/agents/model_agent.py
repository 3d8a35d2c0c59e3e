"""`Agent`, and the loop that calls its model and tools until there is an answer or action."""

import asyncio
import logging
from collections.abc import AsyncIterable, Coroutine
from time import time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..context import HistoryEntry
from ..context.history import WHOLE_MESSAGE
from ..context.run_context import SuspendRun
from ..errors import BatonError, EmptyResponseError, ModelError, OutputError, TurnLimitError
from ..events import Action, AgentResponded, ReasoningDelta, ResponseRestarted, TextDelta, ToolCallDelta
from ..log import EventSink
from ..messages import AssistantMessage, ToolCall, UserMessage, is_empty, text_of
from ..models import (
    Chunk,
    CompleteResponse,
    ModelRequest,
    ModelResponse,
    ReasoningChunk,
    RestartChunk,
    TextChunk,
    ToolCallChunk,
    assemble_response,
)
from .activation import AgentContext
from .base import C, Out
from .compiled import (
    CompiledAgent,
    build_instructions,
    compile_agent,
    disabled_handoffs,
    with_recorded_tools,
    with_toolsets,
)
from .definition import AgentDefinition
from .turn import execute_turn

_logger = logging.getLogger("baton.agents")


class CorrectionCounter(Struct):
    """Counts failed corrections: faulty turns directly after a faulty turn.

    Args:
        allowed: How many failed corrections are tolerated.
    """

    allowed: int
    _was_faulty: bool = False
    _failed: int = 0

    def add_fault(self, fault: BatonError, *, is_over: bool = False) -> None:
        """Count a faulty turn; raise the fault after too many, unless the agent is done."""
        if self._was_faulty:
            self._failed += 1
        self._was_faulty = True
        if self._failed >= self.allowed and not is_over:
            raise fault

    def add_success(self) -> None:
        """Count a turn without fault."""
        self._was_faulty = False

    def reset(self) -> None:
        """Forget earlier faults."""
        self._was_faulty = False
        self._failed = 0


_OUTPUT_CORRECTIONS = 2
_LAST_TURN = "You have used all your turns with tools. Answer now, as well as you can, with what you know so far."


class ModelLoop(Struct):
    """One activation of an agent that calls a model."""

    _agent: AgentDefinition[Any, Any]
    _ctx: AgentContext[Any]
    _compiled: CompiledAgent
    _faults: CorrectionCounter | None = None
    _invalid_answers: int = 0

    async def run(self) -> Action | None:
        """Run turns until there is an answer or an action."""
        agent, ctx = self._agent, self._ctx
        signals = ctx._run.signals
        turn = 0
        while True:
            turn += 1
            if stop := signals.stop:
                # A tool may have swallowed the cancellation.
                raise asyncio.CancelledError if stop == "now" else SuspendRun
            is_last = turn > agent.max_turns
            if is_last and (turn > agent.max_turns + 1 or agent.on_max_turns == "error"):
                raise TurnLimitError(agent.name, agent.max_turns)
            response = await self._call_model(turn, is_last)
            if not response.message.tool_calls:
                if self._accept_answer(response):
                    return None
                continue
            if is_last:
                raise TurnLimitError(agent.name, agent.max_turns)
            ctx._turn_start = len(ctx._history.entries)
            outcome = await execute_turn(agent, ctx, response, self._compiled.tools)
            if outcome.fault is not None:
                self._faults = self._faults or CorrectionCounter(ctx._options.max_corrections)
                self._faults.add_fault(outcome.fault, is_over=outcome.action is not None)
            elif self._faults is not None:
                self._faults.add_success()
            if outcome.action is not None:
                return outcome.action
            if outcome.answer is not None:
                self._set_output(self._parse_final_result(outcome.answer))
                return None

    async def _call_model(self, turn: int, is_last: bool) -> AgentResponded:
        ctx = self._ctx
        run, origin, log = ctx._run, ctx._origin, ctx._run.log
        key = f"{ctx._scope}/m{turn}"
        recorded = log.find(key, AgentResponded) if log.has_past else None
        run.meter.start_model_call(origin)
        if recorded is None:
            if log.has_past:
                log.announce(key, AgentResponded)
            if self._agent._toolsets:
                self._compiled = await with_toolsets(self._compiled, ctx, key)
            instructions = self._compiled.instructions
            if instructions is None:
                instructions = await build_instructions(ctx, self._agent.instructions, template=self._agent.template)
            disabled = await disabled_handoffs(ctx, self._agent, key) if ctx._routes.conditional else ()
            request = self._build_request(instructions, turn, is_last, disabled)
            if ctx._hooks is not None:
                await ctx._hooks.call(ctx, "model_start", request, turn=turn)
            try:
                stream = self._compiled.model.respond(request)
            except BatonError:
                raise
            except Exception as error:
                raise self._model_error(error) from error
            response: ModelResponse | None = None
            try:
                if type(stream) is CompleteResponse and (log.sink is None or log.listener(origin) is None):
                    response = assemble_response(stream.chunks)
                else:
                    response = await self._collect(stream)
                message = self._check_message(response.message, key)
            except EmptyResponseError as error:
                if not error.retryable or error.given_up:
                    raise
                response, message = await self._ask_again(request, key, response)
            name = response.model or self._compiled.model.name
            usage, reason, changes = response.usage, response.stop_reason, ctx._take_changes()
            recorded = AgentResponded(key, origin, time(), message, name, usage, reason, changes, disabled)
            log.write(recorded)
            if ctx._hooks is not None:
                await ctx._hooks.call(ctx, "model_end", response, turn=turn)
            if log.sink is not None:
                await log.settle(can_defer=self._compiled.tools.only_reads(recorded.message.tool_calls))
        else:
            run.call_ids.update([call.id for call in recorded.message.tool_calls])
            if self._agent._toolsets:
                self._compiled = await with_recorded_tools(self._compiled, ctx, recorded)
            if ctx._hooks is not None:
                await ctx._hooks.call(ctx, "model_start", None, turn=turn, is_past=True)
            ctx._apply_changes(recorded.value_changes)
            if ctx._hooks is not None:
                await ctx._hooks.call(ctx, "model_end", None, turn=turn, is_past=True)
        if recorded.usage is not None:
            run.meter.add_usage(recorded.usage, origin)
        return recorded

    def _build_request(self, instructions: str, turn: int, is_last: bool, disabled: tuple[str, ...]) -> ModelRequest:
        compiled, agent = self._compiled, self._agent
        messages = self._ctx._view.messages()
        log = self._ctx._run.log
        is_streamed = log.sink is not None and log.listener(self._ctx._origin) is not None
        if is_last:
            messages = [*messages, UserMessage(_LAST_TURN)]
            return ModelRequest(messages, instructions, (), compiled.settings, compiled.output, agent.name, is_streamed)
        choice = agent.tool_choice if turn == 1 and agent.tool_choice != "auto" else None
        specs = compiled.specs
        if compiled.routes.conditional:
            specs = compiled.tools.specs + compiled.routes.enabled_specs(disabled)
        return ModelRequest(
            messages, instructions, specs, compiled.settings, compiled.output, agent.name, is_streamed, choice
        )

    async def _ask_again(
        self, request: ModelRequest, key: str, empty: ModelResponse | None
    ) -> tuple[ModelResponse, AssistantMessage]:
        """Call the model once more after an empty response."""
        agent, model, lost = self._agent, self._compiled.model, empty.usage if empty is not None else None
        _logger.info("model %s of `%s` answered with neither text nor calls; it is asked again", model.name, agent.name)
        run, origin = self._ctx._run, self._ctx._origin
        run.meter.start_model_call(origin)
        # Subscribers may have received its reasoning.
        run.log.deliver(ResponseRestarted(origin))
        response = await self._collect(model.respond(request))
        message = self._check_message(response.message, key)
        if lost is not None:
            # Both calls are paid for, and only this response is recorded.
            response = replace(response, usage=lost if response.usage is None else lost + response.usage)
        return response, message

    def _check_message(self, message: AssistantMessage | None, key: str) -> AssistantMessage:
        """Return the message with unique call ids. Raises EmptyResponseError."""
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
            name = self._compiled.model.name
            text = f"the model `{name}` of `{self._agent.name}` answered with neither text nor calls"
            raise EmptyResponseError(text, model=name, retryable=True)
        return message

    async def _collect(self, stream: AsyncIterable[Chunk]) -> ModelResponse:
        """Collect the response, and forward its chunks to subscribers."""
        sink = self._ctx._run.log.listener(self._ctx._origin)
        chunks: list[Chunk] = []
        try:
            if sink is not None:
                await self._forward(stream, sink, chunks)
            else:
                async for chunk in stream:
                    chunks.append(chunk)  # noqa: PERF401 - a comprehension is one more coroutine for every model call
        except BaseException as error:
            # An iterator that is not exhausted keeps its connection open until it is closed.
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
            if not isinstance(error, Exception) or isinstance(error, BatonError):
                raise
            raise self._model_error(error) from error
        return assemble_response(chunks)

    async def _forward(self, stream: AsyncIterable[Chunk], sink: EventSink, chunks: list[Chunk]) -> None:
        append, put, origin = chunks.append, sink.put, self._ctx._origin
        async for chunk in stream:
            append(chunk)
            # Text first: nearly every chunk is text, and this runs once per token.
            if type(chunk) is TextChunk:
                put(TextDelta(origin, chunk.text))
            elif type(chunk) is ToolCallChunk:
                put(ToolCallDelta(origin, chunk.index, chunk.id, chunk.name, chunk.arguments))
            elif type(chunk) is ReasoningChunk and chunk.text:
                put(ReasoningDelta(origin, chunk.text))
            elif type(chunk) is RestartChunk:
                put(ResponseRestarted(origin))
            if sink.is_full:
                await sink.drain()

    def _model_error(self, error: Exception) -> ModelError:
        name = self._compiled.model.name
        what = f"the model `{name}` of `{self._agent.name}` raised {type(error).__name__}: {error}"
        return ModelError(what, model=name)

    def _accept_answer(self, response: AgentResponded) -> bool:
        """Store a valid answer as output; tell the model what is wrong with an invalid one."""
        agent, ctx, message = self._agent, self._ctx, response.message
        output: Any = text_of(message.content)
        if agent._output_parser is not None:
            try:
                output = agent._output_parser.parse(output)
            except ValueError as error:
                if response.stop_reason == "refusal":
                    # A refusal does not become JSON by asking again.
                    raise self._output_error(f"it refused: {output}") from None
                self._invalid_answers += 1
                if self._invalid_answers > _OUTPUT_CORRECTIONS:
                    raise self._output_error(str(error)) from None
                complaint = f"This answer does not fit the required schema: {error}. Answer again, with JSON only."
                # Only this activation reads the invalid answer; later ones read the valid one.
                ctx._history.hidden_at.append(len(ctx._history.entries))
                for invalid in (message, UserMessage(complaint)):
                    ctx._history.entries.append(HistoryEntry(invalid, ctx._origin, hidden=(WHOLE_MESSAGE,)))
                return False
        ctx._history.add(message, ctx._origin, is_answer=True)
        self._set_output(output)
        return True

    def _parse_final_result(self, answer: str) -> Any:
        """Parse the final result of a tool as the output type."""
        parser = self._agent._output_parser
        try:
            return answer if parser is None else parser.parse(answer)
        except ValueError as error:
            raise self._output_error(f"a tool's result is returned directly, and {error}") from None

    def _output_error(self, problems: str) -> OutputError:
        parser = self._agent._output_parser
        return OutputError(self._agent.name, f"`{parser.type_name if parser is not None else 'str'}`", problems)

    def _set_output(self, output: Any) -> None:
        agent, ctx = self._agent, self._ctx
        ctx.output = output
        if agent.output_key is not None:
            parser = agent._output_parser
            plain = output if parser is None or isinstance(output, str) else parser.dump(output)
            ctx.values.set(agent.output_key, plain)


def _with_unique_ids(message: AssistantMessage, key: str, used: set[str], start: int) -> AssistantMessage:
    """Replace missing and duplicate ids of calls from `start` on."""
    calls = list(message.tool_calls)
    for position in range(start, len(calls)):
        call = calls[position]
        if not call.id or call.id in used:
            # Some providers omit ids, or reuse them in every turn.
            id = f"call_{key.replace('/', '_').replace('.', '_')}_{position}"
            while id in used:
                id += "x"
            calls[position] = call = ToolCall(id, call.name, call.arguments)
        used.add(call.id)
    return replace(message, tool_calls=tuple(calls))


class Agent(AgentDefinition[C, Out]):
    """An agent that calls a model and tools until it answers, transfers or exits.

    Agents are frozen: the same agent may be part of several teams and of many concurrent runs.

    Args:
        name: The name, unique in the team.
        description: Tells other agents when to transfer to this one.
        instructions: The system prompt, or a function of the context that returns it, sync or async.
        model: A model, a string such as `"openai:gpt-5"`, or None for the runner's model.
        model_settings: Settings that override the runner's.
        tools: Tools, functions to make tools of, and toolsets.
        handoffs: Agents, handoffs or names of agents it can transfer to, each with a tool of its own.
        sub_agents: Agents it can transfer to with one shared tool, and that can transfer back.
        output_type: The type of the answer: any type that pydantic can validate, including unions.
        hooks: Lifecycle callbacks.
        tool_choice: What the first turn must do: `"auto"`, `"required"`, `"none"` or the name of a tool.
        max_turns: Maximum number of model calls per activation.
        on_max_turns: After the last turn: `"answer"` asks once more without tools, `"error"` fails at once.
        concurrent_tools: Whether the tool calls of one response run concurrently.
        history: How it reads the messages of agents that were active before it.
        accepts: Decides whether it takes a conversation: `(ctx, input) -> True`, or a reason why not.
        examples: Example questions that other agents read with the description.
        template: Whether `{name}` in the instructions is replaced by the run's value of that name.
        exit_tool: Whether the model may end the whole run with `exit(final_result)`.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
        output_key: The key under which the answer is stored in the run's values.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Run one activation.

        Args:
            ctx: The context of the activation.
        """
        return ModelLoop(self, ctx, compile_agent(self, ctx)).run()
