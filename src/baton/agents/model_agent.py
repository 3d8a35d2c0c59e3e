"""`Agent`, and the loop that calls its model and tools until there is an answer or action."""

import asyncio
import logging
from collections.abc import AsyncIterable, Coroutine
from time import time
from typing import Any, ClassVar, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from ..context import HistoryEntry
from ..context.history import WHOLE_MESSAGE
from ..context.run_context import SuspendRun
from ..errors import BatonError, EmptyResponseError, ModelError, OutputError, SetupError, TurnLimitError
from ..events import (
    Action,
    AgentResponded,
    ReasoningDelta,
    RequestRecord,
    ResponseRestarted,
    TextDelta,
    ToolCallDelta,
    ToolReturned,
)
from ..log import DeltaSink, ReadOnlyLog
from ..messages import AssistantMessage, ToolCall, Usage, UserMessage, is_empty, text_of
from ..models import (
    Chunk,
    CompleteResponse,
    Model,
    ModelRequest,
    ModelResponse,
    ReasoningChunk,
    RestartChunk,
    TextChunk,
    ToolCallChunk,
    assemble_response,
    resolve_model,
)
from ..models.prices import add_cost
from ..tools.guardrails import Guardrails
from ..wording import type_of
from .activation import AgentContext
from .base import C, Out
from .behavior import stop_after_tools
from .calls import PendingTransfer
from .compactor import Compactor, count_recorded_compaction, replay_compaction
from .compiled import (
    CompiledAgent,
    PreparedTurn,
    build_instructions,
    compile_agent,
    disabled_handoffs,
    disabled_tools,
    with_recorded_tools,
    with_task,
    with_toolsets,
)
from .definition import AgentDefinition
from .guardrails import AgentGuards
from .middleware import MiddlewareStack
from .middleware_chains import MiddlewareContext, ModelCallChain
from .steering import add_recorded_messages, add_sent_messages
from .tracing import ModelCallSpan
from .turn import CONTINUE, TurnExecutor, TurnOutcome, execute_turn, finish_lone, follow_pending

