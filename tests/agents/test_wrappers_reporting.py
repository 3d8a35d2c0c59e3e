"""`then_transfer(…, on_error="report")`: values of the failed agent, and errors that are not reported."""

from typing import Any

import pytest

from batonkit import Agent, AgentContext, Limits, RunContext, Runner, SetupError, agent, then_transfer, tool
from batonkit.errors import LimitError
from batonkit.log import StepCompleted, ValueChanges, decode_log, encode_log
from batonkit.testing import ScriptedModel, call


@tool(on_error="raise")
async def write_and_fail(ctx: RunContext[Any]) -> str:
    """Write a value, delete a value and fail."""
    ctx.values.set("written", True)
    ctx.values.delete("deleted")
    raise OSError("disk full")


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask a person."""
    return str(await ctx.interrupt("?"))


def make_runner(model: Any, **options: Any) -> Runner[Any, Any]:
    """Create a runner whose `Worker` transfers to `Boss`, also after an error."""
    worker = then_transfer(Agent("Worker", description="works", tools=[write_and_fail]), to="Boss", on_error="report")
    return Runner(worker, extra_agents=[Agent("Boss", description="decides", tools=[ask])], model=model, **options)


async def test_values_changed_by_a_failed_agent_are_kept_after_a_resume() -> None:
    # Also values of the failed call, which no other event records.
    model = ScriptedModel({"Worker": [call("write_and_fail")], "Boss": [call("ask")]})
    suspended = await make_runner(model).run("go", values={"deleted": 1, "other": 2})
    assert suspended.values == {"other": 2, "written": True}
    (failed,) = [event for event in suspended.events if isinstance(event, StepCompleted)]
    assert failed.value_changes == ValueChanges({"written": True}, ("deleted",))
    other = make_runner(ScriptedModel({"Boss": ["noted"]}))
    result = await other.resume(await other.runs.load(decode_log(encode_log(suspended.events))), "yes")
    assert (result.output, result.values) == ("noted", suspended.values)


async def test_an_exceeded_limit_ends_the_run() -> None:
    model = ScriptedModel({"Worker": ["a"], "Boss": ["b"]})
    with pytest.raises(LimitError, match="model_calls"):
        await make_runner(model, limits=Limits(model_calls=0)).run("go")


async def test_a_setup_error_ends_the_run() -> None:
    @agent("Worker", description="works")
    async def worker(ctx: AgentContext) -> None:
        raise SetupError("invalid setup")

    team = then_transfer(worker, to="Boss", on_error="report")
    with pytest.raises(SetupError, match="invalid setup"):
        await Runner(team, extra_agents=[Agent("Boss", description="d")], model=ScriptedModel([])).run("go")
