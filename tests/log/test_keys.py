"""The functions that read keys invert those that make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.log import keys

NUMBERS = st.integers(1, 30)
POSITIONS = st.integers(0, 12)
WORDS = st.from_regex(r"[a-z]{2,8}", fullmatch=True)
PLACES = st.one_of(
    st.lists(POSITIONS, min_size=1, max_size=3).map(lambda numbers: ".".join(map(str, numbers))),
    WORDS,
)
OUTERMOST = NUMBERS.map(lambda hop: keys.activation("", hop))


def _responses(activations: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.builds(keys.response, activations, NUMBERS), st.builds(keys.item, activations, NUMBERS))


def _nested(activations: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return activations that run inside others: in steps, in tool calls, and as further attempts."""
    calls = st.builds(keys.call, _responses(activations), POSITIONS)
    flows = st.one_of(st.builds(keys.flow_at, activations, PLACES), st.builds(keys.flow_in_call, calls))
    return st.one_of(st.builds(keys.activation, flows, NUMBERS), st.builds(keys.attempt, activations, NUMBERS))


ACTIVATIONS = st.recursive(OUTERMOST, _nested, max_leaves=4)
RESPONSES = _responses(ACTIVATIONS)
EFFECTS = st.one_of(
    st.builds(keys.start, ACTIVATIONS),
    st.builds(keys.end, ACTIVATIONS),
    st.builds(keys.transfer, ACTIVATIONS),
    st.builds(keys.said, ACTIVATIONS, NUMBERS),
    st.builds(keys.step, ACTIVATIONS, WORDS, NUMBERS),
    st.builds(keys.interrupt, ACTIVATIONS, NUMBERS),
    RESPONSES,
)


def test_activations_are_numbered_in_their_flow() -> None:
    assert keys.activation("", 2) == "2"
    assert keys.activation(keys.flow_at("1", "2.1"), 3) == "1/2.1/3"
    assert keys.activation(keys.flow_in_call("1/m2.0"), 1) == "1/m2.0/1"
    assert keys.attempt("1/0/1", 2) == "1/0/1/mw:again/2"


def test_effects_are_named_in_their_activation() -> None:
    assert [keys.start("1"), keys.transfer("1"), keys.end("1")] == ["1/start", "1/to", "1/end"]
    assert keys.response("1", 2) == "1/m2"
    assert keys.item("1", 3) == "1/i3"
    assert keys.call("1/i3", 0) == "1/i3.0"
    assert keys.said("1", 1) == "1/say1"
    assert [keys.step("1", "pay", 1), keys.step("1", "pay", 2)] == ["1/step:pay", "1/step:pay#2"]
    assert keys.answer(keys.interrupt("1/m2.0", 1)) == "1/m2.0/ask1!"
    assert [keys.failure("1/0"), keys.dismissal("1/m2.0")] == ["1/0/failed", "1/m2.0/dismissed"]
    assert keys.hook("1", "start") == "1/hook:start"
    assert keys.inside("1/m2", "user1") == "1/m2/user1"
    assert keys.run_event("suspended", 7) == "suspended7"


def test_repeated_calls_of_next_have_their_own_scope() -> None:
    again = keys.repetition(keys.repetition("", 0, 1), 1, 2)
    assert keys.middleware("1/m2", "retry", again) == "1/m2/mw:retry@1.2"
    assert keys.next_result("1/m2/mw:retry@1.2", 3) == "1/m2/mw:retry@1.2/next3"


@given(ACTIVATIONS, PLACES, NUMBERS)
def test_a_step_of_a_workflow_knows_its_owner_and_flow(activation: str, place: str, hop: int) -> None:
    flow = keys.flow_at(activation, place)
    nested = keys.activation(flow, hop)
    assert keys.flow(nested) == flow
    assert keys.owner(nested) == activation
    assert keys.is_nested(nested)
    assert keys.depth(nested) == keys.depth(activation) + 1
    assert keys.name(keys.parent(nested)) == place
    assert keys.is_in_call(nested) == keys.is_in_call(activation)


@given(RESPONSES, POSITIONS, NUMBERS)
def test_an_agent_in_a_tool_call_knows_the_call_and_its_owner(response: str, position: int, hop: int) -> None:
    call = keys.call(response, position)
    nested = keys.activation(keys.flow_in_call(call), hop)
    assert keys.is_in_call(nested)
    assert keys.parent(nested) == call
    assert keys.owner(nested) == keys.parent(response)


@given(ACTIVATIONS, NUMBERS)
def test_a_further_attempt_belongs_to_the_first_one(activation: str, number: int) -> None:
    attempt = keys.attempt(activation, number)
    assert keys.owner(attempt) == activation
    assert keys.is_in_call(attempt) == keys.is_in_call(activation)


