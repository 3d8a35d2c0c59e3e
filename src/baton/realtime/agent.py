"""The agent of live conversations: a definition like any other, with a voice.

One agent having the floor of a live conversation: what is said and done while it has, in one place, one by one.

The calls of a response are carried out by `execute_turn`, as in every run; `follow` changes the floor, as in every run.
What is recorded decides: the same code over a log that has it all does nothing, and comes to the same end.
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
    Happening,
    RefreshRequested,
    ResponseInterrupted,
    SessionEnded,
    TextReceived,
    TransferRequested,
    TurnEnded,
)
from .protocol import AudioCommitted, ResponseEnded, ResponseStarted, TranscriptionCompleted, TranscriptionFailed
from .transcript import ActivationTranscript, TranscriptSlot
from .turns import BY_APPLICATION, STOPPED, ActivationReplay, RunningTurns

_PATIENCE = 3.0
_INAUDIBLE = "(something that could not be understood)"


class LiveActivation:
    """What one activation keeps in mind while it has the floor."""

    def __init__(self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any]) -> None:
        self._agent = agent
        self._ctx = ctx
        self._transcript = ActivationTranscript(ctx._history, ctx._scope)
        self._turns = RunningTurns(agent, ctx, self._transcript)
        self._responses: dict[str, TranscriptSlot] = {}
        self._heard_items: dict[str, TranscriptSlot] = {}
        self._cuts: dict[str, ResponseInterrupted] = {}
        """Interruptions of what is not on record yet, by item."""
        self._guards = ResponseGuards(cast("Any", agent.output_guardrails), ctx)
        self._ready: PreparedAgent | None = None
        self._action: Action | None = None
        self._is_over = False
        self._has_left = False
        """Whether the floor goes to somebody else: then calls that are under way go on."""
        self._faults = CorrectionCounter(ctx._options.max_corrections)
        self.is_listening = False

    @property
    def is_working(self) -> bool:
        """Whether calls are being carried out."""
        return self._turns.are_running

    @property
    def origin(self) -> Origin:
        """The activation."""
        return self._ctx._origin

    def everything_said(self) -> Iterable[Message]:
        """All that was said so far, in order."""
        return self._transcript.everything()

    def words(self, response_id: str, text: str) -> None:
        """A piece of what the agent says: guardrails may want to hear it."""
        self._guards.hear(response_id, text)

    def stop_working(self) -> None:
        """Have all calls stop that are being carried out."""
        self._turns.cancel()

    async def run(self) -> Action | None:
        """Have the floor until somebody else gets it, or until the conversation ends."""
        ctx, talk = self._ctx, cast("SessionController | None", self._ctx._run.live)
        # Inside a call somebody else has the floor.
        talk = None if "/" in ctx._scope else talk
        if talk is not None:
            talk.unclaim()
        past = ActivationReplay(ctx, self._transcript, self._turns)
        waiting = await past.relive()
        if talk is not None:
            talk.calls.remember(past.calls)
        if past.is_over or (past.action is not None and not waiting):
            if waiting and talk is not None:
                await self._go_on_elsewhere(talk, waiting)
            return past.action
        if talk is None:
            raise SetupError(f"`{ctx.agent}` is an agent for live conversations; use RealtimeRunner(…).connect()")
        self._action = past.action
        try:
            await self._enter(talk, waiting, is_new=ctx._origin.parent is not None and not past.is_begun)
            return await self._listen(talk)
        finally:
            await self._guards.stop()
            if not self._has_left:
                for turns in (self._turns, *talk.elsewhere):
                    await turns.stop()
            self._transcript.end()

    async def _go_on_elsewhere(
        self, talk: SessionController, waiting: list[tuple[TranscriptSlot, AgentResponded]]
    ) -> None:
        """Carry out what was under way when the floor was given up, and the conversation was cut off after that."""
        toolbox = await current_tool_table(self._agent, self._ctx, f"{self._ctx._scope}/ready")
        self._ctx._run.opened[talk] = talk
        for slot, said in waiting:
            self._turns.start(slot, said, toolbox, talk.happened)
        talk.go_on_elsewhere(self._turns.leave(), self.origin)

    async def _enter(
        self, talk: SessionController, waiting: list[tuple[TranscriptSlot, AgentResponded]], *, is_new: bool
    ) -> None:
        ctx = self._ctx
        ready = self._ready = await talk.enter(self._agent, ctx, self)
        copy_changes(ctx, ready.changes)
        if isinstance(self._action, Transfer):
            talk.claim(self._action.to, self.origin)
        for item_id in talk.unheard:
            self._heard_items[item_id] = self._transcript.open()
        for slot, said in waiting:
            self._turns.start(slot, said, ready.toolbox, talk.happened)
        said = list(self.everything_said())
        await talk.give([message for message in said if isinstance(message, ToolMessage)])
        # Who is given the floor speaks; who comes back to it speaks if there is something nobody has answered.
        if is_new or (not waiting and said and isinstance(said[-1], UserMessage | ToolMessage)):
            await talk.ask()

    async def _listen(self, talk: SessionController) -> Action | None:
        is_leaving = False
        while True:
            happening = await self._next(talk, is_leaving)
            async with talk.in_time():
                await self._note(talk, happening)
            is_idle = not self._turns.are_running and not any(turns.are_running for turns in talk.elsewhere)
            if self._is_over and is_idle:
                return None
            if isinstance(self._action, Transfer) or (self._action is not None and is_idle):
                # What was begun under this agent is this agent's: it ends before another has the floor.
                if not talk.responses.unnoted or (is_leaving and isinstance(happening, RefreshRequested)):
                    return self._leave(talk, self._action)
                is_leaving = True
                await talk.stop_response()
            if self._ctx._run.signals.stop == "after_turn" and is_idle:
                raise SuspendRun

    def _leave(self, talk: SessionController, action: Action) -> Action:
        """Give up the floor. What this agent has under way goes on, and the model is told what comes of it."""
        talk.responses.disown()
        if isinstance(action, Transfer):
            self._has_left = True
            talk.go_on_elsewhere(self._turns.leave(), self.origin)
        return action

    async def _next(self, talk: SessionController, is_leaving: bool) -> Happening:
        if not is_leaving:
            self.is_listening = True
            talk.moved()
            try:
                return await talk.happenings.get()
            finally:
                self.is_listening = False
        try:
            return await asyncio.wait_for(talk.happenings.get(), _PATIENCE)
        except TimeoutError:
            return RefreshRequested()

    async def _note(self, talk: SessionController, happening: Happening) -> None:
        match happening:
            case ResponseStarted():
                await self._begin(talk, happening)
            case ResponseEnded():
                await self._end(talk, happening)
            case AudioCommitted(item_id):
                if talk.manners.transcription is not None:
                    talk.unheard[item_id] = None
                    self._heard_items[item_id] = self._transcript.open()
            case TranscriptionCompleted(item_id, text):
                await self._hear(talk, item_id, text)
            case TranscriptionFailed(item_id, error):
                if item_id in self._heard_items:
                    talk.deliver(SessionErrorReported(self.origin, "transcription_failed", error))
                await self._hear(talk, item_id, _INAUDIBLE)
            case TextReceived():
                await self._read(talk, happening)
            case ResponseInterrupted():
                await self._cut(talk, happening)
            case TurnEnded(task):
                await self._turn_ended(talk, task)
            case TransferRequested():
                await self._hand_over(talk, happening)
            case GuardrailFired(trip):
                talk.deliver(GuardrailTripped(self.origin, trip.guardrail, trip.reason))
                await talk.speech.interrupt()
            case SessionEnded():
                await self._hung_up(happening)
            case RefreshRequested(noted):
                if noted is not None and not noted.done():
                    noted.set_result(None)
            case _:
                assert_never(happening)

    # What the agent says.

    async def _begin(self, talk: SessionController, started: ResponseStarted) -> None:
        ctx = self._ctx
        slot = self._responses[started.response_id] = self._transcript.open()
        ctx._run.meter.start_model_call(ctx._origin)
        self._guards.begin(
            started.response_id,
            slot.key,
            step=talk.guardrail_step,
            on_trip=partial(self._tripped, talk, slot),
            on_failure=lambda error: talk.happened(SessionEnded(error=error)),
        )
        if ctx._hooks is not None and self._ready is not None:
            settings = self._ready.settings
            messages = tuple(self.everything_said())
            request = ModelRequest(messages, settings.instructions, settings.tools, ModelSettings(), None, ctx.agent)
            await ctx._hooks.model_start(ctx, request, turn=slot.place)

    async def _end(self, talk: SessionController, ended: ResponseEnded) -> None:
        ctx = self._ctx
        slot = self._responses.pop(ended.response_id, None)
        talk.responses.unnoted.pop(ended.response_id, None)
        if slot is None:
            return
        await self._guards.finish(ended.response_id, text_of(ended.message.content))
        message = await self._with_new_calls(talk, ended.message)
        if is_empty(message):
            self._transcript.drop(slot)
            return
        disabled = (
            await disabled_handoffs(ctx, self._agent, slot.key)
            if message.tool_calls and ctx._routes.conditional
            else ()
        )
        said = AgentResponded(
            slot.key,
            ctx._origin,
            time(),
            message,
            ended.model or talk.model.name,
            ended.usage,
            STOPPED if slot.is_stopped else ended.reason or ended.status,
            ctx._take_changes(),
            disabled,
        )
        ctx._run.log.write(said)
        if ctx._hooks is not None:
            response = ModelResponse(message, ended.usage, said.stop_reason, said.model)
            await ctx._hooks.model_end(ctx, response, turn=slot.place)
        await ctx._run.log.settle()
        slot.said = said
        entry = self._turns.enter(slot, said)
        for item_id in ended.item_ids:
            talk.spoke(item_id, said, entry)
            if (cut := self._cuts.pop(item_id, None)) is not None:
                await self._cut(talk, cut)
        if ended.usage is not None:
            ctx._run.meter.add_usage(ended.usage, ctx._origin)
        if message.tool_calls and self._ready is not None:
            self._turns.start(slot, said, self._ready.toolbox, talk.happened)
            if talk.waits_for_tools:
                await self._turns.wait()

    async def _with_new_calls(self, talk: SessionController, message: AssistantMessage) -> AssistantMessage:
        """The message without calls that were made before: they are answered from what is on record."""
        fresh, repeated, altered = talk.calls.sorted_out(message)
        self._ctx._run.call_ids.update([call.id for call in fresh.tool_calls])
        for call in altered:
            what = f"the call `{call.id}` of `{call.name}` was made before, as another; it is not carried out"
            talk.deliver(SessionErrorReported(self.origin, "call_id_reused", what))
        for call in (*repeated, *altered):
            await self._repeat(talk, call.id)
        return fresh

    async def _repeat(self, talk: SessionController, call_id: str) -> None:
        """Have the model go on with the result that there is; the one of a call under way comes when it has ended."""
        for message in self.everything_said():
            if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
                await talk.give([message])
                await talk.ask()
                return

    async def _cut(self, talk: SessionController, cut: ResponseInterrupted) -> None:
        if cut.item_id not in talk.spoken:
            if self._responses:
                self._cuts[cut.item_id] = cut
            return
        said, entry = talk.spoken.pop(cut.item_id)
        event = ResponseTruncated(f"{said.key}/cut", said.origin, time(), said.key, cut.heard, cut.played_ms)
        if not self._ctx._run.log.has(event.key):
            self._ctx._run.log.write(event)
            self._transcript.cut(entry, event)
            await self._ctx._run.log.settle()

    def _tripped(self, talk: SessionController, slot: TranscriptSlot, trip: GuardrailTrippedError) -> None:
        slot.is_stopped = True
        talk.happened(GuardrailFired(trip))

    # What the user says.

    async def _hear(self, talk: SessionController, item_id: str, text: str) -> None:
        talk.unheard.pop(item_id, None)
        slot = self._heard_items.pop(item_id, None)
        if slot is None:
            return
        if not text.strip():
            self._transcript.drop(slot)
            return
        await self._write_down(slot, UserMessage(text.strip()), item_id)

    async def _read(self, talk: SessionController, written: TextReceived) -> None:
        if talk.is_closing or written.done.done():
            return
        slot = self._transcript.open()
        # Known here before it is told: if the connection is lost meanwhile, it is told on the next one.
        self._transcript.fill(slot, HistoryEntry(written.message))
        try:
            await talk.line.tell(written.message, slot.key)
        except ModelError as error:
            self._transcript.take_back(slot)
            written.done.set_exception(error)
            return
        await self._record_heard(slot, written.message)
        if not written.done.done():
            written.done.set_result(None)
        if written.wants_answer:
            await talk.ask()

    async def _write_down(self, slot: TranscriptSlot, message: UserMessage, item_id: str) -> None:
        self._transcript.fill(slot, HistoryEntry(message))
        await self._record_heard(slot, message, item_id)

    async def _record_heard(self, slot: TranscriptSlot, message: UserMessage, item_id: str = "") -> None:
        log = self._ctx._run.log
        log.write(UserMessageAdded(slot.key, self.origin, time(), message, item_id))
        self._faults.reset()
        await log.settle()

    # What becomes of it.

    async def _turn_ended(self, talk: SessionController, task: "asyncio.Task[TurnOutcome]") -> None:
        ended = next((found for turns in talk.elsewhere if (found := turns.ended(task)) is not None), None)
        if ended is not None:
            await talk.give(ended[0].results())
            await talk.ask()
            return
        ended = self._turns.ended(task)
        if ended is None:
            return
        slot, outcome = ended
        if outcome.action is not None:
            self._action = self._action or outcome.action
            return
        if outcome.fault is not None:
            self._faults.add_fault(outcome.fault)
        else:
            self._faults.add_success()
        if self._ready is not None:
            self._ready = await talk.refresh(self._agent, self._ctx, self._ready)
        await talk.give(slot.results())
        await talk.ask()

    async def _hand_over(self, talk: SessionController, wanted: TransferRequested) -> None:
        ctx = self._ctx
        if wanted.guest is not None:
            ctx._run.dynamic_agents[wanted.target] = wanted.guest
        refusal = talk.claim(wanted.target, self.origin)
        if refusal is None:
            inner = self._turns.call_context(f"{ctx._scope}/wanted")
            refusal = await talk.readiness(inner, wanted.target)
            if refusal is not None:
                talk.unclaim()
        if refusal is None:
            self._action = Transfer(wanted.target, via=BY_APPLICATION)
        if not wanted.done.done():
            if refusal is None:
                wanted.done.set_result(None)
            else:
                wanted.done.set_exception(RunError(refusal))

    async def _hung_up(self, hung_up: SessionEnded) -> None:
        if hung_up.error is not None:
            raise hung_up.error
        self._is_over = True
        if not hung_up.is_by_provider:
            await self._turns.stop()
        if self._ctx._run.log.open_interrupts():
            raise SuspendRun


C = TypeVar("C", default=Any)


class RealtimeAgent(RealtimeDefinition[C]):
    """An agent that has the floor in a live conversation until it hands over or the conversation ends.

    A frozen value, with the same tools, handoffs, instructions and hooks as an `Agent`. A text agent can stand behind
    it as a tool: `tools=[expert.as_tool()]`.
    """

    def run(self, ctx: AgentContext[C]) -> Coroutine[Any, Any, Action | None]:
        """Have the floor of the live conversation that the run is."""
        return LiveActivation(self, ctx).run()
