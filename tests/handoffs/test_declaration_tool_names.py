"""Tool names of handoffs: valid for all providers, stable, and different for different agents."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.handoffs import default_tool_name

VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("agent", "tool"),
    [
        ("Weather", "transfer_to_weather"),
        ("Billing Desk", "transfer_to_billing_desk"),
        ("  two \t words ", "transfer_to_two_words"),
        ("already_snake-case", "transfer_to_already_snake_case"),  # As in the OpenAI Agents SDK.
        ("a--b", "transfer_to_a__b"),
        ("full－width", "transfer_to_full_width"),
        ("Café Zürich", "transfer_to_cafe_zurich"),
        ("A1", "transfer_to_a1"),
    ],
)
def test_valid_names_are_kept(agent: str, tool: str) -> None:
    assert default_tool_name(agent) == tool


def test_dropped_characters_are_replaced_by_a_hash() -> None:
    service, sales = default_tool_name("客服"), default_tool_name("销售")
    assert service != sales
    assert VALID.fullmatch(service)
    assert VALID.fullmatch(sales)
    assert default_tool_name("Sales!") != default_tool_name("Sales")
    assert default_tool_name("Sales!") != default_tool_name("Sales?")


def test_long_names_are_shortened_and_stay_different() -> None:
    one, other = default_tool_name("x" * 80 + "a"), default_tool_name("x" * 80 + "b")
    assert one != other
    assert len(one) <= 64
    assert default_tool_name("y" * 52) == "transfer_to_" + "y" * 52
    assert len(default_tool_name("y" * 53)) <= 64


def test_tool_names_are_the_same_in_every_process() -> None:
    # Stable, so that a log can be replayed elsewhere.
    assert default_tool_name("客服") == "transfer_to_2557fd52"


@given(st.text(min_size=1).filter(str.strip))
def test_any_agent_name_gives_a_valid_tool_name(agent: str) -> None:
    assert VALID.fullmatch(default_tool_name(agent))


@given(st.lists(st.text(alphabet="ab客服 !_", min_size=1).filter(str.strip), min_size=2, max_size=2, unique=True))
def test_agents_with_the_same_tool_name_differ_only_in_spaces(agents: list[str]) -> None:
    # Other names that collide are refused when the team is compiled.
    one, other = agents
    if default_tool_name(one) == default_tool_name(other):
        assert re.sub(r"[\s_]+", "_", one.strip()) == re.sub(r"[\s_]+", "_", other.strip())