E = TypeVar("E", bound=BaseException)
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
    _calls: int = 0
    """The number of model calls that the last response without middleware took."""
    _invalid_answers: int = 0
    _compactor: Compactor | None = None
    _sent: ModelRequest | None = None
    """The last request that the model received for the current response."""

    async def run(self) -> Action | None:  # noqa: C901
        """Run turns until there is an answer or an action."""
        agent, ctx = self._agent, self._ctx
        signals, entries = ctx._run.signals, ctx._history.entries
        # Not an attribute: the chain refers to this object, and both would be freed by the garbage collector only.
        chain = self._build_chain(ctx._middleware) if ctx._middleware is not None and ctx._middleware.model else None
        turn = 0
        while True:
            turn += 1
            if stop := signals.stop:
                # A tool may have swallowed the cancellation.
                raise asyncio.CancelledError if stop == "now" else SuspendRun
            is_last = turn > agent.max_turns
            if is_last and (turn > agent.max_turns + 1 or agent.on_max_turns == "error"):
                raise TurnLimitError(agent.name, agent.max_turns)
            response = await self._call_model(turn, is_last, chain)
            if not response.message.tool_calls:
                if self._accept_answer(response):
                    return None
                continue
            if is_last:
                raise TurnLimitError(agent.name, agent.max_turns)
            if ctx._run.signals.stop == "after_response":
                raise SuspendRun
            turn_start, tools = len(entries), self._compiled.tools
            executed = execute_turn(agent, ctx, response, tools)
            done = executed if type(executed) is TurnOutcome else await executed
            # The only call of a response is awaited here, without a coroutine of its own around it.
            if type(done) is ToolReturned:
                outcome = finish_lone(ctx, response, done)
            elif type(done) is TurnOutcome:
                outcome = done
            else:
                turn_executor = TurnExecutor(agent, ctx, response, tools)
                outcome = await follow_pending(turn_executor, cast("PendingTransfer", done))
            if outcome.fault is not None or self._faults is not None:
                self._count_fault(outcome)
            if outcome is not CONTINUE:
                if outcome.action is not None:
                    ctx._turn_start = turn_start
                    return outcome.action
                if outcome.answer is not None:
                    self._set_output(self._parse_final_result(outcome.answer))
                    return None
            behavior = agent.tool_use_behavior
            if behavior != "run_again" and not outcome.is_denied:
                answer = await stop_after_tools(behavior, ctx, response, tools.by_name)
                if answer is not None:
                    self._set_output(self._parse_final_result(answer.text))
                    return None

    def _count_fault(self, outcome: TurnOutcome) -> None:
        """Count the model's mistakes; raise the last one after too many failed corrections."""
        if outcome.fault is not None:
            self._faults = self._faults or CorrectionCounter(self._ctx._options.max_corrections)
            self._faults.add_fault(outcome.fault, is_over=outcome.action is not None)
        elif self._faults is not None:
            self._faults.add_success()

    async def _call_model(self, turn: int, is_last: bool, chain: ModelCallChain | None) -> AgentResponded:  # noqa: C901
        ctx = self._ctx
        run, key = ctx._run, f"{ctx._scope}/m{turn}"
        log = run.log
        if log.has_past and (recorded := log.find(key, AgentResponded)) is not None:
            await self._replay_response(recorded, turn)
            return recorded
        prepared, lease = self._compiled.fixed, run.signals.lease
        if prepared is None or log.has_past or run.signals.messages or (lease is not None and lease.is_steered):
            prepared = await self._prepare_turn(key, turn)
        request = self._build_request(prepared, turn, is_last)
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "model_start", request, turn=turn)
        if chain is None:
            response = await self._respond(request)
            usage, calls, name = response.usage, self._calls, response.model or self._compiled.model.name
        else:
            chain.key = key
            outermost = MiddlewareContext(run, ctx._origin, "", None, ctx, _chain=chain)
            response = await chain.layers[0].method(outermost, request, outermost._call_next)
            if response is not outermost._first or outermost._values is not None or run.suspended_by:
                chain.leave(outermost, response)
                self._require_content(response)
            usage, calls = outermost._usage, outermost._model_calls
            name = response.model or outermost._model or (self._compiled.model.name if calls else "")
            if log.sink is not None:
                chain.finish_deltas(cast("AssistantMessage", response.message))
        # Checked by `_respond` or `_require_content`.
        message: Any = response.message
        if message.tool_calls:
            id, used = message.tool_calls[0].id, run.call_ids
            if id and id not in used and len(message.tool_calls) == 1:
                used.add(id)
            else:
                message = _with_unique_ids(message, key, used)
        sent: RequestRecord | None = None
        if run.requests is not None and self._sent is not None:
            sent, self._sent = run.requests.record(key, self._sent, ctx), None
        recorded = AgentResponded(
            key,
            ctx._origin,
            time(),
            message,
            name,
            usage,
            response.stop_reason,
            None if ctx._values is None else ctx._take_changes(),
            prepared.disabled,
            calls,
            response.logprobs,
            sent,
            prepared.hidden,
            response_id=response.id,
        )
        if prepared.failed_calls:
            recorded = replace(recorded, failed_calls=prepared.failed_calls)
        log.write(recorded)
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "model_end", response, turn=turn)
        if log.sink is not None:
            await log.settle(can_defer=self._compiled.tools.only_reads(message.tool_calls))
        if usage is not None:
            run.meter.add_usage(usage, ctx._origin)
        return recorded

    async def _prepare_turn(self, key: str, turn: int) -> PreparedTurn:
        """Compute what a request needs besides the messages, and read what the user has sent."""
        ctx, agent = self._ctx, self._agent
        log, failed_calls = ctx._run.log, 0
        if log.has_past:
            if isinstance(log, ReadOnlyLog):
                count_recorded_compaction(ctx, key)
                # The run may have failed here because of its limits; a replay raises the same error.
                ctx._run.meter.start_model_call(ctx._origin)
            log.announce(key, AgentResponded)
        if agent._toolsets:
            self._compiled = await with_toolsets(self._compiled, ctx, key)
        compiled = self._compiled
        instructions = compiled.instructions
        if instructions is None:
            instructions = await build_instructions(ctx, agent.instructions, template=agent.template, key=key)
        disabled = await disabled_handoffs(ctx, agent, key) if ctx._routes.conditional else ()
        hidden = await disabled_tools(ctx, agent, key, compiled.tools) if compiled.tools.conditional else ()
        if log.has_past or ctx._run.signals.has_messages:
            await add_sent_messages(ctx, key)
        if compiled.compaction is not None or log.has_past:
            self._compactor = self._compactor or Compactor(ctx)
            failed_calls = await self._compactor.prepare_turn(compiled, turn, instructions)
        return PreparedTurn(instructions, disabled, hidden, failed_calls)

    async def _replay_response(self, recorded: AgentResponded, turn: int) -> None:
        """Repeat what a recorded model call changed, without calling the model."""
        ctx, run, key, origin = self._ctx, self._ctx._run, recorded.key, self._ctx._origin
        add_recorded_messages(ctx, key)
        await replay_compaction(ctx, turn)
        for _ in range(recorded.model_calls + recorded.failed_calls):
            run.meter.start_model_call(origin)
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

    def _build_request(self, prepared: PreparedTurn, turn: int, is_last: bool) -> ModelRequest:
        compiled, agent, ctx = self._compiled, self._agent, self._ctx
        messages, instructions, log = ctx._view.messages(), prepared.instructions, ctx._run.log
        is_streamed = log.sink is not None and log.listener(ctx._origin) is not None
        # Only middleware needs the model; for models the request is the same with and without it.
        model = compiled.model if ctx._middleware is not None else None
        if is_last:
            messages = [*messages, UserMessage(_LAST_TURN)]
            return ModelRequest(
                messages, instructions, (), compiled.settings, compiled.output, agent.name, is_streamed, None, model
            )
        choice = agent.tool_choice if turn == 1 and agent.tool_choice != "auto" else None
        specs = compiled.specs
        if prepared.hidden or compiled.routes.conditional:
            specs = compiled.tools.enabled_specs(prepared.hidden) + compiled.routes.enabled_specs(prepared.disabled)
            choice = None if choice in prepared.hidden else choice
        if ctx._task is not None:
            specs, instructions = with_task(ctx, compiled.tools, specs, instructions)
        return ModelRequest(
            messages, instructions, specs, compiled.settings, compiled.output, agent.name, is_streamed, choice, model
        )

    async def _respond(  # noqa: C901
        self, request: ModelRequest, caller: MiddlewareContext | None = None, suffix: str | None = ""
    ) -> ModelResponse:
        """Call the model, once more if its response has neither text nor calls.

        Args:
            request: The request.
            caller: The context of the innermost middleware, if there is any.
            suffix: None to keep the outcome in the caller; model calls have no scope of their own.
        """
        ctx, model, calls = self._ctx, self._compiled.model, 0
        run, origin = ctx._run, ctx._origin
        if request.model is not None and request.model is not model:
            model = resolve_model(request.model, wanted_by=self._agent.name)
            if caller is not None:
                caller._model = model.name
        if run.requests is not None:
            self._sent = request
        lost: Usage | None = None
        while True:
            run.meter.start_model_call(origin)
            calls += 1
            if caller is not None:
                caller._model_calls += 1
            sink = None if run.log.sink is None else self._delta_sink(caller)
            stream: AsyncIterable[Chunk] | None = None
            trace = run.trace
            span: ModelCallSpan | None = None if trace is None else trace.start_model_call(ctx, model, request)
            try:
                stream = model.respond(request) if span is None else span.watch(model.respond(request))
                if sink is not None:
                    chunks = await self._forward(stream, sink)
                elif type(stream) is CompleteResponse:
                    chunks = stream.chunks
                else:
                    chunks = [chunk async for chunk in stream]
                response = assemble_response(chunks)
                if response.usage is not None and ctx._options.prices is not None:
                    usage = add_cost(ctx._options.prices, response.usage, model.name, response.model)
                    response = replace(response, usage=usage)
                if span is not None:
                    span.end(response)
            except EmptyResponseError as error:
                await _abandon(stream, span, error)
                if calls > 1 or not error.retryable or error.given_up:
                    raise _keep_error(error, caller, suffix)
                response = _NO_RESPONSE
            except BaseException as error:
                await _abandon(stream, span, error)
                if not isinstance(error, Exception) or isinstance(error, BatonError):
                    raise _keep_error(error, caller, suffix)
                what = f"the model `{model.name}` of `{self._agent.name}` raised {type(error).__name__}: {error}"
                raise _keep_error(ModelError(what, model=model.name), caller, suffix) from error
            message = response.message
            if message is not None and (message.tool_calls or _has_content(message)):
                break
            if calls > 1:
                raise _keep_error(self._empty_response(response), caller, suffix)
            self._announce_repetition(model, caller)
            lost = response.usage
        if lost is not None:
            # Both calls are paid for, and only this response is recorded.
            response = replace(response, usage=lost if response.usage is None else lost + response.usage)
        if caller is None:
            self._calls = calls
            return response
        if sink is not None:
            cast("ModelCallChain", caller._chain).streamed = message
        if suffix is None:
            caller._first = response
        if response.model or caller._model:
            caller._model = response.model or model.name
        if response.usage is not None:
            caller._add_usage(response.usage)
        return response

    def _build_chain(self, stack: MiddlewareStack) -> ModelCallChain:
        ctx = self._ctx
        is_direct = len(stack.model) == 1 and not ctx._run.log.has_past
        return ModelCallChain(stack.model, ctx, "", ctx, self._respond, is_direct=is_direct, is_held=stack.holds_deltas)

    def _delta_sink(self, caller: MiddlewareContext | None) -> DeltaSink | None:
        sink = self._ctx._run.log.listener(self._ctx._origin)
        return sink if caller is None else cast("ModelCallChain", caller._chain).start_deltas(sink)

    def _announce_repetition(self, model: Model, caller: MiddlewareContext | None) -> None:
        name = self._agent.name
        _logger.info("model %s of `%s` answered with neither text nor calls; it is asked again", model.name, name)
        if caller is None:
            # Subscribers may have received its reasoning; the chain of middleware tells them itself.
            self._ctx._run.log.deliver(ResponseRestarted(self._ctx._origin))

    def _require_content(self, response: ModelResponse) -> None:
        message = response.message
        if message is None or not (message.tool_calls or _has_content(message)):
            raise self._empty_response(response)

    def _empty_response(self, response: ModelResponse) -> EmptyResponseError:
        name = response.model or self._compiled.model.name
        text = f"the model `{name}` of `{self._agent.name}` answered with neither text nor calls"
        return EmptyResponseError(text, model=name, retryable=True)

    async def _forward(self, stream: AsyncIterable[Chunk], sink: DeltaSink) -> list[Chunk]:
        """Collect the chunks, and forward them to subscribers."""
        chunks: list[Chunk] = []
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
        return chunks

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


