"""Turns of an activation that run while the conversation continues, and their replay from the log."""

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Any, assert_never

from ..agents import AgentContext
from ..agents.agent_context import Answer
from ..agents.compiled import recorded_tool_table
from ..agents.definition import ToolTable
from ..agents.turn import TurnExecutor, TurnOutcome, record_result
from ..errors import BatonError, GuardrailTrippedError
from ..log import (
    Action,
    AgentFinished,
    AgentResponded,
    CancelTask,
    ControlTransferred,
    Event,
    Finish,
    ResponseTruncated,
    ToolReturned,
    Transfer,
    UserMessageAdded,
    keys,
)
from ..log.entries import HistoryEntry
from ..log.fold import NO_RESULT
from ..log.history import History
from ..log.log import ReadOnlyLog
from ..messages import ToolMessage, text_of
from .agent_definition import RealtimeDefinition
from .mailbox import MailboxEvent, TurnEnded
from .transcript import CALL_IN_PROGRESS, ActivationTranscript, TranscriptSlot

STOPPED_BY_GUARDRAIL = "guardrail"
"""Recorded stop reason of a response that a guardrail stopped; its calls are never executed."""
BY_APPLICATION = "(application)"
"""Stands for the tool name in a transfer that no call requested."""
PASSES_CONTROL = (Transfer, Finish, CancelTask)
"""Actions after which another agent becomes active."""
_STOPPED_RESULT = "Not carried out: a guardrail stopped this response."


class RunningTurns:
    """The turns of one activation whose calls are being executed."""

    def __init__(self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any]) -> None:
        self.agent = agent
        self.ctx = ctx
        self.transcript = ActivationTranscript(ctx._history, ctx._scope)
        self._running: dict[asyncio.Task[TurnOutcome], TranscriptSlot] = {}

    @property
    def is_running(self) -> bool:
        """True if any turn is running."""
        return bool(self._running)

    def add_response(self, slot: TranscriptSlot, response: AgentResponded) -> HistoryEntry:
        """Add a response to its slot; the slot stays open if the response makes calls."""
        slot.response = response
        message = response.message
        entry = HistoryEntry(message, self.ctx._origin, is_answer=not message.tool_calls, key=response.key)
        if message.content:
            text = text_of(message.content)
            self.ctx._answer = Answer(text, (response.key,), text)
        if message.tool_calls:
            slot.entries.append(entry)
        else:
            self.transcript.fill(slot, entry)
        return entry

    def start(self, slot: TranscriptSlot, tool_table: ToolTable, post: Callable[[MailboxEvent], None]) -> None:
        """Execute the calls of a response in a task; `TurnEnded` is posted when it is done."""
        task = asyncio.create_task(self.execute(slot, tool_table), name=f"baton turn {slot.key}")
        self._running[task] = slot
        task.add_done_callback(lambda ended: post(TurnEnded(ended)))

    def detach(self) -> "RunningTurns":
        """Move the running turns out, leaving placeholders for their results in the history."""
        detached = copy(self)
        self._running = {}
        for slot in detached._running.values():
            if slot.is_open:
                self.abandon(slot, CALL_IN_PROGRESS)
                slot.is_detached = True
        return detached

    async def execute(self, slot: TranscriptSlot, tool_table: ToolTable) -> TurnOutcome:
        """Execute the calls of a slot's response and store their results in the slot."""
        ctx = self._turn_context(slot)
        response = slot.recorded
        if response.stop_reason == STOPPED_BY_GUARDRAIL:
            self._refuse_calls(slot, ctx)
            return TurnOutcome()
        try:
            outcome = await TurnExecutor(self.agent, ctx, response, tool_table, is_concurrent=True).run()
        except GuardrailTrippedError:
            self.abandon(slot, NO_RESULT)
            raise
        finally:
            # Also after an error that was recorded as a result, such as that of the transfer limit.
            if slot.is_detached:
                slot.branch = None
                results = ctx._history.entries[slot.branch_start :]
                self.transcript.settle(slot.entries[0], slot.entries[1:], results)
            elif slot.branch is not None and len(slot.branch.entries) > slot.branch_start:
                self._merge_branch(slot, slot.branch)
        return outcome

    def _merge_branch(self, slot: TranscriptSlot, branch: History) -> None:
        spoken = slot.entries.pop()
        entry = branch.entries[slot.branch_start]
        # The slot's entry may have been truncated meanwhile, so it is kept and takes over what the turn added.
        spoken.hidden = entry.hidden
        spoken.followed = entry.followed
        branch.entries[slot.branch_start] = spoken
        self.transcript.close(slot)

    def collect(self, task: "asyncio.Task[TurnOutcome]") -> tuple[TranscriptSlot, TurnOutcome] | None:
        """Return the outcome of a finished task, None if it was stopped. Raises its error."""
        slot = self._running.pop(task, None)
        return None if slot is None or task.cancelled() else (slot, task.result())

    async def wait(self) -> None:
        """Wait until all turns have ended."""
        if self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Cancel all turns without waiting for them."""
        for task in self._running:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all turns and wait until they have ended."""
        self.cancel()
        running = self._running
        self._running = {}
        if not running:
            return
        await asyncio.wait(running)
        for task in running:
            # Retrieved so that asyncio does not report errors raised while being cancelled.
            _ = task.cancelled() or task.exception()
        for slot in running.values():
            if slot.is_open or slot.is_detached:
                self.abandon(slot, NO_RESULT)

    def _refuse_calls(self, slot: TranscriptSlot, ctx: AgentContext[Any]) -> None:
        results = [record_result(ctx, key, call, _STOPPED_RESULT, is_error=True) for key, call in slot.calls()]
        self._store_results(slot, [result.message for result in results])

    def abandon(self, slot: TranscriptSlot, placeholder: str) -> None:
        """Store the recorded results of a slot's calls, and a placeholder for each missing one."""
        results: list[ToolMessage] = []
        for key, call in slot.calls():
            recorded = self.ctx._run.log.find(key, ToolReturned)
            missing = ToolMessage(call.id, call.name, placeholder, is_error=True)
            results.append(missing if recorded is None else recorded.message)
        self._store_results(slot, results)

    def _store_results(self, slot: TranscriptSlot, results: list[ToolMessage]) -> None:
        slot.branch = None
        origin = self.ctx._origin
        calls = zip(slot.calls(), results, strict=True)
        entries = [HistoryEntry(result, origin, key=key) for (key, _), result in calls]
        if slot.is_detached:
            self.transcript.settle(slot.entries[0], slot.entries[1:], [slot.entries[0], *entries])
        else:
            self.transcript.fill(slot, *entries)

    def _turn_context(self, slot: TranscriptSlot) -> AgentContext[Any]:
        ctx = self.ctx
        slot.branch = ctx._history.fork()
        slot.branch_start = len(slot.branch.entries)
        return AgentContext(
            ctx._run,
            ctx._origin,
            ctx._scope,
            _history=slot.branch,
            _view=ctx,
            _routes=ctx._routes,
            _options=ctx._options,
            _turn_start=slot.branch_start,
            _flow=ctx._flow,
            _calls=ctx._calls,
            _task=ctx._task,
        )


