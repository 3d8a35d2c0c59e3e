"""`help()`, `inspect.signature` and editors show the parameters of what users import."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, Unpack, get_args, get_origin, is_typeddict

import pytest
import typing_extensions
from tests.architecture.public import NOT_CONSTRUCTED, public_functions, public_objects

import batonkit
from batonkit import Agent, SequentialAgent, agent, handoff, tool
from batonkit.realtime import RealtimeAgent

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


def test_no_public_signature_has_private_parameters() -> None:
    functions = [
        *((name, value) for name, value in public_objects() if name.rpartition(".")[2] not in NOT_CONSTRUCTED),
        *((name, function) for name, function in public_functions() if not name.endswith("__")),
    ]
    private = {name: [each for each in _parameters(function) if each[0] == "_"] for name, function in functions}
    assert {name: names for name, names in private.items() if names} == {}


def _parameters(function: Any) -> list[str]:
    try:
        return [*inspect.signature(function).parameters]
    except ValueError:
        return []


@cache
def _source_of(value: Any) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return found


def _init_for_editors(cls: ast.ClassDef) -> ast.FunctionDef | None:
    """Return the `__init__` that a class declares, also one that only type checkers read."""
    guarded = [node for each in cls.body if isinstance(each, ast.If) for node in each.body]
    found = [node for node in [*cls.body, *guarded] if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return found[0] if found else None


def _shown_defaults(cls: type) -> Iterator[ast.expr]:
    """Yield the defaults that an editor shows for a class: of its `__init__`, or of its fields and its bases'."""
    for base in inspect.getmro(cls):
        if not base.__module__.startswith("batonkit."):
            continue
        source = _source_of(base)
        assert isinstance(source, ast.ClassDef)
        if (init := _init_for_editors(source)) is not None:
            yield from _defaults(init)
            return
        yield from (node.value for node in source.body if isinstance(node, ast.AnnAssign) and node.value is not None)


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    return [each for each in [*function.args.defaults, *function.args.kw_defaults] if each is not None]


def test_editors_show_no_cast_in_a_default() -> None:
    shown = {name: [*_shown_defaults(value)] for name, value in public_objects() if inspect.isclass(value)}
    for name, function in public_functions():
        original = inspect.unwrap(function)
        source = _source_of(original) if original.__code__.co_filename[0] != "<" else None
        if isinstance(source, ast.FunctionDef | ast.AsyncFunctionDef):
            shown[name] = _defaults(source)
    casts = {name for name, defaults in shown.items() for each in defaults if ast.unparse(each).startswith("cast(")}
    assert casts <= {"batonkit.agents.Agent"}


@pytest.mark.parametrize("cls", [RealtimeAgent])
def test_editors_show_the_parameters_that_a_dataclass_has(cls: type) -> None:
    source = _source_of(cls)
    assert isinstance(source, ast.ClassDef)
    init = _init_for_editors(source)
    assert init is not None
    keywords = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    shown = {each.arg: ast.literal_eval(default) for each, default in keywords if default is not None}
    real = inspect.signature(cls).parameters
    assert [each.arg for each in init.args.args] == ["self", "name"]
    assert shown == {name: each.default for name, each in real.items() if name != "name"}
