"""Static types of runs: output and context. pyright checks this module as well as pytest."""

from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from batonkit import Agent, AgentContext, BaseAgent, RunContext, Runner, RunResult, RunStream, agent, tool
from batonkit.log import Action
from batonkit.testing import ScriptedModel, call


class Report(BaseModel):
    """A structured answer."""

    city: str
    degrees: int


@dataclass
class Customer:
    """The application's context object."""

    name: str


REPORT = '{"city": "Rome", "degrees": 25}'


async def test_the_output_has_the_output_type_of_the_agent() -> None:
    reporter = Agent("Reporter", model=ScriptedModel([REPORT]), output_type=Report)
    runner = Runner(reporter)
    assert_type(runner, Runner[Any, Report])
    result = await runner.run("Rome?")
    assert_type(result, RunResult[Report])
    assert_type(result.output, Report)
    assert result.output == Report(city="Rome", degrees=25)
    assert result.output.degrees + 1 == 26


async def test_the_output_is_text_by_default() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]))).run("hi")
    assert_type(result, RunResult[str])
    assert result.output.upper() == "HELLO"


def test_run_sync_returns_the_output_type() -> None:
    result = Runner(Agent("A", model=ScriptedModel([REPORT]), output_type=Report)).run_sync("Rome?")
    assert_type(result, RunResult[Report])
    assert result.output.city == "Rome"


async def test_streams_and_resumed_runs_have_the_output_type() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        return str(await ctx.interrupt("continue?"))

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), REPORT]), tools=[ask], output_type=Report))
    stream = runner.stream("Rome?")
    assert_type(stream, RunStream[Report])
    async with stream:
        _ = [event async for event in stream]
    assert_type(stream.result, RunResult[Report])
    resumed = await runner.resume(stream.run_id, "yes")
    assert_type(resumed, RunResult[Report])
    assert resumed.output == Report(city="Rome", degrees=25)


async def test_the_context_has_the_context_type_of_the_agent() -> None:
    def instructions(ctx: AgentContext[Customer]) -> str:
        assert_type(ctx.context, Customer)
        return f"The customer is {ctx.context.name.title()}."

    @tool
    async def name_of_customer(ctx: RunContext[Customer]) -> str:
        """Return the customer's name."""
        assert_type(ctx.context, Customer)
        return ctx.context.name.upper()

    model = ScriptedModel([call("name_of_customer"), "done"])
    desk = Agent[Customer, str]("Desk", model=model, instructions=instructions, tools=[name_of_customer])
    runner = Runner(desk)
    assert_type(runner, Runner[Customer, str])
    result = await runner.run("hi", context=Customer("ada"))
    assert_type(result, RunResult[str])
    assert model.requests[0].instructions == "The customer is Ada."
    assert result.messages[2].content == "ADA"


async def test_a_custom_agent_has_a_context_type_and_an_output_type() -> None:
    class Counter(BaseAgent[Customer, int]):
        name = "Counter"

        async def run(self, ctx: AgentContext[Customer]) -> Action | None:
            assert_type(ctx.context, Customer)
            ctx.output = len(ctx.context.name)
            return None

    runner = Runner(Counter())
    assert_type(runner, Runner[Customer, int])
    result = await runner.run("hi", context=Customer("ada"))
    assert_type(result, RunResult[int])
    assert result.output == 3


async def test_the_output_of_a_function_agent_is_any() -> None:
    @agent()
    async def greeter(ctx: AgentContext) -> None:
        assert_type(ctx.context, Any)
        await ctx.say("hello")

    result = await Runner(greeter).run("hi")
    assert_type(result, RunResult[Any])
    assert result.output == "hello"