@given(OUTERMOST)
def test_activations_of_the_outermost_flow_have_no_owner(activation: str) -> None:
    assert not keys.is_nested(activation)
    assert (keys.flow(activation), keys.owner(activation)) == ("", "")
    assert keys.depth(activation) == 0


@given(RESPONSES, POSITIONS)
def test_a_call_knows_its_response(response: str, position: int) -> None:
    call = keys.call(response, position)
    assert keys.call_of(call) == (response, position)
    assert keys.is_in_calls_of(response, call)
    assert keys.is_in_calls_of(response, keys.inside(call, "ask1"))
    assert not keys.is_in_calls_of(response, response)


@given(RESPONSES, POSITIONS, WORDS)
def test_a_key_knows_the_calls_around_it(response: str, position: int, part: str) -> None:
    call = keys.call(response, position)
    around = keys.calls_around(response)
    assert keys.calls_around(call) == [*around, call]
    assert keys.calls_around(keys.inside(call, part)) == [*around, call]
    assert all(keys.contains(outer, call) for outer in around)


@given(ACTIVATIONS, NUMBERS)
def test_responses_and_items_are_told_apart(activation: str, number: int) -> None:
    response, item = keys.response(activation, number), keys.item(activation, number)
    assert keys.is_response(response)
    assert keys.item_number(item) == number
    assert not keys.is_response(item)
    assert keys.item_number(response) is None
    for other in (keys.call(response, 0), keys.call(item, 0), keys.said(activation, number)):
        assert not keys.is_response(other)
        assert keys.item_number(other) is None


@given(EFFECTS, WORDS)
def test_a_part_knows_its_scope_and_name(effect: str, part: str) -> None:
    key = keys.inside(effect, part)
    assert (keys.parent(key), keys.name(key)) == (effect, part)
    assert keys.ends_with(key, part)
    assert keys.has_part(key, part[:2])
    assert list(keys.ancestors(key)) == [effect, *keys.ancestors(effect)]
    assert all(keys.contains(outer, key) for outer in keys.ancestors(key))


@given(EFFECTS, EFFECTS)
def test_keys_inside_another_sort_between_its_bounds(outer: str, key: str) -> None:
    first, end = keys.bounds(outer)
    for each in (key, keys.inside(outer, key)):
        assert (first <= each < end) == keys.contains(outer, each)


@given(ACTIVATIONS, st.lists(st.lists(NUMBERS, min_size=1, max_size=3), unique_by=tuple))
def test_the_order_of_a_place_is_its_numbers(owner: str, places: list[list[int]]) -> None:
    nested = [keys.activation(keys.flow_at(owner, ".".join(map(str, place))), 1) for place in places]
    names = [keys.name(keys.parent(activation)) for activation in nested]
    assert [keys.place_order(name) for name in names] == [tuple(place) for place in places]


def test_places_with_words_keep_their_order_of_start() -> None:
    assert keys.place_order("review") == keys.place_order("draft") < keys.place_order("0")
    assert keys.place_order("2.1") == (2, 1)


@given(EFFECTS, WORDS, st.integers(0, 3), NUMBERS, NUMBERS)
def test_a_result_of_next_knows_the_response_and_the_middleware(
    effect: str, name: str, position: int, count: int, number: int
) -> None:
    scope = keys.middleware(effect, name, keys.repetition("", position, count))
    expected = (effect, name) if keys.is_response(effect) else None
    assert keys.next_of(keys.next_result(scope, number)) == expected
    assert keys.next_of(scope) is None


@given(RESPONSES, POSITIONS, NUMBERS)
def test_a_question_about_an_unknown_outcome_knows_the_call(response: str, position: int, attempt: int) -> None:
    call = keys.call(response, position)
    question = keys.interrupt(keys.unknown_outcome(call, attempt), 1)
    assert keys.call_with_unknown_outcome(question) == call
    assert keys.call_with_unknown_outcome(keys.interrupt(call, attempt)) is None
    assert keys.is_attempt_record(keys.intent(call, attempt))
    assert keys.is_attempt_record(keys.pause(call, attempt))
    assert not keys.is_attempt_record(keys.step(call, "intent", attempt))


@pytest.mark.parametrize(("text", "is_meant"), [("1/ask1", True), ("1/m2.0/ask", True), ("yes", False), ("ask", False)])
def test_texts_that_were_meant_to_be_interrupts_are_found(text: str, is_meant: bool) -> None:
    assert keys.looks_like_interrupt(text) == is_meant


def test_ids_of_calls_have_characters_that_providers_accept() -> None:
    assert keys.as_call_id(keys.call("1/2.1/1/m3", 0)) == "call_1_2_1_1_m3_0"
