"""The same team in writing and live: for the same decisions the same transfers, tool results and hooks (R1, R4, R5).

A run in writing ends at the first answer, and a thread of such runs is compared with one conversation. The comparison
is exact but for this: results and hooks of calls that run at the same time are compared in the order of the calls; that
runs of a thread start and end, and their first and last agent with them, has no like within a conversation; and from
the second run on a thread reads nothing of the payloads of handoffs, so there only who is asked is compared, not what.
Of transfers that were not followed, agents in writing read nothing later, and a live model has heard of them: they are
left out of what models are asked with.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, note
from tests.laws.executions import run_in_loop
from tests.laws.live_stage import Ledger, Line, answer_to, live_runner, said_by, text_runner
from tests.laws.live_strategies import Visit, visits
from tests.laws.plans import ReplyPlan
from tests.laws.teams import Environment

from baton import BatonError, Runner, RunResult
from baton.events import AgentResponded, ControlTransferred, Delta, Event, InterruptRaised, ToolReturned
from baton.messages import AssistantMessage, Message, ToolMessage, is_empty
from baton.models import ModelRequest
from baton.realtime import RealtimeSession
from baton.testing import ScriptedModel, ScriptedRealtimeModel

_BORDERS = ("run starts", "run ends", "agent starts", "agent ends")


@dataclass
class Account:
    """What came of a visit."""

    happened: list[Line] = field(default_factory=list[Line])
    hooks: list[Line] = field(default_factory=list[Line])
    callbacks: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    said: tuple[Message, ...] = ()
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    ending: str = ""


class Lines:
    """What the model says: the next reply of this round, in the mouth of whoever is asked; then an answer."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._left: list[ReplyPlan] = []
        self._number = 0

    def begin(self, round: int) -> None:
        """The user has said something."""
        self._left = [*self._visit.rounds[round]]

    def say(self, request: ModelRequest) -> AssistantMessage:
        """The next of them."""
        self._number += 1
        reply = self._left.pop(0) if self._left else ReplyPlan(f"that is all {self._number}")
        return said_by(reply, self._visit.desk, request.agent, number=self._number)


@given(visit=visits())
def test_a_team_does_the_same_in_writing_and_live(visit: Visit) -> None:
    note(repr(visit))
    written = run_in_loop(_in_writing(visit))
    live = run_in_loop(_live(visit))

    event(f"ends {written.ending}")
    assert live.happened == written.happened
    assert live.callbacks == written.callbacks
    assert live.hooks == written.hooks
    assert live.ending == written.ending
    if len(visit.rounds) == 1:
        assert live.said == written.said
        assert live.values == written.values


async def _in_writing(visit: Visit) -> Account:
    stage, ledger, lines, account = Environment(), Ledger(), Lines(visit), Account()
    stage.has_open_gates = True
    runner = text_runner(visit.desk, stage, ScriptedModel([lines.say], cycle=True), ledger)
    hooks: list[list[Line]] = []
    undone: set[str] = set()
    for number in range(len(visit.rounds)):
        lines.begin(number)
        ledger.lines.clear()
        result, error = await _one_run(runner, f"r{number}", f"user says {number}")
        hooks.append([*ledger.lines])
        account.happened += _what_happened(result.events)
        undone |= _undone(result.events)
        account.said, account.values = result.messages, dict(result.values)
        account.ending = error or ("exit" if _has_exit(result.events) else "answer")
        if account.ending != "answer":
            break
    account.hooks = _comparable(_as_one_run(hooks), undone)
    account.callbacks = stage.callbacks
    return account


async def _one_run(runner: Runner[Any, Any], run_id: str, text: str) -> tuple[RunResult[Any], str]:
    live = runner.stream(text, thread="t", run_id=run_id)
    while True:
        with suppress(BatonError):
            await live._drive()
        if live.result.status != "suspended":
            error = live.result.error
            return live.result, "" if error is None else type(error).__name__
        questions = live._log.open_interrupts()
        live = runner.stream_resume(run_id, {id: answer_to(asked) for id, asked in questions.items()})


