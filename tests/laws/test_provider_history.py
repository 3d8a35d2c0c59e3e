"""Whatever is put in or left out, what reaches a model is valid for every provider (T26)."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.conversations import messages, torn_conversations
from tests.laws.plans import Scenario
from tests.laws.play import Play, in_loop
from tests.laws.providers import objections
from tests.laws.strategies import scenarios

from baton.context import HistoryEntry
from baton.messages import AssistantMessage, Content, Message, ToolMessage, pair_calls_with_results


def _jumbled(picks: list[int]) -> Callable[[Sequence[HistoryEntry]], Sequence[Message]]:
    """A projection that leaves out, moves and, where a pick is there twice, repeats entries."""

    def project(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entries[pick % len(entries)].message for pick in picks] if entries else []

    return project


@given(scenario=scenarios(), picks=st.lists(st.integers(0, 12), max_size=12, unique=True))
def test_a_projection_that_drops_and_reorders(scenario: Scenario, picks: list[int]) -> None:
    note(repr(scenario))
    play = Play(scenario, projection=_shuffled(picks))
    in_loop(play.run())

    assert [objections(seen) for seen in play.voice.seen] == [[]] * len(play.voice.seen)


@given(scenario=scenarios(), picks=st.lists(st.integers(0, 12), max_size=12))
def test_a_projection_that_repeats(scenario: Scenario, picks: list[int]) -> None:
    note(repr(scenario))
    play = Play(scenario, projection=_jumbled(picks))
    in_loop(play.run())

    assert [objections(seen) for seen in play.voice.seen] == [[]] * len(play.voice.seen)


def _shuffled(picks: list[int]) -> Callable[[Sequence[HistoryEntry]], Sequence[Message]]:
    def project(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entries[pick].message for pick in picks if pick < len(entries)]

    return project


@given(scenario=scenarios(), given_messages=torn_conversations)
def test_an_input_that_is_torn_apart(scenario: Scenario, given_messages: list[Message]) -> None:
    note(repr(scenario))
    play = Play(scenario)
    in_loop(play.run(given_messages))

    assert [objections(seen) for seen in play.voice.seen] == [[]] * len(play.voice.seen)


@given(conversation=torn_conversations)
def test_pairs_are_made_of_what_is_torn_apart(conversation: list[Message]) -> None:
    whole = pair_calls_with_results(conversation)

    assert objections(whole) == []
    assert pair_calls_with_results(whole) == whole


@given(conversation=st.lists(messages, max_size=8))
def test_pairing_is_done_once_and_for_all(conversation: list[Message]) -> None:
    whole = pair_calls_with_results(conversation)

    assert pair_calls_with_results(whole) == whole


@given(conversation=torn_conversations)
def test_pairing_loses_nothing_but_what_is_empty_or_alone(conversation: list[Message]) -> None:
    whole = pair_calls_with_results(conversation)

    said = [message for message in conversation if not isinstance(message, ToolMessage) and not _is_empty(message)]
    assert [_gist(message) for message in whole if not isinstance(message, ToolMessage)] == list(map(_gist, said))
    results = [message for message in whole if isinstance(message, ToolMessage) and not message.is_error]
    given_results = [message for message in conversation if isinstance(message, ToolMessage)]
    assert not Counter(str(result.content) for result in results) - Counter(str(each.content) for each in given_results)


@given(conversation=torn_conversations)
def test_a_call_gets_the_first_result_after_it_that_is_left(conversation: list[Message]) -> None:
    numbered: list[Any] = [replace(message, content=f"{number}") for number, message in enumerate(conversation)]

    left = {number: message for number, message in enumerate(numbered) if isinstance(message, ToolMessage)}
    expected: list[Content] = []
    for number, message in enumerate(numbered):
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            fitting = [each for each in left if each > number and left[each].tool_call_id == call.id]
            expected.append(left.pop(fitting[0]).content if fitting else "The result of this call is not available.")

    assert [
        message.content for message in pair_calls_with_results(numbered) if isinstance(message, ToolMessage)
    ] == expected


def _gist(message: Message) -> object:
    """What is said, but for the ids of calls."""
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return type(message), message.content, [(call.name, call.arguments) for call in calls]


def _is_empty(message: Message) -> bool:
    return any("is empty" in objection for objection in objections([message]))
