"""The handoff contract for one turn, implemented independently of Baton's code."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from msgspec.structs import replace
from tests.laws.plans import DEFAULT_WORD, AgentPlan, EdgePlan, RunPlan, TeamPlan, ToolPlan
from tests.laws.projections import HistoryLine

from batonkit.log import AgentResponded, InterruptRaised, ToolReturned
from batonkit.log.entries import SHOWN_AS_ANSWER
from batonkit.log.events import payload_fields
from batonkit.messages import AssistantMessage, Content, Message, ToolCall, media_of, text_of

Role: TypeAlias = Literal["ordinary", "unavailable", "transfer", "refused", "disabled", "exit", "unknown"]


@dataclass(frozen=True)
class ExpectedResult:
    """The expected result of an ordinary call. `word` is the expected argument; None if the tool must not run."""

    word: str | None
    text: str = ""
    is_error: bool = False
    is_final: bool = False
    waits: bool = False
    raises: bool = False
    returned_agent: str | None = None


@dataclass(frozen=True)
class TransferRequest:
    """A transfer that a call requests."""

    position: int
    target: str
    text: str
    edge: EdgePlan | None = None


@dataclass(frozen=True)
class Decision:
    """The decision about the selected transfer: denied by a person, invalid input, or allowed."""

    waits: bool = False
    denial: str | None = None
    fault: str | None = None
    payload: dict[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """The expected outcome of a turn: a transfer, an output, an error, or another turn if all are None."""

    transfer: TransferRequest | None = None
    payload: dict[str, str] | None = None
    exit: str | None = None
    answer: Content | None = None
    stop: Content | None = None
    error: str | None = None
    fault: str | None = None


@dataclass
class Turn:
    """One response with calls, and the events about them so far."""

    team: TeamPlan
    agent: AgentPlan
    run: RunPlan
    response: AgentResponded
    activation: int
    results: dict[int, ToolReturned] = field(default_factory=dict[int, ToolReturned])
    asked: dict[int, list[InterruptRaised]] = field(default_factory=dict[int, list[InterruptRaised]])
    answered: dict[str, Any] = field(default_factory=dict[str, Any])
    agent_returned: set[int] = field(default_factory=set[int])
    """The positions of the calls whose function has returned an agent."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.response.message.tool_calls

    def position_of(self, call_id: str) -> int:
        """Return the position of this call in the response."""
        return [call.id for call in self.calls].index(call_id)

    def role(self, position: int) -> Role:
        """Return the role of the call at this position."""
        call = self.calls[position]
        tool = self.agent.tool(call.name)
        if tool is not None:
            return "ordinary" if tool.is_enabled else "unavailable"
        edge = self.agent.edge(call.name)
        if edge is not None:
            return "transfer" if edge.is_enabled else "disabled"
        if call.name == "transfer_to_agent" and self.team.tree_of(self.agent.name):
            return "transfer" if self._tree_target(call) is not None else "refused"
        return "exit" if call.name == "exit" and self.agent.has_exit else "unknown"

    def positions(self, *roles: Role) -> list[int]:
        """Return the positions of the calls with these roles."""
        return [position for position in range(len(self.calls)) if self.role(position) in roles]

    def expected_result(self, position: int) -> ExpectedResult:
        """Return the expected result of an ordinary call, given the answers so far."""
        call = self.calls[position]
        tool = self.agent.tool(call.name)
        assert tool is not None
        word = _word_in(call.arguments)
        if word is None:
            return ExpectedResult(None, f"The arguments of `{tool.name}`", is_error=True)
        asked = [question for question in self.asked.get(position, []) if not _is_about_transfer(question)]
        if any(question.key not in self.answered for question in asked):
            return ExpectedResult(None, waits=True)
        replies = [self.answered[question.key] for question in asked]
        if tool.kind != "approved" or not replies:
            return _expected_result(tool, word, replies)
        return _expected_after_approval(tool, word, replies[0])

    def returned_agent(self, position: int) -> str | None:
        """Return the name of the agent that this call's function returns."""
        return self.expected_result(position).returned_agent if self.role(position) == "ordinary" else None

    def is_settled(self, position: int) -> bool:
        """Return whether an ordinary call has finished."""
        return position in self.results or position in self.agent_returned

    @property
    def are_tools_done(self) -> bool:
        return all(self.is_settled(position) for position in self.positions("ordinary"))

    def transfer_requests(self) -> list[TransferRequest]:
        """Return the valid transfer requests, in the order of the calls."""
        found: list[TransferRequest] = []
        for position in self.positions("transfer", "ordinary"):
            call = self.calls[position]
            edge = self.agent.edge(call.name)
            if self.role(position) == "ordinary":
                target = self.returned_agent(position)
                if target is not None:
                    found.append(TransferRequest(position, target, _assistant(target)))
            elif edge is not None:
                found.append(TransferRequest(position, edge.target, _assistant(edge.target), edge))
            else:
                target = self._tree_target(call) or ""
                found.append(TransferRequest(position, target, f"successfully transferred to agent [{target}]"))
        return found

    def followed_transfer(self) -> TransferRequest | None:
        """Return the transfer that must be followed."""
        transfer_requests = self.transfer_requests()
        if len(transfer_requests) < 2:
            return transfer_requests[0] if transfer_requests else None
        return {"first": transfer_requests[0], "last": transfer_requests[-1], "error": None}[self.run.multiple]

    def decision(self, transfer: TransferRequest) -> Decision:
        """Decide whether the selected transfer may happen, given the answers so far."""
        is_call = transfer.edge is not None
        edge = transfer.edge or self._edge_of_function(transfer)
        if edge is None:
            return Decision()
        has_input = edge.has_input and is_call
        word = _note_in(self.calls[transfer.position].arguments) if has_input else ""
        if word is None:
            return Decision(denial=f"Not transferred to [{transfer.target}]: ", fault="HandoffInputError")
        if edge.needs_approval:
            asked = [question for question in self.asked.get(transfer.position, []) if _is_about_transfer(question)]
            if not asked or asked[0].key not in self.answered:
                return Decision(waits=True)
            approval = self.answered[asked[0].key]
            if not approval["approved"]:
                reason = approval.get("reason") or ""
                return Decision(denial=f"Not transferred to [{transfer.target}]: {reason}")
            if has_input and approval.get("arguments") is not None:
                word = _note_in(json.dumps(approval["arguments"]))
        if word is None:
            return Decision(denial=f"Not transferred to [{transfer.target}]: ", fault="HandoffInputError")
        return Decision(payload={"word": word} if has_input else None)

    def _edge_of_function(self, transfer: TransferRequest) -> EdgePlan | None:
        """Return the handoff to an agent that a function returned: the edge that code follows."""
        is_tree = self.role(transfer.position) != "ordinary" or transfer.target in self.team.tree_of(self.agent.name)
        return None if is_tree else next((edge for edge in self.agent.edges if edge.target == transfer.target), None)

    def outcome(self) -> Outcome:
        """Return the expected outcome of the turn; every call must have its result."""
        fault = self._fault()
        followed_transfer = self.followed_transfer()
        if followed_transfer is not None:
            decision = self.decision(followed_transfer)
            if decision.denial is not None:
                return Outcome(fault=fault or decision.fault)
            return Outcome(transfer=followed_transfer, payload=decision.payload, fault=fault)
        if self.transfer_requests():
            return Outcome(error="TransferError")
        exits = [_final_result(self.calls[position].arguments) for position in self.positions("exit")]
        valid = [result for result in exits if result is not None]
        if valid:
            return Outcome(exit=valid[-1], fault=fault)
        direct = self.direct_position()
        if direct is not None:
            return Outcome(answer=self.results[direct].content, fault=fault)
        return Outcome(stop=self.stop_content(), fault=fault)

    def stop_content(self) -> Content | None:
        """Return the answer that the agent's `tool_use_behavior` makes of the results; None if it asks again."""
        results = [self.results[position] for position in self.positions("ordinary")]
        fitting = [each for each in results if not each.is_error]
        match self.agent.behavior:
            case "run_again":
                return None
            case "stop_on_first":
                return fitting[0].content if fitting else None
            case "stop_at":
                named = [each for each in fitting if each.tool_name == self.agent.tools[0].name]
                return named[0].content if named else None
            case "function":
                return f"{len(results)} results" if len(results) % 2 else None

    def direct_position(self) -> int | None:
        """Return the position of the last call whose result is the answer of the turn."""
        final = [position for position in self.positions("ordinary") if self.expected_result(position).is_final]
        return final[-1] if final else None

    def check_result(self, position: int, result: ToolReturned) -> None:
        """Assert that a call got the expected result."""
        call, role = self.calls[position], self.role(position)
        text = text_of(result.content)
        assert (result.call_id, result.tool_name) == (call.id, call.name)
        if role in ("unknown", "unavailable"):
            assert result.is_error
            assert result.is_unknown_tool is (role == "unknown")
            assert all(f"`{name}`" in text for name in self.team.tool_names(self.agent.name)), text
        elif role == "disabled":
            assert result.is_error
        elif role == "refused":
            assert result.is_error
            assert all(f"`{name}`" in text for name in self.team.tree_of(self.agent.name)), text
        elif role == "exit":
            ends = self._ends_run(position)
            assert (result.is_error, result.is_final) == (not ends, ends)
        elif role == "ordinary" and self.returned_agent(position) is None:
            expected_result = self.expected_result(position)
            assert not expected_result.waits
            assert not expected_result.raises
            assert (result.is_error, result.is_final) == (expected_result.is_error, expected_result.is_final)
            assert text.startswith(expected_result.text), (text, expected_result)
        else:
            self._check_transfer(position, result, text)

    def _ends_run(self, position: int) -> bool:
        """Return whether the call at this position is an exit that happened."""
        is_valid = self.role(position) == "exit" and _final_result(self.calls[position].arguments) is not None
        return is_valid and self.outcome().exit is not None

    def _check_transfer(self, position: int, result: ToolReturned, text: str) -> None:
        followed_transfer = self.followed_transfer()
        if followed_transfer is not None and followed_transfer.position == position:
            decision = self.decision(followed_transfer)
            assert not decision.waits
            assert result.is_error is (decision.denial is not None)
            assert text == followed_transfer.text if decision.denial is None else text.startswith(decision.denial)
        else:
            assert result.is_error
            assert text.startswith("Not transferred")
            assert followed_transfer is None or f"[{followed_transfer.target}]" in text

    def shows_input(self, outcome: Outcome) -> bool:
        """Return whether the target reads the input of the transfer in a message, because no callback takes it."""
        edge = outcome.transfer.edge if outcome.transfer is not None else None
        return edge is not None and outcome.payload is not None and not edge.calls_back

    def lines(self) -> list[HistoryLine]:
        """Return the history lines of the turn: the message, then the results in the order of the calls."""
        outcome, author = self.outcome(), self.agent.name
        followed_transfer = outcome.transfer
        followed = {followed_transfer.position} if followed_transfer is not None else set[int]()
        unread = {transfer.position for transfer in self.transfer_requests()} - followed | {
            *self.positions("refused", "disabled"),
            *filter(self._ends_run, range(len(self.calls))),
        }
        if self.shows_input(outcome):
            # A message of its own tells the input, instead of the call and its result.
            unread |= followed
        direct = self.direct_position() if outcome.answer is not None else None
        message = self.response.message
        response = HistoryLine(
            message,
            author,
            self.activation,
            _without_calls(message, unread),
            _without_calls(message, unread | followed),
        )
        results: list[HistoryLine] = []
        for position in range(len(self.calls)):
            result: Message = self.results[position].message
            if position == direct:
                # The agent says it when it ends, and everyone reads it there.
                result = replace(result, content=SHOWN_AS_ANSWER)
            later = None if position in unread else result
            bare = None if position in unread | followed else result
            results.append(HistoryLine(result, author, self.activation, later, bare))
        return [response, *results]

    def _fault(self) -> str | None:
        faulty = self.positions("refused", "disabled", "unknown", "unavailable")
        if not faulty:
            return None
        return "UnknownToolError" if self.role(faulty[0]) in ("unknown", "unavailable") else "TransferError"

    def _tree_target(self, call: ToolCall) -> str | None:
        transfer = _object_in(call.arguments).get("agent_name")
        return transfer if transfer in self.team.tree_of(self.agent.name) else None


