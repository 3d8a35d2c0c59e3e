"""Misspelt keyword arguments are named, with the nearest valid one."""

from collections.abc import Callable
from typing import Any

import pytest

from baton import Agent, BaseAgent, SetupError, agent, guardrail, handoff, then_transfer, tool
from baton.agents import AgentContext, with_guardrails
from baton.handoffs import Handoff
from baton.tools import FunctionTool, with_tool_guardrails


class Own(BaseAgent[Any, str]):
    """An agent without a model."""

    async def run(self, ctx: AgentContext) -> None:
        """Do nothing."""


def look_up(city: str) -> str:
    """Look something up."""
    return city


A = Agent("A")
CASES: list[tuple[Callable[..., Any], tuple[Any, ...], str, str]] = [
    (Agent, ("A",), "tol", "Agent has no argument `tol`; did you mean `tools`?"),
    (Agent, ("A",), "instruction", "Agent has no argument `instruction`; did you mean `instructions`?"),
    (A.clone, (), "modell", "Agent has no argument `modell`; did you mean `model`?"),
    (Own, ("A",), "handoff", "Own has no argument `handoff`; did you mean `handoffs`?"),
    (handoff, (A,), "input_typ", "handoff has no argument `input_typ`; did you mean `input_type`?"),
    (Handoff, (), "on_handof", "Handoff has no argument `on_handof`; did you mean `on_handoff`?"),
    (tool, (look_up,), "timeot", "tool has no argument `timeot`; did you mean `timeout`?"),
    (tool, (), "timeot", "tool has no argument `timeot`; did you mean `timeout`?"),
    (FunctionTool, (look_up,), "efect", "FunctionTool has no argument `efect`; did you mean `effect`?"),
    (agent, ("A",), "descripton", "agent has no argument `descripton`; did you mean `description`?"),
    (A.as_tool, (), "limit", "as_tool has no argument `limit`; did you mean `limits`?"),
    (then_transfer, (A,), "on_eror", "then_transfer has no argument `on_eror`; did you mean `on_error`?"),
    (guardrail, (), "nam", "guardrail has no argument `nam`; did you mean `name`?"),
    (with_guardrails, (A,), "xyz", "with_guardrails has no argument `xyz`; its arguments are: `agent`, "),
    (with_tool_guardrails, (look_up,), "on_tripp", "with_tool_guardrails has no argument `on_tripp`; did you mean"),
]


@pytest.mark.parametrize(("function", "args", "misspelt", "message"), CASES)
def test_a_misspelt_argument_is_named(
    function: Callable[..., Any], args: tuple[Any, ...], misspelt: str, message: str
) -> None:
    options: dict[str, Any] = {misspelt: 1}
    with pytest.raises(SetupError) as caught:
        function(*args, **options)
    assert str(caught.value).startswith(message)


def test_a_type_error_of_another_kind_is_passed_through() -> None:
    make: Any = Agent
    with pytest.raises(TypeError, match="name"):
        make()


def test_dir_of_an_agent_shows_public_names_only() -> None:
    names = dir(Agent("A"))
    assert not [name for name in names if name.startswith("_")]
    assert {"name", "tools", "as_tool", "clone", "run"} <= set(names)
