"""The handoff contract for one turn, written once more without a look at how Baton does it (DESIGN §4)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from tests.laws.plans import DEFAULT_WORD, AgentPlan, EdgePlan, RunPlan, TeamPlan, ToolPlan
from tests.laws.readings import Line

from baton.events import AgentResponded, InterruptRaised, ToolReturned
from baton.messages import AssistantMessage, Message, ToolCall, media_of, text_of

Role: TypeAlias = Literal["ordinary", "wish", "refused", "disabled", "exit", "unknown"]


@dataclass(frozen=True)
class Deed:
    """What an ordinary call must come to. `word` is what the tool must have been called with; None: it must not run."""

    word: str | None
    told: str = ""
    is_error: bool = False
    is_final: bool = False
    waits: bool = False
    raises: bool = False
    hands_to: str | None = None


@dataclass(frozen=True)
class Wish:
    """A transfer that a call asks for."""

    position: int
    target: str
    told: str
    edge: EdgePlan | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether the transfer that would be followed may happen: not if a person says no, or if its input does not fit."""

    waits: bool = False
    denial: str | None = None
    fault: str | None = None
    payload: dict[str, str] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a turn must come to: a transfer, an end with an output, an error, or another turn (none of them)."""

    wish: Wish | None = None
    payload: dict[str, str] | None = None
    exit: str | None = None
    answer: str | None = None
    error: str | None = None
    fault: str | None = None


@dataclass
class Turn:
    """One response with calls, and what is known of them so far."""

    team: TeamPlan
    agent: AgentPlan
    run: RunPlan
    said: AgentResponded
    activation: int
    results: dict[int, ToolReturned] = field(default_factory=dict[int, ToolReturned])
    asked: dict[int, list[InterruptRaised]] = field(default_factory=dict[int, list[InterruptRaised]])
    answered: dict[str, Any] = field(default_factory=dict[str, Any])
    handed: set[int] = field(default_factory=set[int])
    """The positions of functions that have given an agent."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.said.message.tool_calls

    def position_of(self, call_id: str) -> int:
        """Where in the response this call stands."""
        return [call.id for call in self.calls].index(call_id)

    def role(self, position: int) -> Role:
        """What kind of call it is."""
        call = self.calls[position]
        if self.agent.tool(call.name) is not None:
            return "ordinary"
        edge = self.agent.edge(call.name)
        if edge is not None:
            return "wish" if edge.is_enabled else "disabled"
        if call.name == "transfer_to_agent" and self.team.tree_of(self.agent.name):
            return "wish" if self._tree_wish(call) is not None else "refused"
        return "exit" if call.name == "exit" and self.agent.has_exit else "unknown"

    def positions(self, *roles: Role) -> list[int]:
        """The calls of these kinds."""
        return [position for position in range(len(self.calls)) if self.role(position) in roles]

    def deed(self, position: int) -> Deed:
        """What becomes of an ordinary call, as far as the outside has answered."""
        call = self.calls[position]
        tool = self.agent.tool(call.name)
        assert tool is not None
        word = _word_in(call.arguments)
        if word is None:
            return Deed(None, f"The arguments of `{tool.name}`", is_error=True)
        asked = self.asked.get(position, [])
        if any(question.key not in self.answered for question in asked):
            return Deed(None, waits=True)
        replies = [self.answered[question.key] for question in asked]
        if tool.kind != "approved" or not replies:
            return _deed_of(tool, word, replies)
        return _approved_deed(tool, word, replies[0])

    def hands_to(self, position: int) -> str | None:
        """The agent that this call's function returns."""
        return self.deed(position).hands_to if self.role(position) == "ordinary" else None

    def is_settled(self, position: int) -> bool:
        """Whether an ordinary call has come to its end."""
        return position in self.results or position in self.handed

    @property
    def are_tools_done(self) -> bool:
        return all(self.is_settled(position) for position in self.positions("ordinary"))

    def wishes(self) -> list[Wish]:
        """The transfers that are asked for and could be followed, in the order of the calls."""
        found: list[Wish] = []
        for position in self.positions("wish", "ordinary"):
            call = self.calls[position]
            edge = self.agent.edge(call.name)
            if self.role(position) == "ordinary":
                target = self.hands_to(position)
                if target is not None:
                    found.append(Wish(position, target, _assistant(target)))
            elif edge is not None:
                found.append(Wish(position, edge.target, _assistant(edge.target), edge))
            else:
                target = self._tree_wish(call) or ""
                found.append(Wish(position, target, f"successfully transferred to agent [{target}]"))
        return found

    def winner(self) -> Wish | None:
        """The transfer that must be followed."""
        wishes = self.wishes()
        if len(wishes) < 2:
            return wishes[0] if wishes else None
        return {"first": wishes[0], "last": wishes[-1], "error": None}[self.run.multiple]

    def verdict(self, wish: Wish) -> Verdict:
        """Whether the transfer that would be followed may happen, as far as the outside has answered."""
        edge = wish.edge
        if edge is None:
            return Verdict()
        word = _note_in(self.calls[wish.position].arguments) if edge.has_input else ""
        if word is None:
            return Verdict(denial=f"Not transferred to [{wish.target}]: ", fault="HandoffInputError")
        if edge.needs_approval:
            asked = self.asked.get(wish.position, [])
            if not asked or asked[0].key not in self.answered:
                return Verdict(waits=True)
            approval = self.answered[asked[0].key]
            if not approval["approved"]:
                reason = approval.get("reason") or ""
                return Verdict(denial=f"Not transferred to [{wish.target}]: {reason}")
            if edge.has_input and approval.get("arguments") is not None:
                word = _note_in(json.dumps(approval["arguments"]))
        if word is None:
            return Verdict(denial=f"Not transferred to [{wish.target}]: ", fault="HandoffInputError")
        return Verdict(payload={"word": word} if edge.has_input else None)

    def outcome(self) -> Outcome:
        """What the turn must come to, now that every call has its result."""
        fault = self._fault()
        winner = self.winner()
        if winner is not None:
            verdict = self.verdict(winner)
            if verdict.denial is not None:
                return Outcome(fault=fault or verdict.fault)
            return Outcome(wish=winner, payload=verdict.payload, fault=fault)
        if self.wishes():
            return Outcome(error="TransferError")
        exits = [_final_result(self.calls[position].arguments) for position in self.positions("exit")]
        valid = [result for result in exits if result is not None]
        if valid:
            return Outcome(exit=valid[-1], fault=fault)
        direct = self.direct_position()
        return Outcome(answer=None if direct is None else text_of(self.results[direct].content), fault=fault)

    def direct_position(self) -> int | None:
        """The call whose result is the answer, if nothing else comes before it."""
        final = [position for position in self.positions("ordinary") if self.deed(position).is_final]
        return final[-1] if final else None

    def check_result(self, position: int, result: ToolReturned) -> None:
        """Assert that a call was told what it must be told."""
        call, role = self.calls[position], self.role(position)
        text = text_of(result.content)
        assert (result.call_id, result.tool_name) == (call.id, call.name)
        if role == "unknown":
            assert result.is_error
            assert all(f"`{name}`" in text for name in self.team.tool_names(self.agent.name)), text
        elif role == "disabled":
            assert result.is_error
        elif role == "refused":
            assert result.is_error
            assert all(f"`{name}`" in text for name in self.team.tree_of(self.agent.name)), text
        elif role == "exit":
            ends = self.outcome().exit is not None and _final_result(call.arguments) is not None
            assert result.is_error is not ends
        elif role == "ordinary" and self.hands_to(position) is None:
            deed = self.deed(position)
            assert not deed.waits
            assert not deed.raises
            assert (result.is_error, result.is_final) == (deed.is_error, deed.is_final)
            assert text.startswith(deed.told), (text, deed)
        else:
            self._check_transfer(position, result, text)

    def _check_transfer(self, position: int, result: ToolReturned, text: str) -> None:
        winner = self.winner()
        if winner is not None and winner.position == position:
            verdict = self.verdict(winner)
            assert not verdict.waits
            assert result.is_error is (verdict.denial is not None)
            assert text == winner.told if verdict.denial is None else text.startswith(verdict.denial)
        else:
            assert result.is_error
            assert text.startswith("Not transferred")
            assert winner is None or f"[{winner.target}]" in text

    def lines(self) -> list[Line]:
        """The turn as the history must have it: the message, then the results in the order of the calls."""
        outcome, author = self.outcome(), self.agent.name
        winner = outcome.wish
        followed = {winner.position} if winner is not None else set[int]()
        undone = {wish.position for wish in self.wishes()} - followed | {*self.positions("refused", "disabled")}
        direct = self.direct_position() if outcome.answer is not None else None
        message = self.said.message
        said = Line(message, author, self.activation, _left(message, undone), _left(message, undone | followed))
        told: list[Line] = []
        for position in range(len(self.calls)):
            result: Message = self.results[position].message
            later = None if position in undone else result
            bare = None if position in undone | followed else result
            told.append(Line(result, author, self.activation, later, bare, is_answer=position == direct))
        return [said, *told]

    def _fault(self) -> str | None:
        faulty = self.positions("refused", "disabled", "unknown")
        if not faulty:
            return None
        return "UnknownToolError" if self.role(faulty[0]) == "unknown" else "TransferError"

    def _tree_wish(self, call: ToolCall) -> str | None:
        wish = _object_in(call.arguments).get("agent_name")
        return wish if wish in self.team.tree_of(self.agent.name) else None


