"""The realtime agent, and its live activation: it processes the session's events one at a time.

`TurnExecutor` executes tool calls and `follow` the transfers, as in every run. Over a complete log, the same code
has no effects and ends in the same way.
"""

import asyncio
from time import time
from typing import Any, assert_never, cast

from msgspec.structs import replace
from typing_extensions import TypeVar

from ..agents import AgentContext
from ..agents.compiled import current_tool_table, disabled_handoffs, disabled_tools
from ..agents.loop import CorrectionCounter
from ..agents.turn import TurnOutcome
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..errors import ModelError, RunError, SetupError
from ..log import Action, AgentResponded, ResponseTruncated, Transfer, UserMessageAdded, keys
from ..log.entries import HistoryEntry
from ..messages import AssistantMessage, ToolCall, ToolMessage, UserMessage, is_empty, text_of
from ..models import ModelRequest, ModelResponse, ModelSettings
from ..models.prices import add_cost
from ..tools.tool_guardrails import copy_changes
from . import mailbox
from .agent_definition import RealtimeDefinition
from .controller import ActiveSpeaker, SessionController
from .deltas import GuardrailTripped, SessionErrorReported
from .protocol import AudioCommitted, ResponseEnded, ResponseStarted, TranscriptionCompleted, TranscriptionFailed
from .spoken_guardrails import ResponseGuards
from .transcript import TranscriptSlot
from .turns import BY_APPLICATION, PASSES_CONTROL, STOPPED_BY_GUARDRAIL, ActivationReplay, RunningTurns

C = TypeVar("C", default=Any)
_LEAVE_TIMEOUT = 3.0
_INAUDIBLE = "(something that could not be understood)"


