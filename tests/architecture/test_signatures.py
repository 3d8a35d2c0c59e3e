"""`help()`, `inspect.signature` and editors show the parameters of what users import."""

import inspect
from typing import Any

import pytest

import batonkit
from batonkit import Agent, SequentialAgent, agent, handoff, tool

EXPORTS = {name: getattr(batonkit, name) for name in batonkit.__all__}
PROTOCOLS = {name for name, value in EXPORTS.items() if getattr(value, "_is_protocol", False)}
"""They are implemented, not constructed."""


@pytest.mark.parametrize("name", sorted({*EXPORTS} - PROTOCOLS))
def test_a_signature_hides_no_parameters(name: str) -> None:
    parameters = inspect.signature(EXPORTS[name]).parameters.values()
    assert not [str(each) for each in parameters if each.kind is each.VAR_KEYWORD]
    assert all(each.name != "args" for each in parameters if each.kind is each.VAR_POSITIONAL)


@pytest.mark.parametrize(
    ("function", "parameter", "default"),
    [
        (Agent, "max_turns", 20),
        (SequentialAgent, "description", ""),
        (agent, "description", ""),
        (handoff, "until", "answered"),
        (tool, "effect", "idempotent"),
    ],
)
def test_a_signature_has_the_defaults(function: Any, parameter: str, default: Any) -> None:
    assert inspect.signature(function).parameters[parameter].default == default