_NO_RESPONSE = ModelResponse()


def _keep_error(error: E, caller: MiddlewareContext | None, suffix: str | None) -> E:
    if caller is not None and suffix is None and isinstance(error, Exception):
        caller._first = error
    return error


async def _abandon(stream: AsyncIterable[Chunk] | None, span: ModelCallSpan | None, error: BaseException) -> None:
    """End the span of a failed call, and close its iterator and so its connection."""
    if span is not None:
        span.fail(error)
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _has_content(message: AssistantMessage) -> bool:
    content = message.content
    return bool(content) if isinstance(content, str) else not is_empty(AssistantMessage(content))


def _with_unique_ids(message: AssistantMessage, key: str, used: set[str]) -> AssistantMessage:
    """Replace missing and duplicate ids of calls, and add all ids to those that are used."""
    calls = list(message.tool_calls)
    for position, call in enumerate(calls):
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
        input_guardrails: Checks `(ctx, messages)` of the conversation that it reads.
        output_guardrails: Checks `(ctx, output)` of its answer.
        hooks: Lifecycle callbacks.
        middleware: Code around its model calls, tool calls and activations, outermost first.
        tool_choice: What the first turn must do: `"auto"`, `"required"`, `"none"` or the name of a tool.
        max_turns: Maximum number of model calls per activation.
        on_max_turns: After the last turn: `"answer"` asks once more without tools, `"error"` fails at once.
        concurrent_tools: Whether the tool calls of one response run concurrently.
        max_parallel_tools: Maximum number of tool calls of one response that run at once; None for no limit.
        tool_use_behavior: What follows after tools: `"run_again"` asks the model again, `"stop_on_first"` answers with
            the first result, `StopAt([…])` with the first result of one of these tools; or a function `(ctx, results)`
            that returns `Stop(output)`, or None to ask the model again.
        history: How it reads the messages of agents that were active before it.
        compaction: When and how long histories that it reads are compacted; by default as the runner says.
        accepts: Decides whether it takes a conversation: `(ctx, input) -> True`, or a reason why not.
        examples: Example questions that other agents read with the description.
        template: Whether `{name}` in the instructions is replaced by the run's value of that name.
        exit_tool: Whether the model may end the whole run with `exit(final_result)`.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
        output_key: The key under which the answer is stored in the run's values.
    """

    _guards: ClassVar[AgentGuards | None] = None
    """Its guardrails; an agent that has any sets its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input_guardrails and not self.output_guardrails:
            return
        if type(self).run is not Agent.run:
            raise SetupError(
                f"`{self.name}` is {type_of(self)}, which overrides `run`, so its guardrails would not run; "
                "use with_guardrails(agent, …)"
            )
        inputs, outputs = cast("Guardrails", self.input_guardrails), cast("Guardrails", self.output_guardrails)
        object.__setattr__(self, "_guards", AgentGuards.build(f"`{self.name}`", inputs, outputs, layers=[self]))

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Run one activation.

        Args:
            ctx: The context of the activation.
        """
        if self._guards is None:
            compiled = compile_agent(self, ctx)
            return ModelLoop(compiled.agent, ctx, compiled).run()
        return self._guards.run(ctx, self._run_model)

    def _run_model(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        compiled = compile_agent(self, ctx)
        return ModelLoop(compiled.agent, ctx, compiled).run()
