"""`help()`, `inspect.signature` and editors show the parameters of what users import."""

import inspect
from collections.abc import Iterator
from typing import Any, Unpack, get_args, get_origin, is_typeddict

import pytest
import typing_extensions
from tests.architecture.public import public_functions, public_objects

import batonkit
from batonkit import Agent, SequentialAgent, agent, handoff, tool

EXPORTS = {name: getattr(batonkit, name) for name in batonkit.__all__}
PROTOCOLS = {name for name, value in EXPORTS.items() if getattr(value, "_is_protocol", False)}
"""They are implemented, not constructed."""

OPEN_ENDED = {
    "batonkit.agents.Agent.clone": "the arguments of the class",
    "batonkit.handoffs.Handoff.clone": "the arguments of the class",
    "batonkit.handoffs.HandoffInputData.clone": "the arguments of the class",
    "batonkit.realtime.RealtimeAgent.clone": "the arguments of the class",
    "batonkit.realtime.RealtimeAgent.as_tool": "none: it only raises an error",
    "batonkit.serve.serve": "options of uvicorn",
    "batonkit.serve.serve_in_background": "options of uvicorn",
    "batonkit.testing.call": "the arguments of the called tool",
    "batonkit.tools.FunctionTool.__call__": "the arguments of the function",
    "batonkit.tools.ToolFunction.__call__": "the arguments of the function",
    "batonkit.swarm.Swarm.__init_subclass__": "the arguments of a class statement",
}
"""Functions that take any keyword, and what these are."""


@pytest.mark.parametrize("name", sorted({*EXPORTS} - PROTOCOLS))
def test_a_signature_hides_no_parameters(name: str) -> None:
    parameters = inspect.signature(EXPORTS[name]).parameters.values()
    assert not [str(each) for each in parameters if each.kind is each.VAR_KEYWORD]
    assert all(each.name != "args" for each in parameters if each.kind is each.VAR_POSITIONAL)


def _hidden(function: Any) -> Iterator[str]:
    """Yield the parameters that do not say which arguments they take."""
    for each in inspect.signature(function).parameters.values():
        is_typed = get_origin(each.annotation) in (Unpack, typing_extensions.Unpack)
        if each.kind is each.VAR_KEYWORD and not (is_typed and _names_keywords(get_args(each.annotation)[0])):
            yield str(each)
        if each.kind is each.VAR_POSITIONAL and each.name in ("args", "arguments"):
            yield str(each)


def _names_keywords(kind: Any) -> bool:
    return is_typeddict(get_origin(kind) or kind)


def test_no_public_function_or_method_hides_its_parameters() -> None:
    functions = {name: [*_hidden(function)] for name, function in public_functions()}
    assert {name: hidden for name, hidden in functions.items() if hidden and name not in OPEN_ENDED} == {}
    assert [name for name in OPEN_ENDED if not functions.get(name)] == [], "functions that hide nothing any more"


def test_no_public_class_hides_its_parameters() -> None:
    classes = [
        (name, value)
        for name, value in public_objects()
        if inspect.isclass(value) and not is_typeddict(value) and not getattr(value, "_is_protocol", False)
    ]
    assert {name: hidden for name, value in classes if (hidden := [*_hidden(value)])} == {}
    assert all(inspect.getdoc(value) for _, value in classes)


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
