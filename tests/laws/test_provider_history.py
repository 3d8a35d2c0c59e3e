"""Every model request is valid for every provider, whatever the input and the projection are."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, note
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.conversations import messages, unpaired_conversations
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import Scenario
from tests.laws.providers import objections
from tests.laws.strategies import scenarios

from batonkit.log import HistoryEntry
from batonkit.messages import AssistantMessage, Content, Message, ToolMessage, is_empty, pair_calls_with_results
from batonkit.messages.messages import PairingCheck


def _with_repeats(picks: list[int]) -> Callable[[Sequence[HistoryEntry]], Sequence[Message]]:
    """Return a projection that drops and reorders entries, and repeats those that are picked twice."""

    def project(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entries[pick % len(entries)].message for pick in picks] if entries else []

    return project


@given(scenario=scenarios(), picks=st.lists(st.integers(0, 12), max_size=12, unique=True))
def test_requests_are_valid_when_a_projection_drops_and_reorders_entries(scenario: Scenario, picks: list[int]) -> None:
    note(repr(scenario))
    execution = Execution(scenario, projection=_reordered(picks))
    run_in_loop(execution.run())

    assert [objections(seen) for seen in execution.model.seen] == [[]] * len(execution.model.seen)


@given(scenario=scenarios(), picks=st.lists(st.integers(0, 12), max_size=12))
def test_requests_are_valid_when_a_projection_repeats_entries(scenario: Scenario, picks: list[int]) -> None:
    note(repr(scenario))
    execution = Execution(scenario, projection=_with_repeats(picks))
    run_in_loop(execution.run())

    assert [objections(seen) for seen in execution.model.seen] == [[]] * len(execution.model.seen)


def _reordered(picks: list[int]) -> Callable[[Sequence[HistoryEntry]], Sequence[Message]]:
    def project(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entries[pick].message for pick in picks if pick < len(entries)]

    return project


@given(scenario=scenarios(), given_messages=unpaired_conversations)
def test_requests_are_valid_when_the_input_has_unpaired_calls_and_results(
    scenario: Scenario, given_messages: list[Message]
) -> None:
    # An input without content is refused before anything runs.
    assume(not given_messages or not all(is_empty(message) for message in given_messages))
    note(repr(scenario))
    execution = Execution(scenario)
    run_in_loop(execution.run(given_messages))

    assert [objections(seen) for seen in execution.model.seen] == [[]] * len(execution.model.seen)


@given(conversation=unpaired_conversations)
def test_pairing_makes_a_conversation_valid(conversation: list[Message]) -> None:
    paired = pair_calls_with_results(conversation)

    assert objections(paired) == []
    assert pair_calls_with_results(paired) == paired


@given(conversation=st.lists(messages, max_size=8))
def test_pairing_is_idempotent(conversation: list[Message]) -> None:
    paired = pair_calls_with_results(conversation)

    assert pair_calls_with_results(paired) == paired


@given(
    conversation=unpaired_conversations | unpaired_conversations.map(pair_calls_with_results),
    cuts=st.lists(st.integers(0, 8), max_size=3).map(sorted),
)
def test_a_conversation_that_pairing_would_not_change_is_accepted_in_pieces(
    conversation: list[Message], cuts: list[int]
) -> None:
    check = PairingCheck()
    pieces = [conversation[start:stop] for start, stop in pairwise([0, *cuts, max(len(conversation), 8)])]
    accepted = all(map(check.accept, pieces)) and not check.open_calls

    # A result without a call is dropped, so that every message is looked at one by one.
    paired = pair_calls_with_results([*conversation, ToolMessage("a call that does not exist", "any", "")])
    assert accepted == (paired == conversation)


@given(conversation=unpaired_conversations)
def test_pairing_drops_only_empty_messages_and_unpaired_results(conversation: list[Message]) -> None:
    paired = pair_calls_with_results(conversation)

    kept = [message for message in conversation if not isinstance(message, ToolMessage) and not _is_empty(message)]
    assert [_without_ids(message) for message in paired if not isinstance(message, ToolMessage)] == list(
        map(_without_ids, kept)
    )
    results = [message for message in paired if isinstance(message, ToolMessage) and not message.is_error]
    given_results = [message for message in conversation if isinstance(message, ToolMessage)]
    assert not Counter(str(result.content) for result in results) - Counter(str(each.content) for each in given_results)


@given(conversation=unpaired_conversations)
def test_a_call_is_paired_with_the_first_unused_result_after_it(conversation: list[Message]) -> None:
    numbered: list[Any] = [replace(message, content=f"{number}") for number, message in enumerate(conversation)]

    unused = {number: message for number, message in enumerate(numbered) if isinstance(message, ToolMessage)}
    expected: list[Content] = []
    for number, message in enumerate(numbered):
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            matching = [each for each in unused if each > number and unused[each].tool_call_id == call.id]
            expected.append(
                unused.pop(matching[0]).content if matching else "The result of this call is not available."
            )

    assert [
        message.content for message in pair_calls_with_results(numbered) if isinstance(message, ToolMessage)
    ] == expected


def _without_ids(message: Message) -> object:
    """Return the message's type, content and calls without their ids."""
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return type(message), message.content, [(call.name, call.arguments) for call in calls]


def _is_empty(message: Message) -> bool:
    return any("is empty" in objection for objection in objections([message]))
