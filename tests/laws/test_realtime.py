"""A team makes the same transfers, tool results and hook calls in text runs and in a realtime session.

A text run ends at the first reply without calls, so a thread of text runs is compared with one session. These
differences are expected:

- Results and hooks of concurrent calls are compared in the order of the calls.
- Within a session, runs and their first and last agents do not start and end.
- From the second run on, a thread has no inputs of handoffs, so the contents of requests are not compared.
- Text agents do not read later about transfers that were not followed, but a realtime model does, so these are removed
  from the requests.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, note
from tests.laws.executions import run_in_loop
from tests.laws.plans import ReplyPlan
from tests.laws.realtime_strategies import ConversationPlan, conversation_plans
from tests.laws.realtime_teams import (
    Entry,
    HookRecorder,
    answer_for,
    make_realtime_runner,
    make_text_runner,
    realtime_message_for,
)
from tests.laws.teams import Environment

from batonkit import BatonError, Runner, RunResult
from batonkit.log import AgentResponded, ControlTransferred, Delta, Event, InterruptRaised, ToolReturned
from batonkit.messages import AssistantMessage, Message, ToolMessage, is_empty
from batonkit.models import ModelRequest
from batonkit.realtime import RealtimeSession
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel

_START_AND_END = ("run starts", "run ends", "agent starts", "agent ends")


@dataclass
class Outcome:
    """The comparable outcome of a conversation."""

    events: list[Entry] = field(default_factory=list[Entry])
    hooks: list[Entry] = field(default_factory=list[Entry])
    callbacks: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    messages: tuple[Message, ...] = ()
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    ending: str = ""


class PlannedReplies:
    """Creates the planned replies of the current round for the requesting agent, then a text reply."""

    def __init__(self, plan: ConversationPlan) -> None:
        self._plan = plan
        self._remaining: list[ReplyPlan] = []
        self._number = 0

    def start_round(self, round: int) -> None:
        """Start the round of a user message."""
        self._remaining = [*self._plan.rounds[round]]

    def next_reply(self, request: ModelRequest) -> AssistantMessage:
        """Create the next reply."""
        self._number += 1
        reply = self._remaining.pop(0) if self._remaining else ReplyPlan(f"that is all {self._number}")
        return realtime_message_for(reply, self._plan.setup, request.agent, number=self._number)


@given(plan=conversation_plans())
def test_text_runs_and_realtime_sessions_have_the_same_outcome(plan: ConversationPlan) -> None:
    note(repr(plan))
    text = run_in_loop(_run_text(plan))
    realtime = run_in_loop(_run_realtime(plan))

    event(f"ends {text.ending}")
    assert realtime.events == text.events
    assert realtime.callbacks == text.callbacks
    assert realtime.hooks == text.hooks
    assert realtime.ending == text.ending
    if len(plan.rounds) == 1:
        assert realtime.messages == text.messages
        assert realtime.values == text.values


async def _run_text(plan: ConversationPlan) -> Outcome:
    environment, recorder, replies, outcome = Environment(), HookRecorder(), PlannedReplies(plan), Outcome()
    environment.has_open_gates = True
    runner = make_text_runner(plan.setup, environment, ScriptedModel([replies.next_reply], cycle=True), recorder)
    hooks: list[list[Entry]] = []
    hidden: set[str] = set()
    for number in range(len(plan.rounds)):
        replies.start_round(number)
        recorder.entries.clear()
        result, error = await _run_once(runner, f"r{number}", f"user says {number}")
        hooks.append([*recorder.entries])
        outcome.events += _comparable_events(result.events)
        hidden |= _hidden_calls(result.events)
        outcome.messages, outcome.values = result.messages, dict(result.values)
        outcome.ending = error or ("exit" if _has_exit(result.events) else "answer")
        if outcome.ending != "answer":
            break
    outcome.hooks = _comparable_hooks(_join_runs(hooks), hidden)
    outcome.callbacks = environment.callbacks
    return outcome


async def _run_once(runner: Runner[Any, Any], run_id: str, text: str) -> tuple[RunResult[Any], str]:
    stream = runner.stream(text, thread="t", run_id=run_id)
    while True:
        with suppress(BatonError):
            await stream._drive()
        if stream.result.status != "suspended":
            error = stream.result.error
            return stream.result, "" if error is None else type(error).__name__
        questions = stream._log.open_interrupts()
        stream = runner.stream_resume(run_id, {id: answer_for(interrupt) for id, interrupt in questions.items()})


async def _run_realtime(plan: ConversationPlan) -> Outcome:
    environment, recorder, replies, outcome = Environment(), HookRecorder(), PlannedReplies(plan), Outcome()
    environment.has_open_gates = True
    model = ScriptedRealtimeModel([replies.next_reply], cycle=True)
    session = make_realtime_runner(plan.setup, environment, model, recorder=recorder).connect(run_id="r0")
    with suppress(BatonError):
        async with session:
            events = aiter(session)
            for number in range(len(plan.rounds)):
                replies.start_round(number)
                await session.send_text(f"user says {number}")
                if not await _is_answered(session, events):
                    break
    assert not model.complaints
    result = session.result
    outcome.events = _comparable_events(result.events)
    outcome.messages, outcome.values = result.messages, dict(result.values)
    error = "" if result.error is None else type(result.error).__name__
    outcome.ending = error or ("exit" if _has_exit(result.events) else "answer")
    outcome.hooks = _comparable_hooks(recorder.entries, _hidden_calls(result.events))
    outcome.callbacks = environment.callbacks
    return outcome


async def _is_answered(session: RealtimeSession, events: Any) -> bool:
    """Answer interrupts until a reply without calls; return False if the session ends before that."""
    received: Event | Delta
    async for received in events:
        if isinstance(received, InterruptRaised):
            await session.answer(received.key, answer_for(received))
        elif isinstance(received, AgentResponded) and not received.message.tool_calls:
            return True
    return False


def _comparable_events(events: Iterable[Event]) -> list[Entry]:
    """Return responses, results and transfers, with results of one response in the order of its calls."""
    entries: list[Entry] = []
    for each in events:
        if isinstance(each, AgentResponded):
            # Disabled handoffs matter only for calls.
            entries.append(
                ("responded", each.agent, each.message, each.disabled_handoffs if each.message.tool_calls else ())
            )
        elif isinstance(each, ToolReturned):
            index = int(each.key.rsplit(".", 1)[1])
            fields = (
                each.call_id,
                each.tool_name,
                each.content,
                each.is_error,
                each.requested_agent,
                each.is_transfer_refused,
            )
            entries.append(("returned", index, *fields, each.value_changes))
        elif isinstance(each, ControlTransferred):
            entries.append(("transferred", each.source, each.target, each.call_id, each.payload, each.reason))
    return _sort_by_call(entries, "returned")


def _sort_by_call(entries: Sequence[Entry], kind: str) -> list[Entry]:
    """Sort consecutive entries of this kind by their second field; the sort is stable."""
    ordered: list[Entry] = []
    pending: list[Entry] = []
    for entry in entries:
        if entry[0] == kind:
            pending.append(entry)
            continue
        ordered += [*sorted(pending, key=lambda each: each[1]), entry]
        pending = []
    return [*ordered, *sorted(pending, key=lambda each: each[1])]


def _comparable_hooks(entries: Sequence[Entry], hidden: set[str]) -> list[Entry]:
    """Keep the messages of requests only up to the first reply without calls, and remove calls that text runs hide."""
    is_first, comparable = True, list[Entry]()
    for entry in _sort_by_call(entries, "tool"):
        if entry[0] == "model starts":
            comparable.append((*entry[:2], _without_calls(entry[2], hidden), *entry[3:]) if is_first else entry[:2])
        else:
            comparable.append(entry)
        if entry[0] == "model ends" and not entry[2].tool_calls:
            is_first = False
    return comparable


def _hidden_calls(events: Iterable[Event]) -> set[str]:
    """Return the calls that agents of text runs do not read, but that stay in the conversation of a live model.

    They are refused transfers, and followed ones whose input is a message of its own.
    """
    calls: set[str] = set()
    for each in events:
        match each:
            case ToolReturned(is_transfer_refused=True):
                calls.add(each.call_id)
            case ControlTransferred(shows_payload=True, call_id=str(call_id)):
                calls.add(call_id)
            case _:
                pass
    return calls


def _without_calls(messages: Iterable[Message], call_ids: set[str]) -> list[Message]:
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls = tuple([call for call in message.tool_calls if call.id not in call_ids])
            message = AssistantMessage(message.content, calls)
        if not (is_empty(message) or (isinstance(message, ToolMessage) and message.tool_call_id in call_ids)):
            kept.append(message)
    return kept


def _join_runs(runs: Sequence[list[Entry]]) -> list[Entry]:
    """Join the hook calls of the runs of a thread, without the starts and ends between them."""
    joined: list[Entry] = []
    for number, entries in enumerate(runs):
        run_entries = list(entries)
        if number > 0:
            assert run_entries[0][0] == "run starts"
            run_entries = run_entries[
                next(index for index, entry in enumerate(run_entries) if entry[0] not in _START_AND_END) :
            ]
        if number < len(runs) - 1:
            while run_entries[-1][0] in _START_AND_END:
                run_entries.pop()
        joined += run_entries
    return joined


def _has_exit(events: Iterable[Event]) -> bool:
    return any(isinstance(each, ToolReturned) and each.tool_name == "exit" and not each.is_error for each in events)