class LiveActivation:
    """One activation of a realtime agent, while it is the active agent of a session."""

    def __init__(self, controller: SessionController, speaker: ActiveSpeaker, action: Action | None) -> None:
        self._controller = controller
        self._speaker = speaker
        self._turns = speaker.turns
        self._ctx = speaker.turns.ctx
        self._log = self._ctx._run.log
        self._transcript = speaker.turns.transcript
        self._response_slots: dict[str, TranscriptSlot] = {}
        self._audio_slots: dict[str, TranscriptSlot] = {}
        self._early_interrupts: dict[str, mailbox.ResponseInterrupted] = {}
        """Interruptions of items that are not recorded yet, by item id."""
        self._action = action
        self._is_ended = False
        self._corrections = CorrectionCounter(self._ctx._options.max_corrections)

    async def run(self, unfinished: list[TranscriptSlot], *, is_new: bool) -> Action | None:
        """Process events until a transfer or the end of the session."""
        controller = self._controller
        prepared = self._speaker.prepared
        copy_changes(self._ctx, prepared.changes)
        if isinstance(self._action, Transfer):
            controller.claim(self._action.to, self._ctx._origin)
        elif isinstance(self._action, PASSES_CONTROL) and self._ctx._task is not None:
            controller.claim(self._ctx._task.return_to, self._ctx._origin)
        for item_id in controller.untranscribed:
            self._audio_slots[item_id] = self._transcript.open()
        for slot in unfinished:
            self._turns.start(slot, prepared.tool_table, controller.post)
        messages = list(self._transcript.messages())
        await controller.send_results([message for message in messages if isinstance(message, ToolMessage)])
        # A new agent speaks first; a resumed one only if the last message has no response.
        if is_new or (not unfinished and messages and isinstance(messages[-1], UserMessage | ToolMessage)):
            await controller.responses.request()
        return await self._process_events()

    async def _process_events(self) -> Action | None:
        controller = self._controller
        is_leaving = False
        while True:
            event = await self._next_event(is_leaving)
            async with controller.closing_timeout():
                await self._process(event)
            is_idle = not self._turns.is_running and not controller.has_detached_running
            if self._is_ended and is_idle:
                return None
            if isinstance(self._action, PASSES_CONTROL) or (self._action is not None and is_idle):
                # Responses that started under this agent end before another becomes active.
                if not controller.responses.unprocessed or (is_leaving and isinstance(event, mailbox.RefreshRequested)):
                    return self._leave(self._action)
                is_leaving = True
                await controller.responses.cancel()
            if self._ctx._run.signals.stop in ("after_response", "after_turn") and is_idle:
                raise SuspendRun

    def _leave(self, action: Action) -> Action:
        self._controller.responses.discard_unprocessed()
        if isinstance(action, PASSES_CONTROL):
            self._controller.add_detached(self._turns.detach(), self._ctx._origin)
        return action

    async def _next_event(self, is_leaving: bool) -> mailbox.MailboxEvent:
        self._speaker.is_waiting = not is_leaving
        self._controller.notify_change()
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT if is_leaving else None):
                return await self._controller.mailbox.get()
        except TimeoutError:
            return mailbox.RefreshRequested()
        finally:
            self._speaker.is_waiting = False

    async def _process(self, event: mailbox.MailboxEvent) -> None:  # noqa: C901
        match event:
            case ResponseStarted():
                await self._on_response_started(event)
            case ResponseEnded():
                await self._on_response_ended(event)
            case AudioCommitted(item_id):
                if self._controller.settings.transcription is not None:
                    self._controller.untranscribed[item_id] = None
                    self._audio_slots[item_id] = self._transcript.open()
            case TranscriptionCompleted(item_id, text):
                await self._on_transcription(item_id, text)
            case TranscriptionFailed(item_id, error):
                if item_id in self._audio_slots:
                    self._report("transcription_failed", error)
                await self._on_transcription(item_id, _INAUDIBLE)
            case mailbox.TextReceived():
                await self._on_text(event)
            case mailbox.ResponseInterrupted():
                await self._on_interrupted(event)
            case mailbox.TurnEnded(task):
                await self._on_turn_ended(task)
            case mailbox.TransferRequested():
                await self._on_transfer_requested(event)
            case mailbox.GuardrailFired(trip):
                self._controller.deliver(GuardrailTripped(self._ctx._origin, trip.guardrail, trip.reason))
                await self._controller.speech.interrupt()
            case mailbox.SessionEnded():
                await self._on_session_ended(event)
            case mailbox.RefreshRequested(processed):
                if processed is not None and not processed.done():
                    processed.set_result(None)
            case _:
                assert_never(event)

    # Responses of the agent.

    async def _on_response_started(self, started: ResponseStarted) -> None:
        ctx = self._ctx
        slot = self._response_slots[started.response_id] = self._transcript.open()
        ctx._run.meter.start_model_call(ctx._origin)
        self._speaker.guards.start(started.response_id, slot, self._controller.post)
        if ctx._hooks is not None:
            config = self._speaker.prepared.config
            messages = tuple(self._transcript.messages())
            request = ModelRequest(messages, config.instructions, config.tools, ModelSettings(), None, ctx.agent)
            await ctx._hooks.call(ctx, "model_start", request, turn=slot.position)

    async def _on_response_ended(self, ended: ResponseEnded) -> None:
        slot = self._response_slots.pop(ended.response_id, None)
        self._controller.responses.unprocessed.pop(ended.response_id, None)
        if slot is None:
            return
        await self._speaker.guards.finish(ended.response_id, text_of(ended.message.content))
        message = await self._without_known_calls(ended.message)
        if is_empty(message):
            self._transcript.drop(slot)
            return
        if ended.usage is not None:
            usage = add_cost(self._ctx._options.prices, ended.usage, self._controller.model.name)
            ended = replace(ended, usage=usage)
        response = await self._record_response(slot, ended, message)
        entry = self._turns.add_response(slot, response)
        for item_id in ended.item_ids:
            self._controller.remember_spoken(item_id, response, entry)
            if (interrupted := self._early_interrupts.pop(item_id, None)) is not None:
                await self._on_interrupted(interrupted)
        if ended.usage is not None:
            self._ctx._run.meter.add_usage(ended.usage, self._ctx._origin)
        if message.tool_calls:
            self._turns.start(slot, self._speaker.prepared.tool_table, self._controller.post)
            if not self._controller.options.async_tool_calls:
                await self._turns.wait()

    async def _record_response(
        self, slot: TranscriptSlot, ended: ResponseEnded, message: AssistantMessage
    ) -> AgentResponded:
        ctx = self._ctx
        is_conditional = message.tool_calls and ctx._routes.conditional
        disabled = await disabled_handoffs(ctx, self._turns.agent, slot.key) if is_conditional else ()
        hidden = ()
        table = self._speaker.prepared.tool_table
        if message.tool_calls and table.conditional:
            hidden = await disabled_tools(ctx, self._turns.agent, slot.key, table)
        response = AgentResponded(
            slot.key,
            ctx._origin,
            time(),
            message,
            ended.model or self._controller.model.name,
            ended.usage,
            STOPPED_BY_GUARDRAIL if slot.is_stopped else ended.reason or ended.status,
            ctx._take_changes(),
            disabled,
            disabled_tools=hidden,
            speech=self._controller.speech.agent_interval(ended.item_ids),
            response_id=ended.response_id,
        )
        self._log.write(response)
        if ctx._hooks is not None:
            shown = ModelResponse(message, ended.usage, response.stop_reason, response.model, id=ended.response_id)
            await ctx._hooks.call(ctx, "model_end", shown, turn=slot.position)
        await self._log.settle()
        return response

    async def _without_known_calls(self, message: AssistantMessage) -> AssistantMessage:
        """Remove calls whose id was used before; they are answered from the transcript."""
        known = self._controller.calls
        fresh = list[ToolCall]()
        for call in message.tool_calls:
            this = (call.name, call.arguments)
            if call.id not in known:
                known[call.id] = this
                self._ctx._run.call_ids.add(call.id)
                fresh.append(call)
                continue
            if known[call.id] != this:
                what = f"the id `{call.id}` of a call of `{call.name}` was used before by another call"
                self._report("call_id_reused", f"{what}; it is not executed")
            await self._resend_result(call.id)
        return AssistantMessage(message.content, tuple(fresh)) if len(fresh) < len(message.tool_calls) else message

    async def _resend_result(self, call_id: str) -> None:
        # The result of a call that is still running is sent when it ends.
        for message in self._transcript.messages():
            if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
                await self._send_results([message])
                return

    async def _send_results(self, results: list[ToolMessage]) -> None:
        await self._controller.send_results(results)
        await self._controller.responses.request()

    async def _on_interrupted(self, interrupted: mailbox.ResponseInterrupted) -> None:
        if interrupted.item_id not in self._controller.spoken:
            if self._response_slots:
                self._early_interrupts[interrupted.item_id] = interrupted
            return
        response, entry = self._controller.spoken.pop(interrupted.item_id)
        event = ResponseTruncated(
            keys.inside(response.key, "cut"),
            response.origin,
            time(),
            response.key,
            interrupted.heard,
            interrupted.played_ms,
        )
        if not self._log.has(event.key):
            self._log.write(event)
            self._transcript.truncate(entry, event)
            await self._log.settle()

    def _report(self, code: str, message: str) -> None:
        self._controller.deliver(SessionErrorReported(self._ctx._origin, code, message))

    # Messages of the user.

    async def _on_transcription(self, item_id: str, text: str) -> None:
        self._controller.untranscribed.pop(item_id, None)
        slot = self._audio_slots.pop(item_id, None)
        if slot is None:
            return
        if not text.strip():
            self._transcript.drop(slot)
            return
        message = UserMessage(text.strip())
        self._transcript.fill(slot, HistoryEntry(message, key=slot.key))
        await self._record_user_message(slot, message, item_id)

    async def _on_text(self, received: mailbox.TextReceived) -> None:
        if self._controller.is_closing or received.done.done():
            return
        slot = self._transcript.open()
        # In the transcript before it is sent: if the connection is lost meanwhile, it is sent on the next one.
        self._transcript.fill(slot, HistoryEntry(received.message, key=slot.key))
        try:
            await self._controller.connection.send_item(received.message, slot.key)
        except ModelError as error:
            self._transcript.remove(slot)
            received.done.set_exception(error)
            return
        await self._record_user_message(slot, received.message)
        if not received.done.done():
            received.done.set_result(None)
        if received.respond:
            await self._controller.responses.request()

    async def _record_user_message(self, slot: TranscriptSlot, message: UserMessage, item_id: str = "") -> None:
        speech = self._controller.speech.user_interval(item_id) if item_id else None
        self._log.write(UserMessageAdded(slot.key, self._ctx._origin, time(), message, item_id, speech=speech))
        self._corrections.reset()
        await self._log.settle()

    # Turns, transfers and the end.

    async def _on_turn_ended(self, task: "asyncio.Task[TurnOutcome]") -> None:
        for turns in self._controller.detached_turns:
            if (ended := turns.collect(task)) is not None:
                await self._send_results(ended[0].results())
                return
        ended = self._turns.collect(task)
        if ended is None:
            return
        slot, outcome = ended
        if outcome.action is not None:
            self._action = self._action or outcome.action
            return
        self._corrections.count(outcome.fault)
        await self._controller.refresh(self._speaker)
        await self._send_results(slot.results())

    async def _on_transfer_requested(self, request: mailbox.TransferRequested) -> None:
        ctx = self._ctx
        if request.new_agent is not None:
            ctx._run.dynamic_agents[request.target] = request.new_agent
        refusal = self._controller.claim(request.target, self._ctx._origin)
        if refusal is None:
            call_ctx = RunContext(ctx._run, ctx._origin, keys.inside(ctx._scope, "wanted"), None, ctx)
            refusal = await self._controller.readiness(call_ctx, request.target)
            if refusal is None:
                self._action = Transfer(request.target, via=BY_APPLICATION)
            else:
                self._controller.unclaim()
        if not request.done.done():
            if refusal is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(RunError(refusal))

    async def _on_session_ended(self, ended: mailbox.SessionEnded) -> None:
        if ended.error is not None:
            raise ended.error
        self._is_ended = True
        if not ended.is_by_provider:
            await self._turns.stop()
        if self._log.open_interrupts():
            raise SuspendRun


