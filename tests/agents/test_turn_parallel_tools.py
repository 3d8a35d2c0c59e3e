"""`max_parallel_tools`: the number of tool calls of one response that run at once."""

import asyncio
from typing import Any

import pytest
from tests.agents.guardrail_fakes import run_to_failure

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import SetupError, ToolFailedError
from batonkit.log import ToolReturned
from batonkit.testing import ScriptedModel, assert_survives_crashes, call


class Gauge:
    """Counts the calls that run at once."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.started: list[int] = []

    async def work(self, number: int) -> str:
        """Work for some iterations of the loop."""
        self.started.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1
        return str(number)


@pytest.mark.parametrize(("limit", "most"), [(None, 5), (9, 5), (2, 2), (1, 1)])
async def test_at_most_so_many_calls_of_a_response_run_at_once(limit: int | None, most: int) -> None:
    gauge = Gauge()
    model = ScriptedModel([[call("work", number=number) for number in range(5)], "done"])
    made = Agent("A", tools=[tool(gauge.work)], model=model, max_parallel_tools=limit)
    result = await Runner(made).run("go")
    assert (gauge.most, gauge.started) == (most, [0, 1, 2, 3, 4])
    contents = [message.content for message in model.requests[1].messages[-5:]]
    assert contents == ["0", "1", "2", "3", "4"]
    assert result.output == "done"


async def test_the_next_call_starts_when_a_call_waits_for_an_answer() -> None:
    # The others finish before the run is suspended.
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    gauge = Gauge()
    model = ScriptedModel([[call("ask"), call("work", number=1), call("work", number=2)], "done"])
    runner = Runner(Agent("A", tools=[ask, tool(gauge.work)], model=model, max_parallel_tools=1))
    suspended = await runner.run("go")
    assert [event.content for event in suspended.events if isinstance(event, ToolReturned)] == ["1", "2"]
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.output, gauge.started) == ("done", [1, 2])


@pytest.mark.parametrize("options", [{"max_parallel_tools": 2}, {"max_parallel_tools": 1}, {"concurrent_tools": False}])
async def test_no_call_starts_after_another_has_failed(options: dict[str, Any]) -> None:
    started: list[str] = []
    may_fail = [True]

    @tool(on_error="raise")
    async def strict() -> str:
        """Fail once."""
        started.append("strict")
        if may_fail:
            may_fail.clear()
            raise OSError("disk full")
        return "at last"

    @tool
    async def other(number: int) -> str:
        """Work."""
        started.append(f"other {number}")
        return str(number)

    script = [[call("other", number=0), call("strict"), call("other", number=1), call("other", number=2)], "done"]
    runner = Runner(Agent("A", tools=[strict, other], model=ScriptedModel(script), **options))
    error, result = await run_to_failure(runner)
    assert isinstance(error, ToolFailedError)
    assert started == ["other 0", "strict"]
    resumed = await runner.resume(result.run_id)
    assert resumed.output == "done"
    assert started == ["other 0", "strict", "strict", "other 1", "other 2"]


class LostPower(BaseException):
    """Something that must not be handled."""


@pytest.mark.parametrize("names", [["strict", "lose_power"], ["lose_power", "strict"], ["ask", "strict", "lose_power"]])
async def test_a_failed_tool_does_not_hide_what_must_not_be_handled(names: list[str]) -> None:
    all_run = asyncio.Barrier(len(names))

    @tool(on_error="raise")
    async def strict() -> str:
        """Fail."""
        await all_run.wait()
        raise OSError("disk full")

    @tool
    async def lose_power() -> str:
        """End."""
        await all_run.wait()
        raise LostPower

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        await all_run.wait()
        return str(await ctx.interrupt("?"))

    model = ScriptedModel([[call(name) for name in names], "done"])
    with pytest.raises(LostPower):
        await Runner(Agent("A", tools=[strict, lose_power, ask], model=model)).run("go")


@pytest.mark.parametrize("wrong", [0, -1, "2", 1.5])
def test_a_wrong_limit_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError, match="max_parallel_tools"):
        Agent("A", max_parallel_tools=wrong)


async def test_limited_tools_survive_crashes_after_every_event() -> None:
    def new_runner(store: Any) -> Runner:
        model = ScriptedModel([[call("work", number=number) for number in range(3)], "done"])
        return Runner(Agent("A", tools=[tool(Gauge().work)], model=model, max_parallel_tools=2), store=store)

    await assert_survives_crashes(new_runner, "go")
