"""The calls of responses being carried out while the conversation goes on: each turn has a history of its own.

What the log has of an activation of a live conversation: gone through again, with no model and no effect.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from ..agents import AgentContext
from ..agents.compiled import recorded_tool_table
from ..agents.definition import ToolTable
from ..agents.turn import TurnExecutor, TurnOutcome, record_result
from ..context import HistoryEntry, RunContext
from ..context.history import History
from ..errors import BatonError, GuardrailTrippedError
from ..events import (
    Action,
    AgentFinished,
    AgentResponded,
    ControlTransferred,
    Event,
    ResponseTruncated,
    ToolReturned,
    Transfer,
    UserMessageAdded,
)
from ..flow.log_history import NO_RESULT
from ..log import ReadOnlyLog
from ..messages import ToolMessage, text_of
from .definition import RealtimeDefinition, sibling_context
from .mailbox import Happening, TurnEnded
from .transcript import UNDER_WAY, ActivationTranscript, TranscriptSlot

STOPPED = "guardrail"
"""Why a response ended that a guardrail stopped; nothing that it asks for is done, then or later."""
_NOT_CARRIED_OUT = "Not carried out: a guardrail stopped this response."


class RunningTurns:
    """The turns of one activation that are under way."""

    def __init__(
        self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any], transcript: ActivationTranscript
    ) -> None:
        self.agent = agent
        self._ctx = ctx
        self._transcript = transcript
        self._running: dict[asyncio.Task[TurnOutcome], TranscriptSlot] = {}

    @property
    def are_running(self) -> bool:
        """Whether there are any."""
        return bool(self._running)

    def enter(self, slot: TranscriptSlot, said: AgentResponded) -> HistoryEntry:
        """Put down what was said; if it makes calls, their place stays open until they have been carried out."""
        entry = HistoryEntry(said.message, self._ctx._origin, is_answer=not said.message.tool_calls)
        if said.message.content:
            self._ctx.output = text_of(said.message.content)
        if said.message.tool_calls:
            slot.entries.append(entry)
        else:
            self._transcript.fill(slot, entry)
        return entry

    def start(
        self, slot: TranscriptSlot, said: AgentResponded, toolbox: ToolTable, tell: Callable[[Happening], None]
    ) -> None:
        """Carry out the calls of a response, while the conversation goes on."""
        task = asyncio.create_task(self.take(slot, said, toolbox), name=f"baton turn {said.key}")
        self._running[task] = slot
        task.add_done_callback(lambda ended: tell(TurnEnded(ended)))

    def leave(self) -> "RunningTurns":
        """Let what is under way go on though somebody else gets the floor. Its place is kept in the history."""
        left = RunningTurns(self.agent, self._ctx, self._transcript)
        left._running, self._running = self._running, {}
        for slot in left._running.values():
            if slot.is_open and slot.said is not None:
                self.break_off(slot, slot.said, UNDER_WAY)
                slot.is_left = True
        return left

    async def take(self, slot: TranscriptSlot, said: AgentResponded, toolbox: ToolTable) -> TurnOutcome:
        """Carry out the calls of a response; its place then has what they came to."""
        ctx = self._context_for(slot)
        if said.stop_reason == STOPPED:
            self._refuse(slot, said, ctx)
            return TurnOutcome()
        try:
            outcome = await TurnExecutor(self.agent, ctx, said, toolbox, is_concurrent=True).run()
        except GuardrailTrippedError:
            self.break_off(slot, said, NO_RESULT)
            raise
        finally:
            # Also if the run ends with an error that was told to the model, such as that of too many transfers.
            if slot.is_left:
                slot.branch = None
                self._transcript.settle(slot.entries[0], slot.entries[1:], ctx._history.entries[slot.mark :])
            elif slot.branch is not None and len(slot.branch.entries) > slot.mark:
                self._put_down(slot, slot.branch)
        return outcome

    def _put_down(self, slot: TranscriptSlot, branch: History) -> None:
        spoken, entry = slot.entries.pop(), branch.entries[slot.mark]
        # The same words, which may have been cut short meanwhile, with what is known of the calls now.
        spoken.hidden, spoken.followed = entry.hidden, entry.followed
        branch.entries[slot.mark] = spoken
        self._transcript.close(slot)

    def ended(self, task: "asyncio.Task[TurnOutcome]") -> tuple[TranscriptSlot, TurnOutcome] | None:
        """What a turn came to; None if it has been stopped. Raises what ended it."""
        slot = self._running.pop(task, None)
        return None if slot is None or task.cancelled() else (slot, task.result())

    async def wait(self) -> None:
        """Return when all turns have ended."""
        if self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Have all turns stop; `stop` waits for that."""
        for task in self._running:
            task.cancel()

    async def stop(self) -> None:
        """Stop all turns, and return when they have ended."""
        self.cancel()
        running, self._running = self._running, {}
        if not running:
            return
        await asyncio.wait(running)
        for task in running:
            # What it raises while it is being stopped is of interest to nobody; it has to be looked at all the same.
            _ = task.cancelled() or task.exception()
        for slot in running.values():
            if (slot.is_open or slot.is_left) and slot.said is not None:
                self.break_off(slot, slot.said, NO_RESULT)

    def _refuse(self, slot: TranscriptSlot, said: AgentResponded, ctx: AgentContext[Any]) -> None:
        """Put down for each call, and on record, that it was not carried out."""
        slot.branch = None
        keyed = [(f"{said.key}.{position}", call) for position, call in enumerate(said.message.tool_calls)]
        results = [record_result(ctx, key, call, _NOT_CARRIED_OUT, is_error=True) for key, call in keyed]
        self._put_down_results(slot, [result.message for result in results])

    def break_off(self, slot: TranscriptSlot, said: AgentResponded, told: str) -> None:
        """Put down for each call what is on record of it, and else that it came to nothing."""
        slot.branch = None
        self._put_down_results(slot, self._results_of(said, told))

    def _put_down_results(self, slot: TranscriptSlot, results: list[ToolMessage]) -> None:
        entries = [HistoryEntry(result, self._ctx._origin) for result in results]
        if slot.is_left:
            self._transcript.settle(slot.entries[0], slot.entries[1:], [slot.entries[0], *entries])
        else:
            self._transcript.fill(slot, *entries)

    def _results_of(self, said: AgentResponded, told: str) -> list[ToolMessage]:
        log, results = self._ctx._run.log, list[ToolMessage]()
        for position, call in enumerate(said.message.tool_calls):
            recorded = log.find(f"{said.key}.{position}", ToolReturned)
            nothing = ToolMessage(call.id, call.name, told, is_error=True)
            results.append(nothing if recorded is None else recorded.message)
        return results

    def call_context(self, scope: str) -> RunContext[Any]:
        """The context of something that is done in this activation and is no call."""
        return RunContext(self._ctx._run, self._ctx._origin, scope, None, self._ctx)

    def _context_for(self, slot: TranscriptSlot) -> AgentContext[Any]:
        ctx = self._ctx
        slot.branch = ctx._history.fork()
        slot.mark = len(slot.branch.entries)
        turn = sibling_context(ctx, history=slot.branch, turn_start=slot.mark)
        turn._hooks = ctx._hooks
        return turn


