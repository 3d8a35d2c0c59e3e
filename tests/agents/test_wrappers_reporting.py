"""An agent that fails leaves one message and what it did to the values; what must end the run is not reported."""

from typing import Any

import pytest

from baton import Agent, AgentContext, Limits, RunContext, Runner, SetupError, agent, then_transfer, tool
from baton.errors import LimitError
from baton.events import StepCompleted, ValueChanges, decode_log, encode_log
from baton.testing import ScriptedModel, call


@tool(on_error="raise")
async def spoil(ctx: RunContext[Any]) -> str:
    """Write something, remove something, and fail."""
    ctx.values.set("spoilt", True)
    ctx.values.delete("whole")
    raise OSError("disk full")


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask a person."""
    return str(await ctx.interrupt("?"))


def desk(model: Any, **facts: Any) -> Runner[Any, Any]:
    """`Worker` hands on to `Boss`, also when it fails."""
    worker = then_transfer(Agent("Worker", description="works", tools=[spoil]), to="Boss", on_error="report")
    return Runner(worker, extra_agents=[Agent("Boss", description="decides", tools=[ask])], model=model, **facts)


async def test_what_a_failed_agent_did_to_the_values_is_there_after_a_resume() -> None:
    # T21: also what the very call did that failed, and that no other event has.
    model = ScriptedModel({"Worker": [call("spoil")], "Boss": [call("ask")]})
    stopped = await desk(model).run("go", values={"whole": 1, "other": 2})
    assert stopped.values == {"other": 2, "spoilt": True}
    (failed,) = [event for event in stopped.events if isinstance(event, StepCompleted)]
    assert failed.value_changes == ValueChanges({"spoilt": True}, ("whole",))
    later = desk(ScriptedModel({"Boss": ["noted"]}))
    result = await later.resume(later.load_log(decode_log(encode_log(stopped.events))), "yes")
    assert (result.output, result.values) == ("noted", stopped.values)


async def test_limits_end_the_run() -> None:
    model = ScriptedModel({"Worker": ["a"], "Boss": ["b"]})
    with pytest.raises(LimitError, match="model_calls"):
        await desk(model, limits=Limits(model_calls=0)).run("go")


async def test_what_the_programs_author_must_mend_ends_the_run() -> None:
    @agent("Worker", description="works")
    async def worker(ctx: AgentContext) -> None:
        raise SetupError("written wrongly")

    team = then_transfer(worker, to="Boss", on_error="report")
    with pytest.raises(SetupError, match="written wrongly"):
        await Runner(team, extra_agents=[Agent("Boss", description="d")], model=ScriptedModel([])).run("go")
