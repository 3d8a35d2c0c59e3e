"""Check the log of a run event by event against the handoff contract."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET
from tests.laws.contract import Outcome, Turn
from tests.laws.plans import PolicyName, RunPlan, TeamPlan
from tests.laws.projections import HistoryLine, project_history
from tests.laws.teams import Environment, PlannedModel

from batonkit.log import (
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
from batonkit.messages import AssistantMessage, Content, Message, ToolMessage, UserMessage, text_of

LAST_TURN = "You have used all your turns with tools. Answer now, as well as you can, with what you know so far."


@dataclass(frozen=True)
class ExpectedEvent:
    """The event or the error that must come next; the agent is only compared where it matters."""

    kind: type[Event] | None
    agent: str = ""
    call_id: str | None = None
    reason: str = ""
    error: str = ""
    payload: object = None
    stop: Content | None = None
    """The answer that a `tool_use_behavior` gives."""
    said: Content | None = None
    """The result of an exit, or of a tool, that the agent says when it ends."""
    unsaid: Content = ""
    """The result of a tool that the agent says after this event."""


class LogChecker:
    """The state of a run after each of its events, as the contract defines it."""

    def __init__(self, team: TeamPlan, run: RunPlan, model: PlannedModel, *, has_middleware: bool = False) -> None:
        self.has_middleware = has_middleware
        self.team = team
        self.run = run
        self.model = model
        self.run_id = ""
        self.lines: list[HistoryLine] = []
        self.turns: list[Turn] = []
        self.turn: Turn | None = None
        self.expected: list[ExpectedEvent] = [ExpectedEvent(AgentStarted, team.agents[0].name)]
        self.return_stack: list[str] = []
        self.hop = 0
        self.path: tuple[str, ...] = ()
        self.policy: PolicyName | None = None
        self.input_message: UserMessage | None = None
        self.turns_taken = 0
        self.failed_corrections = 0
        self.was_faulty = False
        self.model_calls = 0
        self.transfers: list[tuple[str, str]] = []
        self.open: dict[str, InterruptRaised] = {}
        self.always_approved: set[tuple[str, str]] = set()
        """Agents and their tools that a person has approved for the rest of the run."""
        self.output: Any = None
        self.answer: tuple[Content, tuple[str, ...]] = "", ()
        """The last answer, and the keys of the response that has said it."""
        self.is_exit = False
        self.status = "running"

    def read(self, events: Iterable[Event]) -> None:
        """Check these events one by one."""
        for event in events:
            self._check_event(event)

    def _check_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.run_id = event.run_id
                self.lines += [HistoryLine(message, None, 0, message, message) for message in event.input]
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
                self._check_ordered_event(event)

    def _check_ordered_event(self, event: Event) -> None:
        """Check an event whose position in the log is fixed."""
        assert self.expected, f"unexpected event at the end: {event}"
        expected = self.expected.pop(0)
        assert type(event) is expected.kind, f"expected {expected}, got {event}"
        match event:
            case AgentStarted():
                self._start(event, expected)
            case AgentResponded():
                self._check_response(event, expected)
            case ToolReturned():
                self._add_line(event.message)
            case ControlTransferred():
                self._transfer(event, expected)
            case AgentFinished():
                assert event.agent == self.agent
                if self.input_message is not None:
                    # It is addressed to the target, which may read answers only.
                    self._add_line(self.input_message, is_answer=True)
                    self.input_message = None
            case RunCompleted():
                self._complete(event)
            case _:
                raise AssertionError(f"unexpected event: {event}")

    def _complete(self, event: RunCompleted) -> None:
        self.status = "completed"
        content, said = self.answer
        self.output = text_of(content)
        # A text that someone has said is not recorded again.
        assert (event.said, event.output) == (said, UNSET if said else self.output)

    @property
    def agent(self) -> str:
        """Return the name of the active agent."""
        return self.path[-1]

    def _start(self, event: AgentStarted, expected: ExpectedEvent) -> None:
        self.hop += 1
        self.path = (*self.path, expected.agent)
        self.turns_taken = self.failed_corrections = 0
        self.was_faulty = False
        assert event.path == self.path
        self._expect_model()

    def _expect_model(self) -> None:
        plan = self.team[self.agent]
        is_spent = self.turns_taken >= plan.max_turns and plan.on_limit == "error"
        self.expected = [ExpectedEvent(None, error="TurnLimitError") if is_spent else ExpectedEvent(AgentResponded)]

    def _check_response(self, event: AgentResponded, expected: ExpectedEvent) -> None:
        assert event.path == self.path
        if expected.agent:
            self._check_then_transfer(event, expected)
            return
        if expected.said is not None:
            assert (event.message, event.model) == (AssistantMessage(expected.said), "")
            assert event.key == f"{event.origin.id}/answer"
            self._add_line(event.message, is_answer=True)
            self.answer = expected.said, (event.key,)
            return
        if expected.stop is not None:
            assert (event.message, event.model) == (AssistantMessage(expected.stop), "")
            self._add_line(event.message, is_answer=True)
            self.answer = expected.stop, (event.key,)
            self._end()
            return
        self.model_calls += event.model_calls if self.has_middleware else 1
        self.turns_taken += 1
        plan = self.team[self.agent]
        is_last = self.turns_taken > plan.max_turns
        self._check_request(event, is_last=is_last)
        if not event.message.tool_calls:
            self._add_line(event.message, is_answer=True)
            self.answer = event.message.content, (event.key,)
            self._end()
        elif is_last:
            self.expected = [ExpectedEvent(None, error="TurnLimitError")]
        else:
            self.turn = Turn(self.team, plan, self.run, event, self.hop)
            self.turns.append(self.turn)
            assert len({call.id for turn in self.turns for call in turn.calls}) == sum(
                len(turn.calls) for turn in self.turns
            ), "two calls have the same id"
            self.expected = []

    def _check_request(self, event: AgentResponded, *, is_last: bool) -> None:
        policy = self.policy or self.team[self.agent].history or self.run.history
        hides = not self.run.show_transfers
        expected = project_history(self.lines, self.agent, self.hop, policy, hides_transfers=hides)
        expected += [UserMessage(LAST_TURN)] if is_last else []
        tools = set[str]() if is_last else self.team.tool_names(self.agent)
        if self.has_middleware and event.model_calls != 1:
            # It answered by itself, or the usage is the sum of several requests, which were equal.
            known = [(seen, request.agent) for seen, request in zip(self.model.seen, self.model.requests, strict=True)]
            assert event.model_calls == 0 or (tuple(expected), self.agent) in known
            return
        assert event.usage is not None
        number = event.usage.input_tokens - 1
        request = self.model.requests[number]
        assert request.agent == self.agent
        seen = list(self.model.seen[number])
        assert seen == expected, f"read:\n{seen}\nshould read:\n{expected}"
        assert {spec.name for spec in request.tools} == tools

    def _check_then_transfer(self, event: AgentResponded, expected: ExpectedEvent) -> None:
        (call,) = event.message.tool_calls
        assert call.name == "transfer_to_agent"
        self._add_line(event.message, is_transfer=True)
        result = ExpectedEvent(ToolReturned, call_id=call.id)
        self.expected = [result, *_to_say(expected.unsaid), *self._expect_transfer(expected.agent, call.id, "")]
        self.policy = None

    def _add_line(self, message: Message, *, is_answer: bool = False, is_transfer: bool = False) -> None:
        is_transfer = is_transfer or isinstance(message, ToolMessage)
        bare = None if is_transfer else message
        self.lines.append(HistoryLine(message, self.agent, self.hop, message, bare, is_answer=is_answer))

    def _ask(self, event: InterruptRaised) -> None:
        turn = self.turn
        assert turn is not None
        assert event.tool_call is not None
        position = turn.position_of(event.tool_call.id)
        assert event.tool_call == turn.calls[position]
        if turn.role(position) != "ordinary":
            followed_transfer = turn.followed_transfer()
            assert turn.are_tools_done, "a person was asked about a transfer before the tools had ended"
            assert followed_transfer is not None
            assert followed_transfer.position == position
            assert turn.decision(followed_transfer).waits
        assert (turn.agent.name, event.tool_call.name) not in self.always_approved
        turn.asked.setdefault(position, []).append(event)
        self.open[event.key] = event

    def _answer(self, event: InterruptAnswered) -> None:
        assert self.turn is not None
        self.turn.answered[event.interrupt_id] = event.answer
        del self.open[event.interrupt_id]

    def _step(self, event: StepCompleted) -> None:
        if event.name == "tool_use_behavior":
            turn = self.turns[-1]
            assert self.turn is None, "a decision was made before all calls had results"
            assert event.key.startswith(f"{turn.response.key}/stop/")
            assert event.result == turn.stop_content()
            return
        if self.has_middleware and "/mw:" in event.key:
            return
        assert self.turn is not None
        tool = self.turn.agent.tool(event.name)
        if tool is not None and tool.kind == "handing":
            key, _, place = event.key.rpartition("/")
            assert place == "agent"
            self.turn.agent_returned.add(int(key.removeprefix(f"{self.turn.response.key}.")))

    def _return(self, turn: Turn, event: ToolReturned) -> None:
        position = turn.position_of(event.call_id)
        assert position not in turn.results, "a call has two results"
        assert event.path == self.path, "a call was answered by another agent than the one that made it"
        decides = turn.role(position) in ("wish", "exit") or turn.returned_agent(position) is not None
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
        if (
            tool is not None
            and tool.kind == "approved"
            and turn.expected_result(position).word is not None
            and not asked
        ):
            assert (turn.agent.name, name) in self.always_approved, "a tool ran without approval"
        if (
            tool is not None
            and tool.kind == "approved"
            and any(turn.answered[each.key].get("always") for each in asked)
        ):
            self.always_approved.add((turn.agent.name, name))

    def _close(self, turn: Turn) -> None:
        outcome = turn.outcome()
        self.turn = None
        self.lines += turn.lines()
        error = self._error_after(outcome)
        if error is not None:
            self.expected = [ExpectedEvent(None, error=error)]
        elif outcome.transfer is not None:
            transfer = outcome.transfer
            returns = transfer.edge.returns if transfer.edge is not None else None
            self.expected = self._expect_transfer(
                transfer.target, turn.calls[transfer.position].id, returns, outcome.payload
            )
            self.policy = transfer.edge.history if transfer.edge is not None else None
            if turn.shows_input(outcome):
                text = json.dumps(outcome.payload, separators=(",", ":"))
                self.input_message = UserMessage(f"For context: [{self.agent}] handed over with: {text}.")
        elif outcome.exit is not None:
            self.answer, self.is_exit = (outcome.exit, ()), True
            self.expected = [*_to_say(outcome.exit), ExpectedEvent(AgentFinished), ExpectedEvent(RunCompleted)]
        elif outcome.answer is not None:
            self._end(outcome.answer)
        elif outcome.stop is not None:
            self.expected = [ExpectedEvent(AgentResponded, stop=outcome.stop)]
        else:
            self._expect_model()

    def _error_after(self, outcome: Outcome) -> str | None:
        if outcome.error is not None or outcome.fault is None:
            self.was_faulty = False
            return outcome.error
        if self.was_faulty:
            self.failed_corrections += 1
        self.was_faulty = True
        is_settled = outcome.transfer is not None or outcome.exit is not None
        return outcome.fault if self.failed_corrections >= self.run.corrections and not is_settled else None

    def _expect_transfer(
        self, target: str, call_id: str | None, returns: str | None, payload: object = None
    ) -> list[ExpectedEvent]:
        """Return the events of a transfer, and push the agent to return to, if any."""
        if self.return_stack and self.return_stack[-1] == target:
            self.return_stack.pop()
        if returns == "caller":
            self.return_stack.append(self.agent)
        elif returns:
            self.return_stack.append(returns)
        return [
            ExpectedEvent(ControlTransferred, target, call_id, payload=payload),
            ExpectedEvent(AgentFinished),
            ExpectedEvent(AgentStarted, target),
        ]

    def _end(self, unsaid: Content = "") -> None:
        """Expect what follows the final answer of an agent: a transfer, a return, or the end of the run."""
        then = self.team[self.agent].then
        if then is not None:
            self.expected = [ExpectedEvent(AgentResponded, then, unsaid=unsaid)]
        elif self.return_stack:
            target = self.return_stack.pop()
            self.expected = [
                *_to_say(unsaid),
                ExpectedEvent(ControlTransferred, target, reason="returned"),
                ExpectedEvent(AgentFinished),
                ExpectedEvent(AgentStarted, target),
            ]
            self.policy = None
        else:
            self.expected = [*_to_say(unsaid), ExpectedEvent(AgentFinished), ExpectedEvent(RunCompleted)]

    def _transfer(self, event: ControlTransferred, expected: ExpectedEvent) -> None:
        assert (event.source, event.target) == (self.agent, expected.agent)
        assert (event.call_id, event.reason, event.payload) == (expected.call_id, expected.reason, expected.payload)
        self.transfers.append((event.source, event.target))
        assert len(self.transfers) <= self.run.most_transfers

    def _suspend(self, event: RunSuspended) -> None:
        self.status = "suspended"
        turn = self.turn
        assert turn is not None, "suspended though no tool asks anything"
        assert self.open
        assert set(event.interrupt_ids) == set(self.open)
        for position in turn.positions("ordinary"):
            assert turn.is_settled(position) or turn.expected_result(position).waits, (
                "suspended before all tools had ended"
            )

    def _fail(self, event: RunFailed) -> None:
        self.status = "failed"
        assert event.error_type in self._possible_errors(), f"{event.error_type}: {event.message}"

    def _possible_errors(self) -> Sequence[str]:
        if self.turn is not None:
            raises = [self.turn.expected_result(position).raises for position in self.turn.positions("ordinary")]
            return ["ToolFailedError"] if any(raises) else []
        expected = self.expected[0]
        if expected.error:
            return [expected.error]
        is_of_model = not expected.agent and expected.stop is None and expected.said is None
        if expected.kind is AgentResponded and is_of_model:
            if self.model_calls >= self.run.most_model_calls:
                return ["LimitError"]
            # A model that says nothing is asked once more, which counts but is not recorded.
            may_be_spent = len(self.model.requests) >= self.run.most_model_calls
            return ["EmptyResponseError", "LimitError"] if may_be_spent else ["EmptyResponseError"]
        if expected.kind is ControlTransferred:
            if len(self.transfers) >= self.run.most_transfers:
                return ["LimitError"]
            return ["LoopError"] if self._is_loop(expected.agent) else []
        return []

    def _is_loop(self, target: str) -> bool:
        if self.run.round_trips is None:
            return False
        transfers = [*self.transfers, (self.agent, target)]
        agents = [transfers[0][0], *[to for _, to in transfers]]
        for length in range(2, len(transfers) // self.run.round_trips + 1):
            last = agents[-length * self.run.round_trips - 1 :]
            if all(agent == before for agent, before in zip(last[length:], last, strict=False)):
                return True
        return False


def _to_say(answer: Content) -> list[ExpectedEvent]:
    """Return the event of an answer that no response has said; an empty one is not said."""
    return [ExpectedEvent(AgentResponded, said=answer)] if answer else []


def check_effects(checker: LogChecker, environment: Environment) -> None:
    """Assert that every tool ran as often as it had to, for the agent that called it."""
    for turn in checker.turns:
        for position in turn.positions("ordinary"):
            call, expected_result = turn.calls[position], turn.expected_result(position)
            done = environment.effects_of(checker.run_id, call.id)
            if turn.is_settled(position):
                expected = [] if expected_result.word is None else [(turn.agent.name, call.name, expected_result.word)]
                assert done == expected
            elif not expected_result.raises:
                assert done == []
        _check_callback(checker, turn, environment)
    assert all(count == 1 for key, count in environment.effects.items() if "/step" in key)


def _check_callback(checker: LogChecker, turn: Turn, environment: Environment) -> None:
    """Assert that `on_handoff` was called for the transfer that was followed, and for no other."""
    followed = turn.outcome().transfer if len(turn.results) == len(turn.calls) else None
    for position in range(len(turn.calls)):
        key = f"{checker.run_id}:{turn.response.key}.{position}/step:on_handoff"
        edge = followed.edge if followed is not None and followed.position == position else None
        assert environment.effects[key] == (1 if edge is not None and edge.calls_back else 0)
