"""Misspelt keyword arguments are named, with the nearest valid one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batonkit import (
    Agent,
    AgentHooks,
    BaseAgent,
    Limits,
    ParallelAgent,
    RunHooks,
    Runner,
    SetupError,
    agent,
    guardrail,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import AgentContext, with_guardrails
from batonkit.handoffs import Handoff
from batonkit.models import register_model
from batonkit.tools import FunctionTool, with_tool_guardrails


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
    class Broken(Agent):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            raise TypeError("an error of its own")

    with pytest.raises(TypeError, match="an error of its own"):
        Broken("A")


def test_dir_of_an_agent_shows_public_names_only() -> None:
    names = dir(Agent("A"))
    assert not [name for name in names if name.startswith("_")]
    assert {"name", "tools", "as_tool", "clone", "run"} <= set(names)


# Untyped, because type checkers refuse these mistakes too.
new_agent: Any = Agent
new_runner: Any = Runner
new_parallel: Any = ParallelAgent
new_handoff: Any = handoff
new_registration: Any = register_model


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: new_agent("A", instructions=["x"]), "instructions of `A` is ['x']; give a function (ctx)"),
        (lambda: new_agent("A", instructions=lambda: "x"), "instructions of `A` is called with (ctx), but it takes ()"),
        (lambda: new_agent("A", model_settings={}), "`A` has model_settings={}; give ModelSettings(…) or None"),
        (lambda: new_agent("A", hooks=RunHooks()), "`A` has hooks=<batonkit.agents.hooks.RunHooks object at "),
        (lambda: new_agent("A", handoff_description="x"), "Agent has no argument `handoff_description`; did you mean"),
        (lambda: new_agent("A", functions=[]), "Agent has no argument `functions`; did you mean `tools`?"),
        (lambda: new_agent("A", model=5), "the model for `A` is an int; a model is an object with"),
        (lambda: new_runner(A, hooks=AgentHooks()), "Runner() has hooks=<batonkit.agents.hooks.AgentHooks object at "),
        (
            lambda: new_runner(A, limits={"model_calls": 1}),
            "Runner() has limits={'model_calls': 1}; give Limits(…) or None",
        ),
        (lambda: new_agent(), "Agent() is missing a required argument: 'name'"),
        (lambda: new_agent("A", name="B"), "Agent() has multiple values for argument 'name'"),
        (lambda: new_registration("a", print, 1), "register_model() has too many positional arguments"),
        (
            lambda: new_parallel("P", [A]),
            "ParallelAgent() has too many positional arguments; give the others by name, such as sub_agents=…",
        ),
        (lambda: Limits(model_calls=-1), "Limits(model_calls=-1) is negative; give 0 or more, or None for no limit"),
        (lambda: new_handoff(A, input_filter=5), "input_filter of the handoff to `A` is 5; give a function (data)"),
        (
            lambda: new_runner.run_sync(A, "hi"),
            "Runner.run_sync(Agent('A'), …) is called on the class; create a runner",
        ),
        (
            lambda: new_runner(A).run_sync("hi", max_turns=3),
            "Runner.run_sync() has no argument `max_turns`; use Agent(max_",
        ),
        (lambda: new_runner(A).run_sync("hi", limits={}), "Runner.run_sync() has limits={}; give Limits(…) or None"),
        (lambda: new_runner(A).run_sync("hi", values="x"), "Runner.run_sync() has values='x'; give a dict or None"),
        (
            lambda: new_runner(A).run_sync("hi", run_id=["x"]),
            "Runner.run_sync() has run_id=['x']; give a string or None",
        ),
        (lambda: asyncio.run(new_runner(A).runs.fork("x", at="x")), "Runs.fork() has at='x'; give an integer or None"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(SetupError) as caught:
        mistake()
    assert str(caught.value).startswith(message)