class RealtimeAgent(RealtimeDefinition[C]):
    """An agent for realtime sessions.

    It stays active until it transfers control or the session ends. It is immutable and takes the same tools,
    handoffs, instructions and hooks as an `Agent`. A text agent can be its tool: `tools=[expert.as_tool()]`.

    Args:
        name: The name, unique in the team.
        description: Tells other agents when to transfer to this one.
        instructions: The system prompt, or a function of the context that returns it, sync or async.
        voice: The voice of the agent; None is the session's. Providers keep the first voice that was heard.
        tools: Tools, functions to make tools of, and toolsets.
        handoffs: Agents, handoffs or names of agents it can transfer to, each with a tool of its own.
        sub_agents: Agents it can transfer to with one shared tool, and that can transfer back.
        output_guardrails: Checks of `(ctx, transcript so far)` while the agent speaks; a rejection stops the response.
        hooks: Lifecycle callbacks.
        middleware: Code around its model calls, tool calls and activations, outermost first.
        tool_choice: `"auto"`, `"none"`, `"required"` or the name of one tool.
        concurrent_tools: Whether the tool calls of one response run concurrently.
        max_parallel_tools: Maximum number of tool calls of one response that run at once; None for no limit.
        accepts: Decides whether it takes a conversation: `(ctx, input) -> True`, or a reason why not.
        examples: Example questions that other agents read with the description.
        template: Whether `{name}` in the instructions is replaced with the run's value of that name.
        exit_tool: Whether the model may end the whole run with `exit(final_result)`.
        disallow_transfer_to_parent: Whether transfers to its parent are forbidden.
    """

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the agent in the current realtime session, after replaying the log.

        Args:
            ctx: The context of the activation.

        Raises:
            SetupError: The run is not a realtime session.
        """
        # Inside a tool call another agent is active.
        controller = None if keys.is_nested(ctx._scope) else cast("SessionController | None", ctx._run.live)
        if controller is not None:
            controller.unclaim()
        turns = RunningTurns(self, ctx)
        past = ActivationReplay(turns)
        unfinished = await past.replay()
        if controller is not None:
            controller.calls.update(past.calls)
        if past.is_finished or (past.action is not None and not unfinished):
            if unfinished and controller is not None:
                await _resume_detached(turns, controller, unfinished)
            return past.action
        if controller is None:
            raise SetupError(f"`{ctx.agent}` is a RealtimeAgent; use RealtimeRunner(…).connect()")
        guards = ResponseGuards(self, ctx, controller.options.guardrail_interval)
        action: Action | None = None
        try:
            speaker = await controller.enter(turns, guards)
            is_new = ctx._origin.parent is not None and not past.has_started
            action = await LiveActivation(controller, speaker, past.action).run(unfinished, is_new=is_new)
        finally:
            await guards.stop()
            # Running calls continue while another agent becomes active.
            if not isinstance(action, PASSES_CONTROL):
                for each in (turns, *controller.detached_turns):
                    await each.stop()
            turns.transcript.end()
        return action


async def _resume_detached(
    turns: RunningTurns, controller: SessionController, unfinished: list[TranscriptSlot]
) -> None:
    """Execute calls that were running when a recorded transfer made another agent active."""
    ctx = turns.ctx
    tool_table = await current_tool_table(turns.agent, ctx, keys.inside(ctx._scope, "ready"))
    ctx._run.opened[controller] = controller
    for slot in unfinished:
        turns.start(slot, tool_table, controller.post)
    controller.add_detached(turns.detach(), ctx._origin)