def _expected_result(tool: ToolPlan, word: str, replies: Sequence[Any]) -> ExpectedResult:
    match tool.kind:
        case "failing":
            return ExpectedResult(
                word, f"tool `{tool.name}` failed: ValueError: {tool.name} broke {word}", is_error=True
            )
        case "refusing":
            return ExpectedResult(word, f"{tool.name} will not {word}", is_error=True)
        case "raising":
            return ExpectedResult(word, raises=True)
        case "handing":
            return ExpectedResult(word, returned_agent=tool.target)
        case "asking":
            wanted = 2 if word == "twice" else 1
            return ExpectedResult(word, f"{tool.name} heard {json.dumps(replies)}", waits=len(replies) < wanted)
        case "stepping":
            return ExpectedResult(word, f"{tool.name} heard {json.dumps([word.upper(), *replies])}", waits=not replies)
        case _:
            return ExpectedResult(word, f"{tool.name} did {word}", is_final=tool.kind == "direct")


def _expected_after_approval(tool: ToolPlan, word: str, approval: dict[str, Any]) -> ExpectedResult:
    if not approval["approved"]:
        reason = approval.get("reason") or ""
        text = f"This call of `{tool.name}` was not approved"
        return ExpectedResult(None, f"{text}: {reason}" if reason else text, is_error=True)
    edited = approval.get("arguments")
    if edited is None:
        return _expected_result(tool, word, ())
    changed = _word_in(json.dumps(edited))
    if changed is None:
        return ExpectedResult(None, f"The arguments of `{tool.name}` do not fit", is_error=True)
    return _expected_result(tool, changed, ())


