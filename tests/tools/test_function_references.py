"""The objects that a function refers to, so that a team finds the agents it may return."""

import sys
from collections.abc import Callable
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import pytest

from batonkit.tools import FunctionTool
from batonkit.tools.function import referenced_objects

THIS = sys.modules[__name__]


class Agent:
    """Stands for an agent: tools know nothing about them."""


weather, chat, unused = Agent(), Agent(), Agent()
BOARD = SimpleNamespace(chat=chat)


def by_global() -> Agent:
    return weather


def in_inner_code() -> list[Agent]:
    return [weather if turn else chat for turn in range(2)]


def in_module() -> Any:
    return THIS.weather


def by_default(to: Agent | None = None, *, other: Agent | None = None) -> Agent | None:
    return to or other


by_default.__defaults__ = (weather,)
by_default.__kwdefaults__ = {"other": chat}


class Desk:
    def __init__(self) -> None:
        self.weather_agent = weather
        self.unused = unused

    def hand_over(self) -> Agent:
        return self.weather_agent

    @property
    def danger(self) -> Agent:
        raise AssertionError("properties are not read")

    def careful(self) -> Agent:
        return self.danger

    def __call__(self) -> Agent:
        return self.weather_agent


def kept(function: Callable[[], Any]) -> Callable[[], Any]:
    @wraps(function)
    def wrapper() -> Any:
        return function() or chat

    return wrapper


def enclosing() -> Callable[[], Agent]:
    mine = weather

    def inner() -> Agent:
        return mine

    return inner


def not_yet() -> tuple[Callable[[], Agent], tuple[object, ...]]:
    def inner() -> Agent:
        return mine

    early = referenced_objects(inner)
    mine = weather
    return inner, early


def given(to: Agent, other: Agent) -> Agent:
    return to or other


@pytest.mark.parametrize(
    ("function", "agents"),
    [
        (by_global, {weather}),
        (in_inner_code, {weather, chat}),
        (in_module, {weather}),
        (enclosing(), {weather}),
        (kept(by_global), {weather, chat}),
        (partial(given, weather, other=chat), {weather, chat}),
        (Desk().hand_over, {weather}),
        (Desk(), {weather}),
        (partial(Desk().hand_over), {weather}),
        (Desk().careful, set[Agent]()),
    ],
)
def test_agents_are_found_wherever_they_are_named(function: Callable[..., Any], agents: set[Agent]) -> None:
    found = referenced_objects(FunctionTool[..., Any](function, name="t").function)
    assert {thing for thing in found if isinstance(thing, Agent)} == agents
    assert len({id(thing) for thing in found}) == len(found)


def test_defaults_are_found() -> None:
    def context(ctx: Any) -> None: ...

    class WithContext(FunctionTool[..., Any]):
        _injected = {"to": context, "other": context}

    found = referenced_objects(WithContext(by_default).function)
    assert weather in found
    assert chat in found


def test_a_name_without_a_value_yet_is_passed_over() -> None:
    inner, early = not_yet()
    assert weather not in early
    assert weather in referenced_objects(inner)


def test_objects_without_python_code_have_no_references() -> None:
    for thing in (len, "abc".upper, dict, 3, None, object()):
        assert referenced_objects(thing) == ()
