"""What the log has of an activation of a live conversation: gone through again, with no model and no effect."""

import re
from typing import Any

from ..agents import AgentContext
from ..agents.sources import recorded_tool_table
from ..context import HistoryEntry
from ..errors import BatonError
from ..events import (
    Action,
    AgentFinished,
    AgentResponded,
    ControlTransferred,
    Event,
    ResponseTruncated,
    Transfer,
    UserMessageAdded,
)
from ..flow.recall import NO_RESULT
from ..log import ReadOnlyLog
from .transcript import ActivationTranscript, TranscriptSlot
from .turns import RunningTurns

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
