"""Reads the log of a run event by event and asserts that each had to happen, and nothing else, by the contract."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.laws.contract import Outcome, Turn
from tests.laws.plans import PolicyName, RunPlan, TeamPlan
from tests.laws.readings import Line, as_read
from tests.laws.stage import Stage, Voice

from baton.events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Event,
    InterruptAnswered,
    InterruptRaised,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    ToolReturned,
)
from baton.messages import Message, ToolMessage, UserMessage, text_of

LAST_TURN = "You have used all your turns with tools. Answer now, as well as you can, with what you know so far."


@dataclass(frozen=True)
class Due:
    """What must happen next: an event of this kind, for this agent where that matters; or an error of this name."""

    kind: type[Event] | None
    agent: str = ""
    call_id: str | None = None
    reason: str = ""
    error: str = ""
    payload: object = None


class Story:
    """What the contract knows of a run after each of its events."""

    def __init__(self, team: TeamPlan, run: RunPlan, voice: Voice) -> None:
        self.team = team
        self.run = run
        self.voice = voice
        self.run_id = ""
        self.lines: list[Line] = []
        self.turns: list[Turn] = []
        self.turn: Turn | None = None
        self.due: list[Due] = [Due(AgentStarted, team.agents[0].name)]
        self.frames: list[str] = []
        self.hop = 0
        self.path: tuple[str, ...] = ()
        self.policy: PolicyName | None = None
        self.handed_over: UserMessage | None = None
        self.turns_taken = 0
        self.failed_corrections = 0
        self.was_faulty = False
        self.model_calls = 0
        self.transfers: list[frozenset[str]] = []
        self.open: dict[str, InterruptRaised] = {}
        self.approved_for_good: set[str] = set()
        self.output: Any = None
        self.is_exit = False
        self.status = "running"

    def read(self, events: Iterable[Event]) -> None:
        """Take these events into account, one by one."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.run_id = event.run_id
                self.lines += [Line(message, None, 0, message, message) for message in event.input]
            case RunResumed():
                self.status = "running"
            case RunCancelled():
                self.status = "cancelled"
            case RunSuspended():
                self._suspend(event)
            case RunFailed():
                self._fail(event)
            case InterruptAnswered():
                self._answer(event)
            case InterruptRaised():
                self._ask(event)
            case StepCompleted():
                self._step(event)
            case ToolReturned() if self.turn is not None:
                self._return(self.turn, event)
            case _:
                self._proceed(event)

    def _proceed(self, event: Event) -> None:
        """What must come in one certain order."""
        assert self.due, f"nothing more should happen, but there is {event}"
        due = self.due.pop(0)
        assert type(event) is due.kind, f"{due} should happen, but there is {event}"
        match event:
            case AgentStarted():
                self._start(event, due)
            case AgentResponded():
                self._say(event, due)
            case ToolReturned():
                self._add_line(event.message)
            case ControlTransferred():
                self._transfer(event, due)
            case AgentFinished():
                assert event.agent == self.agent
                if self.handed_over is not None:
                    self._add_line(self.handed_over)
                    self.handed_over = None
            case RunCompleted():
                self.status = "completed"
            case _:
                raise AssertionError(f"{event} should not be there")

    @property
    def agent(self) -> str:
        """Who has the floor."""
        return self.path[-1]

    def _start(self, event: AgentStarted, due: Due) -> None:
        self.hop += 1
        self.path = (*self.path, due.agent)
        self.turns_taken = self.failed_corrections = 0
        self.was_faulty = False
        assert event.path == self.path
        self._await_model()

    def _await_model(self) -> None:
        plan = self.team[self.agent]
        is_spent = self.turns_taken >= plan.max_turns and plan.on_limit == "error"
        self.due = [Due(None, error="TurnLimitError") if is_spent else Due(AgentResponded)]

    def _say(self, event: AgentResponded, due: Due) -> None:
        assert event.path == self.path
        if due.agent:
            self._hand_on(event, due.agent)
            return
        self.model_calls += 1
        self.turns_taken += 1
        plan = self.team[self.agent]
        is_last = self.turns_taken > plan.max_turns
        self._check_request(event, is_last=is_last)
        if not event.message.tool_calls:
            self._add_line(event.message, is_answer=True)
            self._end(text_of(event.message.content))
        elif is_last:
            self.due = [Due(None, error="TurnLimitError")]
        else:
            self.turn = Turn(self.team, plan, self.run, event, self.hop)
            self.turns.append(self.turn)
            assert len({call.id for turn in self.turns for call in turn.calls}) == sum(
                len(turn.calls) for turn in self.turns
            ), "two calls have the same id"
            self.due = []

    def _check_request(self, event: AgentResponded, *, is_last: bool) -> None:
        assert event.usage is not None
        number = event.usage.input_tokens - 1
        request = self.voice.requests[number]
        policy = self.policy or self.team[self.agent].history or self.run.history
        hides = not self.run.show_transfers
        expected = as_read(self.lines, self.agent, self.hop, policy, hides_transfers=hides)
        expected += [UserMessage(LAST_TURN)] if is_last else []
        assert request.agent == self.agent
        seen = list(self.voice.seen[number])
        assert seen == expected, f"read:\n{seen}\nshould read:\n{expected}"
        assert {spec.name for spec in request.tools} == (set() if is_last else self.team.tool_names(self.agent))

    def _hand_on(self, event: AgentResponded, target: str) -> None:
        (call,) = event.message.tool_calls
        assert call.name == "transfer_to_agent"
        self._add_line(event.message, is_transfer=True)
        result = Due(ToolReturned, call_id=call.id)
        self.due = [result, *self._passage(target, call.id, "")]
        self.policy = None

    def _add_line(self, message: Message, *, is_answer: bool = False, is_transfer: bool = False) -> None:
        is_transfer = is_transfer or isinstance(message, ToolMessage)
        bare = None if is_transfer else message
        self.lines.append(Line(message, self.agent, self.hop, message, bare, is_answer=is_answer))

    def _ask(self, event: InterruptRaised) -> None:
        turn = self.turn
        assert turn is not None
        assert event.tool_call is not None
        position = turn.position_of(event.tool_call.id)
        assert event.tool_call == turn.calls[position]
        if turn.role(position) != "ordinary":
            winner = turn.winner()
            assert turn.are_tools_done, "a person was asked about a transfer before the tools had ended"
            assert winner is not None
            assert winner.position == position
            assert turn.verdict(winner).waits
        assert event.tool_call.name not in self.approved_for_good
        turn.asked.setdefault(position, []).append(event)
        self.open[event.key] = event

    def _answer(self, event: InterruptAnswered) -> None:
        assert self.turn is not None
        self.turn.answered[event.interrupt_id] = event.answer
        del self.open[event.interrupt_id]

    def _step(self, event: StepCompleted) -> None:
        assert self.turn is not None
        tool = self.turn.agent.tool(event.name)
        if tool is not None and tool.kind == "handing":
            key, _, place = event.key.rpartition("/")
            assert place == "agent"
            self.turn.handed.add(int(key.removeprefix(f"{self.turn.said.key}.")))

    def _return(self, turn: Turn, event: ToolReturned) -> None:
        position = turn.position_of(event.call_id)
        assert position not in turn.results, "a call has two results"
        assert event.path == self.path, "a call was answered by another agent than the one that made it"
        decides = turn.role(position) in ("wish", "exit") or turn.hands_to(position) is not None
        if decides:
            assert turn.are_tools_done, "a transfer or exit was settled before the tools had ended"
        turn.results[position] = event
        turn.check_result(position, event)
        self._note_approval(turn, position)
        if len(turn.results) == len(turn.calls):
            self._close(turn)

    def _note_approval(self, turn: Turn, position: int) -> None:
        if turn.role(position) != "ordinary":
            return
        name, asked = turn.calls[position].name, turn.asked.get(position, [])
        tool = turn.agent.tool(name)
        if tool is not None and tool.kind == "approved" and turn.deed(position).word is not None and not asked:
            assert name in self.approved_for_good, "a tool ran that nobody had approved"
        if (
            tool is not None
            and tool.kind == "approved"
            and any(turn.answered[each.key].get("always") for each in asked)
        ):
            self.approved_for_good.add(name)

    def _close(self, turn: Turn) -> None:
        outcome = turn.outcome()
        self.turn = None
        self.lines += turn.lines()
        error = self._error_after(outcome)
        if error is not None:
            self.due = [Due(None, error=error)]
        elif outcome.wish is not None:
            wish = outcome.wish
            returns = wish.edge.returns if wish.edge is not None else None
            self.due = self._passage(wish.target, turn.calls[wish.position].id, returns, outcome.payload)
            self.policy = wish.edge.history if wish.edge is not None else None
            if outcome.payload is not None and wish.edge is not None and not wish.edge.calls_back:
                told = json.dumps(outcome.payload, separators=(",", ":"))
                self.handed_over = UserMessage(f"For context: [{self.agent}] handed over with: {told}.")
        elif outcome.exit is not None:
            self.output, self.is_exit = outcome.exit, True
            self.due = [Due(AgentFinished), Due(RunCompleted)]
        elif outcome.answer is not None:
            self._end(outcome.answer)
        else:
            self._await_model()

    def _error_after(self, outcome: Outcome) -> str | None:
        if outcome.error is not None or outcome.fault is None:
            self.was_faulty = False
            return outcome.error
        if self.was_faulty:
            self.failed_corrections += 1
        self.was_faulty = True
        is_settled = outcome.wish is not None or outcome.exit is not None
        return outcome.fault if self.failed_corrections >= self.run.corrections and not is_settled else None

    def _passage(self, target: str, call_id: str | None, returns: str | None, payload: object = None) -> list[Due]:
        """A transfer. Whoever waits for control to come back is remembered."""
        if self.frames and self.frames[-1] == target:
            self.frames.pop()
        if returns == "caller":
            self.frames.append(self.agent)
        elif returns:
            self.frames.append(returns)
        return [
            Due(ControlTransferred, target, call_id, payload=payload),
            Due(AgentFinished),
            Due(AgentStarted, target),
        ]

    def _end(self, output: str) -> None:
        """The agent has answered: who is next, if anybody?"""
        then = self.team[self.agent].then
        if then is not None:
            self.due = [Due(AgentResponded, then)]
        elif self.frames:
            target = self.frames.pop()
            self.due = [
                Due(ControlTransferred, target, reason="returned"),
                Due(AgentFinished),
                Due(AgentStarted, target),
            ]
            self.policy = None
        else:
            self.output = output
            self.due = [Due(AgentFinished), Due(RunCompleted)]

    def _transfer(self, event: ControlTransferred, due: Due) -> None:
        assert (event.source, event.target) == (self.agent, due.agent)
        assert (event.call_id, event.reason, event.payload) == (due.call_id, due.reason, due.payload)
        self.transfers.append(frozenset((event.source, event.target)))
        assert len(self.transfers) <= self.run.most_transfers

    def _suspend(self, event: RunSuspended) -> None:
        self.status = "suspended"
        turn = self.turn
        assert turn is not None, "suspended though no tool asks anything"
        assert self.open
        assert set(event.interrupt_ids) == set(self.open)
        for position in turn.positions("ordinary"):
            assert turn.is_settled(position) or turn.deed(position).waits, "suspended before all tools had ended"

    def _fail(self, event: RunFailed) -> None:
        self.status = "failed"
        assert event.error_type in self._possible_errors(), f"{event.error_type}: {event.message}"

    def _possible_errors(self) -> Sequence[str]:
        if self.turn is not None:
            raises = [self.turn.deed(position).raises for position in self.turn.positions("ordinary")]
            return ["ToolFailedError"] if any(raises) else []
        due = self.due[0]
        if due.error:
            return [due.error]
        if due.kind is AgentResponded and not due.agent:
            is_spent = self.model_calls >= self.run.most_model_calls
            return ["LimitError"] if is_spent else ["EmptyResponseError"]
        if due.kind is ControlTransferred:
            if len(self.transfers) >= self.run.most_transfers:
                return ["LimitError"]
            return ["LoopError"] if self._goes_round(due.agent) else []
        return []

    def _goes_round(self, target: str) -> bool:
        if self.run.round_trips is None:
            return False
        last = [*self.transfers, frozenset((self.agent, target))][-2 * self.run.round_trips :]
        return len(set(last)) == 1 and len(last) == 2 * self.run.round_trips


def check_deeds(story: Story, stage: Stage) -> None:
    """Assert that every tool ran as often as it had to, for the agent that called it."""
    for turn in story.turns:
        for position in turn.positions("ordinary"):
            call, deed = turn.calls[position], turn.deed(position)
            done = stage.deeds_of(story.run_id, call.id)
            if turn.is_settled(position):
                expected = [] if deed.word is None else [(turn.agent.name, call.name, deed.word)]
                assert done == expected
            elif not deed.raises:
                assert done == []
        _check_callback(story, turn, stage)
    assert all(count == 1 for key, count in stage.deeds.items() if "/step" in key)


def _check_callback(story: Story, turn: Turn, stage: Stage) -> None:
    """Assert that `on_handoff` was called for the transfer that was followed, and for no other."""
    followed = turn.outcome().wish if len(turn.results) == len(turn.calls) else None
    for position in range(len(turn.calls)):
        key = f"{story.run_id}:{turn.said.key}.{position}/step:on_handoff"
        edge = followed.edge if followed is not None and followed.position == position else None
        assert stage.deeds[key] == (1 if edge is not None and edge.calls_back else 0)