def _is_about_transfer(question: InterruptRaised) -> bool:
    return "handoff" in payload_fields(question.payload)


def _object_in(arguments: str) -> dict[str, Any]:
    try:
        given: Any = json.loads(arguments)
    except ValueError:
        return {}
    return cast(dict[str, Any], given) if isinstance(given, dict) else {}


def _word_in(arguments: str) -> str | None:
    if arguments.strip() in ("", "{}"):
        return DEFAULT_WORD
    given = _object_in(arguments)
    return given["word"] if set(given) == {"word"} and isinstance(given["word"], str) else None


def _note_in(arguments: str) -> str | None:
    word = _object_in(arguments).get("word")
    return word if isinstance(word, str) else None


def _final_result(arguments: str) -> str | None:
    result = _object_in(arguments).get("final_result")
    return result if isinstance(result, str) else None


def _assistant(target: str) -> str:
    return json.dumps({"assistant": target}, ensure_ascii=False, separators=(",", ":"))


def _without_calls(message: AssistantMessage, removed: set[int]) -> AssistantMessage | None:
    calls = tuple(call for position, call in enumerate(message.tool_calls) if position not in removed)
    if calls == message.tool_calls:
        return message
    has_content = bool(calls or text_of(message.content) or media_of(message.content))
    return AssistantMessage(message.content, calls, message.reasoning) if has_content else None