class ActivationReplay:
    """Replays the recorded events of an activation, without model calls or effects."""

    def __init__(self, turns: RunningTurns) -> None:
        self._turns = turns
        self._ctx = turns.ctx
        self._transcript = turns.transcript
        self.is_finished = False
        """True if the log says that the activation has ended."""
        self.has_started = False
        """True if anything was said in it."""
        self.action: Action | None = None
        self._actions: list[Action] = []
        self.calls: dict[str, tuple[str, str]] = {}
        """Tool name and arguments by call id."""

    async def replay(self) -> list[TranscriptSlot]:
        """Rebuild the transcript; return the slots of responses whose calls are not all recorded."""
        ctx = self._ctx
        log = ctx._run.log
        if not log.has_past:
            return []
        self.is_finished = log.find(keys.end(ctx._scope), AgentFinished) is not None
        transferred = log.find(keys.transfer(ctx._scope), ControlTransferred)
        unfinished: list[TranscriptSlot] = []
        failure: BatonError | None = None
        for position, event in sorted(_transcript_events(log.inside(ctx._scope), ctx._scope), key=lambda each: each[0]):
            self.has_started = True
            slot = self._transcript.open(position)
            match event:
                case UserMessageAdded():
                    self._transcript.fill(slot, HistoryEntry(event.message, key=slot.key))
                case AgentResponded():
                    try:
                        await self._replay_response(slot, event, unfinished)
                    except BatonError as error:
                        # It ended the session; items recorded at the same moment still count.
                        failure = failure or error
                case _:
                    assert_never(event)
        if failure is not None:
            for slot in unfinished:
                # Their calls are never executed; the history shows them as the log does.
                self._turns.abandon(slot, NO_RESULT)
            raise failure
        log.visit(ctx._scope)
        self.action = self._recorded_action(transferred)
        self.is_finished = self.is_finished or transferred is not None
        return unfinished

    def _recorded_action(self, transferred: ControlTransferred | None) -> Action | None:
        # Several responses may have asked for an action; the recorded transfer decides.
        ends = [each for each in self._actions if isinstance(each, Finish | CancelTask)]
        if transferred is not None and transferred.reason == "returned" and ends:
            return ends[0]
        if transferred is not None:
            call_id = transferred.call_id
            asked = [each for each in self._actions if isinstance(each, Transfer) and each.call_id == call_id]
            return asked[0] if asked else Transfer(transferred.target, call_id, transferred.payload, BY_APPLICATION)
        actions = [each for each in self._actions if not (self.is_finished and isinstance(each, PASSES_CONTROL))]
        return actions[0] if actions else None

    async def _replay_response(
        self, slot: TranscriptSlot, response: AgentResponded, unfinished: list[TranscriptSlot]
    ) -> None:
        ctx = self._ctx
        log = ctx._run.log
        ctx._run.meter.start_model_call(ctx._origin)
        for call in response.message.tool_calls:
            ctx._run.call_ids.add(call.id)
            self.calls[call.id] = (call.name, call.arguments)
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "model_start", None, turn=slot.position, is_past=True)
        ctx._apply_changes(response.value_changes)
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "model_end", None, turn=slot.position, is_past=True)
        if response.usage is not None:
            ctx._run.meter.add_usage(response.usage, ctx._origin)
        entry = self._turns.add_response(slot, response)
        truncated = log.find(keys.inside(response.key, "cut"), ResponseTruncated)
        if truncated is not None:
            self._transcript.truncate(entry, truncated)
        if not response.message.tool_calls:
            return
        if not all(log.has(key) for key, _ in slot.calls()):
            if isinstance(log, ReadOnlyLog):
                self._turns.abandon(slot, NO_RESULT)
            else:
                unfinished.append(slot)
            return
        agent = self._turns.agent
        tool_table = recorded_tool_table(agent, ctx, response) or agent._tool_table
        outcome = await self._turns.execute(slot, tool_table)
        if outcome.action is not None:
            self._actions.append(outcome.action)


def _transcript_events(events: list[Event], scope: str) -> list[tuple[int, AgentResponded | UserMessageAdded]]:
    return [
        (position, event)
        for event in events
        if isinstance(event, AgentResponded | UserMessageAdded)
        and keys.parent(event.key) == scope
        and (position := keys.item_number(event.key)) is not None
    ]
