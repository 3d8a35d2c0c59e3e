"""The wording of values and types in error messages."""

from typing import Any

import pytest

from batonkit import Agent
from batonkit._wording import misspelled, nearest, quote_names, show, type_of, with_article
from batonkit.messages import UserMessage


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Agent("A"), "an Agent"),
        (3, "an int"),
        ("x", "a str"),
        (UserMessage("x"), "a UserMessage"),
        (None, "None"),
        (Agent, "the class Agent"),
    ],
)
def test_a_type_has_the_right_article(value: Any, wanted: str) -> None:
    assert type_of(value) == wanted


def test_names_and_suggestions() -> None:
    assert quote_names([]) == "nothing"
    assert quote_names(["A", "B"]) == "`A`, `B`"
    assert nearest("callr", ["caller", "x"]) == "; did you mean `caller`?"
    assert nearest(5, ["caller"]) == ""
    assert misspelled("content", ["contents", "role"]) == "; did you write `contents` instead?"
    assert misspelled("content", []) == ""
    assert with_article("Exit") == "an Exit"


class _Broken:
    """An object whose repr fails."""

    def __repr__(self) -> str:
        raise ValueError("no")


def test_any_value_can_be_shown_briefly() -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(100_000):
        inner["a"] = inner = {}
    for value in (deep, "x" * 10_000, [list(range(1000))] * 1000, _Broken(), 10**5000, "\ud800"):
        assert len(show(value)) < 1000
        show(value).encode()
    assert show("short") == "'short'"