async def _live(visit: Visit) -> Account:
    stage, ledger, lines, account = Environment(), Ledger(), Lines(visit), Account()
    stage.has_open_gates = True
    model = ScriptedRealtimeModel([lines.say], cycle=True)
    session = live_runner(visit.desk, stage, model, ledger=ledger).connect(run_id="r0")
    with suppress(BatonError):
        async with session:
            events = aiter(session)
            for number in range(len(visit.rounds)):
                lines.begin(number)
                await session.send_text(f"user says {number}")
                if not await _is_answered(session, events):
                    break
    assert not model.complaints
    result = session.result
    account.happened = _what_happened(result.events)
    account.said, account.values = result.messages, dict(result.values)
    error = "" if result.error is None else type(result.error).__name__
    account.ending = error or ("exit" if _has_exit(result.events) else "answer")
    account.hooks = _comparable(ledger.lines, _undone(result.events))
    account.callbacks = stage.callbacks
    return account


async def _is_answered(session: RealtimeSession, events: Any) -> bool:
    """Go on until the model says something and calls nothing; False if the conversation ends before that."""
    happened: Event | Delta
    async for happened in events:
        if isinstance(happened, InterruptRaised):
            await session.answer(happened.key, answer_to(happened))
        elif isinstance(happened, AgentResponded) and not happened.message.tool_calls:
            return True
    return False


def _what_happened(events: Iterable[Event]) -> list[Line]:
    """Responses, results and transfers; results of one response in the order of its calls."""
    told: list[Line] = []
    for each in events:
        if isinstance(each, AgentResponded):
            # Which edges are closed matters only to calls.
            told.append(("said", each.agent, each.message, each.disabled_handoffs if each.message.tool_calls else ()))
        elif isinstance(each, ToolReturned):
            place = int(each.key.rsplit(".", 1)[1])
            facts = (
                each.call_id,
                each.tool_name,
                each.content,
                each.is_error,
                each.requested_agent,
                each.is_transfer_refused,
            )
            told.append(("returned", place, *facts, each.value_changes))
        elif isinstance(each, ControlTransferred):
            told.append(("transferred", each.source, each.target, each.call_id, each.payload, each.reason))
    return _in_order_of_calls(told, "returned")


def _in_order_of_calls(lines: Sequence[Line], kind: str) -> list[Line]:
    """The lines with neighbours of this kind sorted by what comes second; the order is kept for each of those."""
    ordered: list[Line] = []
    waiting: list[Line] = []
    for line in lines:
        if line[0] == kind:
            waiting.append(line)
            continue
        ordered += [*sorted(waiting, key=lambda each: each[1]), line]
        waiting = []
    return [*ordered, *sorted(waiting, key=lambda each: each[1])]


def _comparable(lines: Sequence[Line], undone: set[str]) -> list[Line]:
    """What models are asked with is compared up to the first answer, without transfers that were not followed."""
    is_first, told = True, list[Line]()
    for line in _in_order_of_calls(lines, "tool"):
        if line[0] == "is asked":
            told.append((*line[:2], _without(line[2], undone), *line[3:]) if is_first else line[:2])
        else:
            told.append(line)
        if line[0] == "has answered" and not line[2].tool_calls:
            is_first = False
    return told


def _undone(events: Iterable[Event]) -> set[str]:
    return {each.call_id for each in events if isinstance(each, ToolReturned) and each.is_transfer_refused}


def _without(messages: Iterable[Message], call_ids: set[str]) -> list[Message]:
    left: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = tuple([call for call in message.tool_calls if call.id not in call_ids])
            message = AssistantMessage(message.content, calls)
        if not (is_empty(message) or (isinstance(message, ToolMessage) and message.tool_call_id in call_ids)):
            left.append(message)
    return left


def _as_one_run(runs: Sequence[list[Line]]) -> list[Line]:
    """The hooks of the runs of a thread, without the borders between them."""
    joined: list[Line] = []
    for number, lines in enumerate(runs):
        own = list(lines)
        if number > 0:
            assert own[0][0] == "run starts"
            own = own[next(place for place, line in enumerate(own) if line[0] not in _BORDERS) :]
        if number < len(runs) - 1:
            while own[-1][0] in _BORDERS:
                own.pop()
        joined += own
    return joined


def _has_exit(events: Iterable[Event]) -> bool:
    return any(isinstance(each, ToolReturned) and each.tool_name == "exit" and not each.is_error for each in events)