BY_APPLICATION = "(application)"
"""What stands for the tool in a transfer that no call asked for."""
_PLACE = re.compile(r"/i(\d+)$")


class ActivationReplay:
    """Goes through what is on record, in the order in which it was said."""

    def __init__(self, ctx: AgentContext[Any], transcript: ActivationTranscript, turns: RunningTurns) -> None:
        self._ctx = ctx
        self._transcript = transcript
        self._turns = turns
        self.is_over = False
        """Whether the activation has ended, by what is on record."""
        self.is_begun = False
        """Whether anything was said in it."""
        self.action: Action | None = None
        self._actions: list[Action] = []
        """What responses asked for, in the order in which they were given."""
        self.calls: dict[str, tuple[str, str]] = {}
        """What each call id was used for: the tool's name and the arguments."""

    async def relive(self) -> list[tuple[TranscriptSlot, AgentResponded]]:
        """Put down what was said; what is left to do are the calls of these responses."""
        ctx, log = self._ctx, self._ctx._run.log
        if not log.has_past:
            return []
        self.is_over = log.find(f"{ctx._scope}/end", AgentFinished) is not None
        moved = log.find(f"{ctx._scope}/to", ControlTransferred)
        waiting: list[tuple[TranscriptSlot, AgentResponded]] = []
        failure: BatonError | None = None
        for place, event in sorted(_spoken_in(log.inside(ctx._scope), ctx._scope), key=lambda each: each[0]):
            self.is_begun = True
            slot = self._transcript.open(place)
            if isinstance(event, UserMessageAdded):
                self._transcript.fill(slot, HistoryEntry(event.message))
            elif isinstance(event, AgentResponded):
                try:
                    await self._say_again(slot, event, waiting)
                except BatonError as error:
                    # It ended the conversation before; what was said in the same moment counts all the same.
                    failure = failure or error
        if failure is not None:
            raise failure
        log.visit(ctx._scope)
        self.action = self._chosen(moved)
        self.is_over = self.is_over or moved is not None
        return waiting

    def _chosen(self, moved: ControlTransferred | None) -> Action | None:
        """What became of the floor: several responses may have asked for something, and what is recorded decides."""
        if moved is not None:
            asked = [each for each in self._actions if isinstance(each, Transfer) and each.call_id == moved.call_id]
            return asked[0] if asked else Transfer(moved.target, moved.call_id, moved.payload, BY_APPLICATION)
        actions = [each for each in self._actions if not (self.is_over and isinstance(each, Transfer))]
        return actions[0] if actions else None

    async def _say_again(
        self, slot: TranscriptSlot, said: AgentResponded, waiting: list[tuple[TranscriptSlot, AgentResponded]]
    ) -> None:
        ctx, log = self._ctx, self._ctx._run.log
        slot.said = said
        ctx._run.meter.start_model_call(ctx._origin)
        for call in said.message.tool_calls:
            ctx._run.call_ids.add(call.id)
            self.calls[call.id] = (call.name, call.arguments)
        if ctx._hooks is not None:
            await ctx._hooks.model_start(ctx, None, turn=slot.place)
        ctx._apply_changes(said.value_changes)
        if ctx._hooks is not None:
            await ctx._hooks.model_end(ctx, None, turn=slot.place)
        if said.usage is not None:
            ctx._run.meter.add_usage(said.usage, ctx._origin)
        entry = self._turns.enter(slot, said)
        cut = log.find(f"{said.key}/cut", ResponseTruncated)
        if cut is not None:
            self._transcript.cut(entry, cut)
        if not said.message.tool_calls:
            return
        if not self._is_done(said):
            if isinstance(log, ReadOnlyLog):
                self._turns.break_off(slot, said, NO_RESULT)
            else:
                waiting.append((slot, said))
            return
        agent = self._turns.agent
        outcome = await self._turns.take(slot, said, recorded_tool_table(agent, ctx, said) or agent._tool_table)
        if outcome.action is not None:
            self._actions.append(outcome.action)

    def _is_done(self, said: AgentResponded) -> bool:
        """Whether the log has what all calls of this response came to."""
        log = self._ctx._run.log
        keys = [f"{said.key}.{position}" for position in range(len(said.message.tool_calls))]
        return all(log.has(key) for key in keys)


def _spoken_in(events: list[Event], scope: str) -> list[tuple[int, Event]]:
    places = [
        (_PLACE.search(event.key), event) for event in events if isinstance(event, AgentResponded | UserMessageAdded)
    ]
    return [(int(match[1]), event) for match, event in places if match and event.key[: match.start()] == scope]
