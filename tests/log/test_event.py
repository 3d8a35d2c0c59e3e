"""Where an event comes from: origins and the paths they make."""

import pytest

from batonkit.log import AgentStarted, Origin, TextDelta
from batonkit.log.event import RUN_ORIGIN


def test_a_path_is_the_chain_of_those_who_led_there() -> None:
    a = Origin("1", "A")
    b = Origin("2", "B", a)
    again = Origin("3", "A", b)
    assert (a.path, b.path, again.path) == (("A",), ("A", "B"), ("A", "B", "A"))
    assert AgentStarted("3/start", again, 1.0).path == ("A", "B", "A")
    assert TextDelta(again, "x").path == ("A", "B", "A")
    assert TextDelta(again, "x").agent == "A"


def test_a_path_is_made_once() -> None:
    origin = Origin("2", "B", Origin("1", "A"))
    assert origin.path is origin.path


def test_a_long_path_is_no_recursion() -> None:
    origin = Origin("0", "A")
    for number in range(1, 20_000):
        origin = Origin(str(number), "A", origin)
    assert len(origin.path) == 20_000


def test_the_run_origin_has_no_agent() -> None:
    assert (RUN_ORIGIN.id, RUN_ORIGIN.agent, RUN_ORIGIN.path) == ("", "", ())


def test_origins_are_equal_by_activation_and_agent() -> None:
    assert Origin("1", "A") == Origin("1", "A")
    assert hash(Origin("1", "A")) == hash(Origin("1", "A"))
    assert Origin("1", "A") != Origin("2", "A")
    assert Origin("1", "A") != Origin("1", "B")
    assert Origin("1", "A") != "1"


def test_events_cannot_be_changed() -> None:
    event = AgentStarted("1/start", Origin("1", "A"), 1.0)
    with pytest.raises(AttributeError):
        event.timestamp = 2.0  # pyright: ignore[reportAttributeAccessIssue]


def test_a_place_has_the_agents_around_and_not_those_before() -> None:
    boss = Origin("2", "Boss", Origin("1", "Router"))
    inside = Origin("2/m1.0/1", "Clerk", boss)
    moved = Origin("2/m1.0/2", "Payer", inside)
    first = Origin("2/s1/1", "First", boss)
    second = Origin("2/s2/1", "Second", first)
    deep = Origin("2/s2/1/m3.1/1", "Deep", second)
    assert boss.place == ("Boss",)
    assert moved.place == ("Boss", "Payer")
    assert second.place == ("Boss", "Second")
    assert deep.place == ("Boss", "Second", "Deep")
