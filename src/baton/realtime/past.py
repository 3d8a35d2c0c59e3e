"""What the log has of an activation of a live conversation: gone through again, with no model and no effect."""

import re
from typing import Any

from ..agents import AgentContext
from ..agents.sources import recorded_toolbox
from ..context import Entry
from ..errors import BatonError
from ..events import Action, CutShort, Event, Finished, Heard, Said, Transfer, Transferred
from ..flow.recall import NO_RESULT
from ..log import ReadOnlyLog
from .transcript import Slot, Transcript
from .turns import Turns

BY_APPLICATION = "(application)"
"""What stands for the tool in a transfer that no call asked for."""
_PLACE = re.compile(r"/i(\d+)$")


class Past:
    """Goes through what is on record, in the order in which it was said."""

    def __init__(self, ctx: AgentContext[Any], transcript: Transcript, turns: Turns) -> None:
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

    async def relive(self) -> list[tuple[Slot, Said]]:
        """Put down what was said; what is left to do are the calls of these responses."""
        ctx, log = self._ctx, self._ctx.run.log
        if not log.has_past:
            return []
        self.is_over = log.find(f"{ctx.scope}/end", Finished) is not None
        moved = log.find(f"{ctx.scope}/to", Transferred)
        waiting: list[tuple[Slot, Said]] = []
        failure: BatonError | None = None
        for place, event in sorted(_spoken_in(log.inside(ctx.scope), ctx.scope), key=lambda each: each[0]):
            self.is_begun = True
            slot = self._transcript.open(place)
            if isinstance(event, Heard):
                self._transcript.fill(slot, Entry(event.message))
            elif isinstance(event, Said):
                try:
                    await self._say_again(slot, event, waiting)
                except BatonError as error:
                    # It ended the conversation before; what was said in the same moment counts all the same.
                    failure = failure or error
        if failure is not None:
            raise failure
        log.visit(ctx.scope)
        self.action = self._chosen(moved)
        self.is_over = self.is_over or moved is not None
        return waiting

    def _chosen(self, moved: Transferred | None) -> Action | None:
        """What became of the floor: several responses may have asked for something, and what is recorded decides."""
        if moved is not None:
            asked = [each for each in self._actions if isinstance(each, Transfer) and each.call_id == moved.call_id]
            return asked[0] if asked else Transfer(moved.target, moved.call_id, moved.payload, BY_APPLICATION)
        actions = [each for each in self._actions if not (self.is_over and isinstance(each, Transfer))]
        return actions[0] if actions else None

    async def _say_again(self, slot: Slot, said: Said, waiting: list[tuple[Slot, Said]]) -> None:
        ctx, log = self._ctx, self._ctx.run.log
        slot.said = said
        ctx.run.meter.start_model_call(ctx.origin)
        for call in said.message.calls:
            ctx.run.call_ids.add(call.id)
            self.calls[call.id] = (call.name, call.arguments)
        if ctx.told is not None:
            await ctx.told.model_start(ctx, None, turn=slot.place)
        ctx.apply_changes(said.changes)
        if ctx.told is not None:
            await ctx.told.model_end(ctx, None, turn=slot.place)
        if said.usage is not None:
            ctx.run.meter.add_usage(said.usage, ctx.origin)
        entry = self._turns.enter(slot, said)
        cut = log.find(f"{said.key}/cut", CutShort)
        if cut is not None:
            self._transcript.cut(entry, cut)
        if not said.message.calls:
            return
        if not self._is_done(said):
            if isinstance(log, ReadOnlyLog):
                self._turns.break_off(slot, said, NO_RESULT)
            else:
                waiting.append((slot, said))
            return
        agent = self._turns.agent
        outcome = await self._turns.take(slot, said, recorded_toolbox(agent, ctx, said) or agent.toolbox)
        if outcome.action is not None:
            self._actions.append(outcome.action)

    def _is_done(self, said: Said) -> bool:
        """Whether the log has what all calls of this response came to."""
        log = self._ctx.run.log
        keys = [f"{said.key}.{position}" for position in range(len(said.message.calls))]
        return all(log.has(key) for key in keys)


def _spoken_in(events: list[Event], scope: str) -> list[tuple[int, Event]]:
    places = [(_PLACE.search(event.key), event) for event in events if isinstance(event, Said | Heard)]
    return [(int(match[1]), event) for match, event in places if match and event.key[: match.start()] == scope]
