"""The realtime agent, and its activation: it processes the session's events one at a time.

`TurnExecutor` executes tool calls and `flow` follows transfers, as in every run. Over a complete log, the same code
has no effects and ends in the same way.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from time import time
from typing import Any, assert_never, cast

from typing_extensions import TypeVar

from ..agents import AgentContext
from ..agents.compiled import current_tool_table, disabled_handoffs
from ..agents.model_agent import CorrectionCounter
from ..agents.turn import TurnOutcome
from ..context import HistoryEntry
from ..context.run_context import SuspendRun
from ..errors import GuardrailTrippedError, ModelError, RunError, SetupError
from ..events import Action, AgentResponded, Origin, ResponseTruncated, Transfer, UserMessageAdded
from ..messages import AssistantMessage, Message, ToolMessage, UserMessage, is_empty, text_of
from ..models import ModelRequest, ModelResponse, ModelSettings
from ..tools.guardrails import copy_changes
from .controller import SessionController
from .definition import PreparedAgent, RealtimeDefinition
from .events import GuardrailTripped, SessionErrorReported
from .guardrails import ResponseGuards
from .mailbox import (
    GuardrailFired,
    MailboxEvent,
    RefreshRequested,
    ResponseInterrupted,
    SessionEnded,
    TextReceived,
    TransferRequested,
    TurnEnded,
)
from .protocol import AudioCommitted, ResponseEnded, ResponseStarted, TranscriptionCompleted, TranscriptionFailed
from .transcript import ActivationTranscript, TranscriptSlot
from .turns import BY_APPLICATION, STOPPED_BY_GUARDRAIL, ActivationReplay, OpenTurn, RunningTurns

C = TypeVar("C", default=Any)
_LEAVE_TIMEOUT = 3.0
_INAUDIBLE = "(something that could not be understood)"


class LiveActivation:
    """One activation of a realtime agent."""

    def __init__(self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any]) -> None:
        self._agent = agent
        self._ctx = ctx
        self._transcript = ActivationTranscript(ctx._history, ctx._scope)
        self._turns = RunningTurns(agent, ctx, self._transcript)
        self._response_slots: dict[str, TranscriptSlot] = {}
        self._audio_slots: dict[str, TranscriptSlot] = {}
        self._early_interrupts: dict[str, ResponseInterrupted] = {}
        """Interruptions of items that are not recorded yet, by item id."""
        self._guards = ResponseGuards(cast("Any", agent.output_guardrails), ctx)
        self._prepared: PreparedAgent | None = None
        self._action: Action | None = None
        self._is_ended = False
        self._is_transferring = False
        """True if another agent becomes active; running calls continue then."""
        self._corrections = CorrectionCounter(ctx._options.max_corrections)
        self.is_waiting = False

    @property
    def has_running_turns(self) -> bool:
        """True if tool calls are running."""
        return self._turns.is_running

    @property
    def origin(self) -> Origin:
        """Origin of the activation."""
        return self._ctx._origin

    def transcript_messages(self) -> Iterable[Message]:
        """Return the conversation so far, in order."""
        return self._transcript.messages()

    def on_transcript(self, response_id: str, text: str) -> None:
        """Pass transcript text to the guardrails."""
        self._guards.add_text(response_id, text)

    def cancel_turns(self) -> None:
        """Cancel the tool calls that are running."""
        self._turns.cancel()

    async def run(self) -> Action | None:
        """Replay the log, then process events until a transfer or the end of the session."""
        ctx, controller = self._ctx, cast("SessionController | None", self._ctx._run.live)
        # Inside a tool call another agent is active.
        controller = None if "/" in ctx._scope else controller
        if controller is not None:
            controller.unclaim()
        past = ActivationReplay(ctx, self._transcript, self._turns)
        unfinished = await past.replay()
        if controller is not None:
            controller.calls.add_recorded(past.calls)
        if past.is_finished or (past.action is not None and not unfinished):
            if unfinished and controller is not None:
                await self._resume_detached(controller, unfinished)
            return past.action
        if controller is None:
            raise SetupError(f"`{ctx.agent}` is a RealtimeAgent; use RealtimeRunner(…).connect()")
        self._action = past.action
        try:
            is_new = ctx._origin.parent is not None and not past.has_started
            await self._enter(controller, unfinished, is_new=is_new)
            return await self._process_events(controller)
        finally:
            await self._guards.stop()
            if not self._is_transferring:
                for turns in (self._turns, *controller.detached_turns):
                    await turns.stop()
            self._transcript.end()

    async def _resume_detached(self, controller: SessionController, unfinished: list[OpenTurn]) -> None:
        """Execute calls that were running when a recorded transfer made another agent active."""
        tool_table = await current_tool_table(self._agent, self._ctx, f"{self._ctx._scope}/ready")
        self._ctx._run.opened[controller] = controller
        for slot, response in unfinished:
            self._turns.start(slot, response, tool_table, controller.post)
        controller.add_detached(self._turns.detach(), self.origin)

    async def _enter(self, controller: SessionController, unfinished: list[OpenTurn], *, is_new: bool) -> None:
        ctx = self._ctx
        prepared = self._prepared = await controller.enter(self._agent, ctx, self)
        copy_changes(ctx, prepared.changes)
        if isinstance(self._action, Transfer):
            controller.claim(self._action.to, self.origin)
        for item_id in controller.untranscribed:
            self._audio_slots[item_id] = self._transcript.open()
        for slot, response in unfinished:
            self._turns.start(slot, response, prepared.tool_table, controller.post)
        messages = list(self.transcript_messages())
        await controller.send_results([message for message in messages if isinstance(message, ToolMessage)])
        # A new agent speaks first; a resumed one only if the last message has no response.
        if is_new or (not unfinished and messages and isinstance(messages[-1], UserMessage | ToolMessage)):
            await controller.request_response()

    async def _process_events(self, controller: SessionController) -> Action | None:
        is_leaving = False
        while True:
            event = await self._next_event(controller, is_leaving)
            async with controller.closing_timeout():
                await self._process(controller, event)
            is_idle = not self._turns.is_running and not controller.has_detached_running
            if self._is_ended and is_idle:
                return None
            if isinstance(self._action, Transfer) or (self._action is not None and is_idle):
                # Responses that started under this agent end before another becomes active.
                if not controller.responses.unprocessed or (is_leaving and isinstance(event, RefreshRequested)):
                    return self._leave(controller, self._action)
                is_leaving = True
                await controller.cancel_response()
            if self._ctx._run.signals.stop == "after_turn" and is_idle:
                raise SuspendRun

    def _leave(self, controller: SessionController, action: Action) -> Action:
        controller.responses.discard_unprocessed()
        if isinstance(action, Transfer):
            self._is_transferring = True
            controller.add_detached(self._turns.detach(), self.origin)
        return action

    async def _next_event(self, controller: SessionController, is_leaving: bool) -> MailboxEvent:
        if not is_leaving:
            self.is_waiting = True
            controller.notify_change()
            try:
                return await controller.mailbox.get()
            finally:
                self.is_waiting = False
        try:
            return await asyncio.wait_for(controller.mailbox.get(), _LEAVE_TIMEOUT)
        except TimeoutError:
            return RefreshRequested()

    async def _process(self, controller: SessionController, event: MailboxEvent) -> None:
        match event:
            case ResponseStarted():
                await self._on_response_started(controller, event)
            case ResponseEnded():
                await self._on_response_ended(controller, event)
            case AudioCommitted(item_id):
                if controller.settings.transcription is not None:
                    controller.untranscribed[item_id] = None
                    self._audio_slots[item_id] = self._transcript.open()
            case TranscriptionCompleted(item_id, text):
                await self._on_transcription(controller, item_id, text)
            case TranscriptionFailed(item_id, error):
                if item_id in self._audio_slots:
                    controller.deliver(SessionErrorReported(self.origin, "transcription_failed", error))
                await self._on_transcription(controller, item_id, _INAUDIBLE)
            case TextReceived():
                await self._on_text(controller, event)
            case ResponseInterrupted():
                await self._on_interrupted(controller, event)
            case TurnEnded(task):
                await self._on_turn_ended(controller, task)
            case TransferRequested():
                await self._on_transfer_requested(controller, event)
            case GuardrailFired(trip):
                controller.deliver(GuardrailTripped(self.origin, trip.guardrail, trip.reason))
                await controller.speech.interrupt()
            case SessionEnded():
                await self._on_session_ended(event)
            case RefreshRequested(processed):
                if processed is not None and not processed.done():
                    processed.set_result(None)
            case _:
                assert_never(event)

    # Responses of the agent.

    async def _on_response_started(self, controller: SessionController, started: ResponseStarted) -> None:
        ctx = self._ctx
        slot = self._response_slots[started.response_id] = self._transcript.open()
        ctx._run.meter.start_model_call(ctx._origin)
        self._guards.start(
            started.response_id,
            slot.key,
            interval=controller.guardrail_interval,
            on_trip=partial(self._on_trip, controller, slot),
            on_failure=lambda error: controller.post(SessionEnded(error=error)),
        )
        if ctx._hooks is not None and self._prepared is not None:
            config = self._prepared.config
            messages = tuple(self.transcript_messages())
            request = ModelRequest(messages, config.instructions, config.tools, ModelSettings(), None, ctx.agent)
            await ctx._hooks.model_start(ctx, request, turn=slot.position)

    async def _on_response_ended(self, controller: SessionController, ended: ResponseEnded) -> None:
        slot = self._response_slots.pop(ended.response_id, None)
        controller.responses.unprocessed.pop(ended.response_id, None)
        if slot is None:
            return
        await self._guards.finish(ended.response_id, text_of(ended.message.content))
        message = await self._without_known_calls(controller, ended.message)
        if is_empty(message):
            self._transcript.drop(slot)
            return
        response = await self._record_response(controller, slot, ended, message)
        entry = self._turns.add_response(slot, response)
        for item_id in ended.item_ids:
            controller.remember_spoken(item_id, response, entry)
            if (interrupted := self._early_interrupts.pop(item_id, None)) is not None:
                await self._on_interrupted(controller, interrupted)
        if ended.usage is not None:
            self._ctx._run.meter.add_usage(ended.usage, self.origin)
        if message.tool_calls and self._prepared is not None:
            self._turns.start(slot, response, self._prepared.tool_table, controller.post)
            if controller.wait_for_tools:
                await self._turns.wait()

    async def _record_response(
        self, controller: SessionController, slot: TranscriptSlot, ended: ResponseEnded, message: AssistantMessage
    ) -> AgentResponded:
        ctx = self._ctx
        is_conditional = message.tool_calls and ctx._routes.conditional
        disabled = await disabled_handoffs(ctx, self._agent, slot.key) if is_conditional else ()
        response = AgentResponded(
            slot.key,
            ctx._origin,
            time(),
            message,
            ended.model or controller.model.name,
            ended.usage,
            STOPPED_BY_GUARDRAIL if slot.is_stopped else ended.reason or ended.status,
            ctx._take_changes(),
            disabled,
        )
        ctx._run.log.write(response)
        if ctx._hooks is not None:
            shown = ModelResponse(message, ended.usage, response.stop_reason, response.model)
            await ctx._hooks.model_end(ctx, shown, turn=slot.position)
        await ctx._run.log.settle()
        slot.response = response
        return response

    async def _without_known_calls(self, controller: SessionController, message: AssistantMessage) -> AssistantMessage:
        """Remove calls whose id was used before; they are answered from the transcript."""
        fresh, repeated, altered = controller.calls.split(message)
        self._ctx._run.call_ids.update([call.id for call in fresh.tool_calls])
        for call in altered:
            what = f"the id `{call.id}` of a call of `{call.name}` was used before by another call; it is not executed"
            controller.deliver(SessionErrorReported(self.origin, "call_id_reused", what))
        for call in (*repeated, *altered):
            await self._resend_result(controller, call.id)
        return fresh

    async def _resend_result(self, controller: SessionController, call_id: str) -> None:
        # The result of a call that is still running is sent when it ends.
        for message in self.transcript_messages():
            if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
                await controller.send_results([message])
                await controller.request_response()
                return

    async def _on_interrupted(self, controller: SessionController, interrupted: ResponseInterrupted) -> None:
        if interrupted.item_id not in controller.spoken:
            if self._response_slots:
                self._early_interrupts[interrupted.item_id] = interrupted
            return
        response, entry = controller.spoken.pop(interrupted.item_id)
        event = ResponseTruncated(
            f"{response.key}/cut", response.origin, time(), response.key, interrupted.heard, interrupted.played_ms
        )
        if not self._ctx._run.log.has(event.key):
            self._ctx._run.log.write(event)
            self._transcript.truncate(entry, event)
            await self._ctx._run.log.settle()

    def _on_trip(self, controller: SessionController, slot: TranscriptSlot, trip: GuardrailTrippedError) -> None:
        slot.is_stopped = True
        controller.post(GuardrailFired(trip))

    # Messages of the user.

    async def _on_transcription(self, controller: SessionController, item_id: str, text: str) -> None:
        controller.untranscribed.pop(item_id, None)
        slot = self._audio_slots.pop(item_id, None)
        if slot is None:
            return
        if not text.strip():
            self._transcript.drop(slot)
            return
        message = UserMessage(text.strip())
        self._transcript.fill(slot, HistoryEntry(message))
        await self._record_user_message(slot, message, item_id)

    async def _on_text(self, controller: SessionController, received: TextReceived) -> None:
        if controller.is_closing or received.done.done():
            return
        slot = self._transcript.open()
        # In the transcript before it is sent: if the connection is lost meanwhile, it is sent on the next one.
        self._transcript.fill(slot, HistoryEntry(received.message))
        try:
            await controller.connection.send_item(received.message, slot.key)
        except ModelError as error:
            self._transcript.remove(slot)
            received.done.set_exception(error)
            return
        await self._record_user_message(slot, received.message)
        if not received.done.done():
            received.done.set_result(None)
        if received.respond:
            await controller.request_response()

    async def _record_user_message(self, slot: TranscriptSlot, message: UserMessage, item_id: str = "") -> None:
        log = self._ctx._run.log
        log.write(UserMessageAdded(slot.key, self.origin, time(), message, item_id))
        self._corrections.reset()
        await log.settle()

    # Turns, transfers and the end.

    async def _on_turn_ended(self, controller: SessionController, task: "asyncio.Task[TurnOutcome]") -> None:
        for turns in controller.detached_turns:
            if (ended := turns.collect(task)) is not None:
                await controller.send_results(ended[0].results())
                await controller.request_response()
                return
        ended = self._turns.collect(task)
        if ended is None:
            return
        slot, outcome = ended
        if outcome.action is not None:
            self._action = self._action or outcome.action
            return
        if outcome.fault is not None:
            self._corrections.add_fault(outcome.fault)
        else:
            self._corrections.add_success()
        if self._prepared is not None:
            self._prepared = await controller.refresh(self._agent, self._ctx, self._prepared)
        await controller.send_results(slot.results())
        await controller.request_response()

    async def _on_transfer_requested(self, controller: SessionController, request: TransferRequested) -> None:
        ctx = self._ctx
        if request.new_agent is not None:
            ctx._run.dynamic_agents[request.target] = request.new_agent
        refusal = controller.claim(request.target, self.origin)
        if refusal is None:
            refusal = await controller.readiness(self._turns.call_context(f"{ctx._scope}/wanted"), request.target)
            if refusal is not None:
                controller.unclaim()
        if refusal is None:
            self._action = Transfer(request.target, via=BY_APPLICATION)
        if not request.done.done():
            if refusal is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(RunError(refusal))

    async def _on_session_ended(self, ended: SessionEnded) -> None:
        if ended.error is not None:
            raise ended.error
        self._is_ended = True
        if not ended.is_by_provider:
            await self._turns.stop()
        if self._ctx._run.log.open_interrupts():
            raise SuspendRun


class RealtimeAgent(RealtimeDefinition[C]):
    """An agent for realtime sessions.

    It stays active until it transfers control or the session ends. It is immutable and takes the same tools,
    handoffs, instructions and hooks as an `Agent`. A text agent can be its tool: `tools=[expert.as_tool()]`.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Run the agent in the current realtime session.

        Args:
            ctx: The context of the activation.
        """
        return LiveActivation(self, ctx).run()
