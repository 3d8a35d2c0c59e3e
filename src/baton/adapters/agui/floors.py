"""Who has the floor, as the protocol tells it: steps for agents in turn, subagents for agents inside another."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import ag_ui.core as agui

from ...events import AgentResponded, AgentStarted, Event, InterruptRaised, Origin

_CALL = re.compile(r"^(.*/m\d+\.\d+)/[^/]+$")
"""The id of an activation that a call began, and the key of the call in it."""


class StepTranslator:
    """Keeps account of the activations that a stream has spoken of."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._agents: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._active: dict[str, str] = {}
        self._left: set[str] = set()

    def note(self, event: Event) -> None:
        """Remember what later activations refer to."""
        if isinstance(event, AgentStarted):
            self._agents[event.origin.id] = event.agent
        elif isinstance(event, AgentResponded):
            for position, call in enumerate(event.message.tool_calls):
                self._calls[f"{event.key}.{position}"] = call.id

    def tag(self, origin: Origin) -> str | None:
        """What something is marked with that comes from here; None if it is no subagent's."""
        return f"{self._run}:{origin.id}" if "/" in origin.id else None

    def entered(self, origin: Origin) -> Iterator[Any]:
        """Tell that this activation, and those around it, have begun, unless that has been told."""
        yield from self._entered(origin.id, origin.agent)

    def left(self, origin: Origin) -> Iterator[Any]:
        """Tell that an activation is over, if it was told that it began."""
        agent = self._active.pop(origin.id, None)
        if agent is None:
            return
        self._left.add(origin.id)
        if "/" in origin.id:
            yield agui.SubagentFinishedEvent(subagent_run_id=f"{self._run}:{origin.id}")
        else:
            yield agui.StepFinishedEvent(step_name=agent)

    def all_left(self, *, waiting: Sequence[InterruptRaised], failure: str) -> Iterator[Any]:
        """Tell that no activation goes on in this stream, the innermost first."""
        for id, agent in [*self._active.items()][::-1]:
            del self._active[id]
            self._left.add(id)
            run = f"{self._run}:{id}"
            if "/" not in id:
                yield agui.StepFinishedEvent(step_name=agent)
            elif failure:
                yield agui.SubagentErrorEvent(subagent_run_id=run, message=failure)
            elif waiting:
                asked = [each.key for each in waiting if each.origin.id == id]
                outcome = agui.SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=asked)
                yield agui.SubagentFinishedEvent(subagent_run_id=run, outcome=outcome)
            else:
                yield agui.SubagentFinishedEvent(subagent_run_id=run)

    def _entered(self, id: str, agent: str) -> Iterator[Any]:
        if not id or id in self._active or id in self._left:
            return
        if "/" not in id:
            self._active[id] = agent
            yield agui.StepStartedEvent(step_name=agent)
            return
        # An activation's id is that of the one around it, the place in that, and how many had the floor there.
        around = id.rsplit("/", 2)[0]
        yield from self._entered(around, self._agents.get(around, ""))
        self._active[id] = agent
        found = _CALL.match(id)
        yield agui.SubagentStartedEvent(
            subagent_run_id=f"{self._run}:{id}",
            name=agent,
            parent_subagent_run_id=f"{self._run}:{around}" if "/" in around else None,
            parent_tool_call_id=self._calls.get(found[1]) if found else None,
        )
