"""The types of Swarm programs."""

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from batonkit.swarm import Agent, Response, Result, types


def greet() -> str:
    return "hello"


def test_an_agent_has_swarms_defaults() -> None:
    agent = Agent()
    assert agent.name == "Agent"
    assert agent.model == "gpt-4o"
    assert agent.instructions == "You are a helpful agent."
    assert agent.functions == []
    assert agent.tool_choice is None
    assert agent.parallel_tool_calls is True


def test_agents_can_be_changed_and_do_not_share_their_functions() -> None:
    first, second = Agent(name="First"), Agent(name="Second")
    first.functions.append(greet)
    second.instructions = "Be brief."
    assert first.functions == [greet]
    assert second.functions == []
    assert second.instructions == "Be brief."


def test_agents_with_equal_fields_are_equal() -> None:
    assert Agent(name="A", functions=[greet]) == Agent(name="A", functions=[greet])
    assert Agent(name="A") != Agent(name="B")
    assert copy.deepcopy(Agent(name="A", functions=[greet])) == Agent(name="A", functions=[greet])


def test_invalid_agents_are_refused() -> None:
    with pytest.raises(ValidationError):
        Agent(functions=["greet"])  # pyright: ignore[reportArgumentType]


def test_results_and_responses_are_empty_by_default() -> None:
    agent = Agent(name="A")
    assert Result() == Result(value="", agent=None, context_variables={})
    assert Result(agent=agent).agent is agent
    assert Response() == Response(messages=[], agent=None, context_variables={})


def test_openai_types_are_imported_on_access(monkeypatch: pytest.MonkeyPatch) -> None:
    openai_module: Any = ModuleType("openai.types.chat")
    openai_module.ChatCompletionMessage = Agent
    for name in ("openai", "openai.types"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "openai.types.chat", openai_module)
    assert types.ChatCompletionMessage is Agent
    with pytest.raises(AttributeError, match="Kitchen"):
        _ = types.Kitchen


def test_without_openai_its_types_raise_module_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "openai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModuleNotFoundError, match="openai"):
        _ = types.Function


def test_a_star_import_needs_no_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    names: dict[str, Any] = {}
    exec("from batonkit.swarm.types import *", names)
    assert {name for name in names if name != "__builtins__"} == {"Agent", "AgentFunction", "Response", "Result"}
    assert sorted(types.__all__) == types.__all__