def _deed_of(tool: ToolPlan, word: str, replies: Sequence[Any]) -> Deed:
    match tool.kind:
        case "failing":
            return Deed(word, f"tool `{tool.name}` failed: ValueError: {tool.name} broke {word}", is_error=True)
        case "refusing":
            return Deed(word, f"{tool.name} will not {word}", is_error=True)
        case "raising":
            return Deed(word, raises=True)
        case "handing":
            return Deed(word, hands_to=tool.target)
        case "asking":
            wanted = 2 if word == "twice" else 1
            return Deed(word, f"{tool.name} heard {json.dumps(replies)}", waits=len(replies) < wanted)
        case "stepping":
            return Deed(word, f"{tool.name} heard {json.dumps([word.upper(), *replies])}", waits=not replies)
        case _:
            return Deed(word, f"{tool.name} did {word}", is_final=tool.kind == "direct")


def _approved_deed(tool: ToolPlan, word: str, approval: dict[str, Any]) -> Deed:
    if not approval["approved"]:
        reason = approval.get("reason") or ""
        told = f"This call of `{tool.name}` was not approved"
        return Deed(None, f"{told}: {reason}" if reason else told, is_error=True)
    edited = approval.get("arguments")
    if edited is None:
        return _deed_of(tool, word, ())
    changed = _word_in(json.dumps(edited))
    if changed is None:
        return Deed(None, "The person who approved this call changed its arguments", is_error=True)
    return _deed_of(tool, changed, ())


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


def _left(message: AssistantMessage, removed: set[int]) -> AssistantMessage | None:
    calls = tuple(call for position, call in enumerate(message.tool_calls) if position not in removed)
    if calls == message.tool_calls:
        return message
    says_something = bool(calls or text_of(message.content) or media_of(message.content))
    return AssistantMessage(message.content, calls, message.reasoning) if says_something else None
