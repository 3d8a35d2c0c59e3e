"""Disabled tools: hidden from the model, and refused if it calls them anyway."""

from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, handoff, tool
from batonkit.agents import with_guardrails
from batonkit.errors import RunError, SetupError, UnknownToolError
from batonkit.log import AgentResponded, ToolReturned
from batonkit.messages import ToolSpec
from batonkit.testing import ScriptedModel, assert_survives_crashes, call
from batonkit.tools import Tool, ToolResult, with_tool_guardrails


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool
async def look_up() -> str:
    """Look it up."""
    return "found"


def of_one(ctx: RunContext) -> bool:
    """Take too few arguments."""
    return True


def accept(ctx: RunContext, given: Any) -> bool:
    """Accept everything."""
    return True


def refund(is_enabled: Any, **options: Any) -> Any:
    """Make the conditional tool."""

    @tool(is_enabled=is_enabled, **options)
    async def refund() -> str:
        """Refund."""
        return "refunded"

    return refund


def tool_names(model: ScriptedModel) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in model.requests]


def responses(events: Any) -> list[AgentResponded]:
    return [event for event in events if isinstance(event, AgentResponded)]


async def test_a_disabled_tool_is_hidden_and_refused_when_called() -> None:
    model = ScriptedModel([call("refund"), "no refund"])
    result = await Runner(Agent("A", model=model, tools=[refund(False), look_up], handoffs=[Agent("B")])).run("hi")
    assert tool_names(model) == [["look_up", "transfer_to_b"]] * 2
    told = "The tool `refund` is not available now; the tools are: `look_up`, `transfer_to_b`."
    assert model.requests[1].messages[-1].content == told
    (returned,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert (returned.is_error, returned.is_unknown_tool) == (True, False)
    assert result.output == "no refund"
    assert responses(result.events)[0].disabled_tools == ("refund",)


async def test_calling_a_disabled_tool_repeatedly_raises_an_error() -> None:
    model = ScriptedModel([call("refund")], cycle=True)
    with pytest.raises(UnknownToolError, match="refund"):
        await Runner(Agent("A", model=model, tools=[refund(False), look_up])).run("hi")
    assert len(model.requests) == 3


async def test_of_several_calls_only_the_disabled_one_is_refused() -> None:
    model = ScriptedModel([[call("look_up"), call("refund")], "done"])
    result = await Runner(Agent("A", model=model, tools=[refund(False), look_up])).run("hi")
    returned = [event for event in result.events if isinstance(event, ToolReturned)]
    assert {event.tool_name: event.is_error for event in returned} == {"look_up": False, "refund": True}


async def test_is_enabled_is_called_in_every_turn_with_the_agent() -> None:
    calls: list[tuple[str, str]] = []

    def from_the_second_turn(ctx: RunContext, agent: Any) -> bool:
        calls.append((ctx.agent, agent.name))
        return len(calls) > 1

    model = ScriptedModel([call("refund"), call("refund"), "done"])
    result = await Runner(Agent("A", model=model, tools=[refund(from_the_second_turn)])).run("hi")
    assert tool_names(model) == [[], ["refund"], ["refund"]]
    assert calls == [("A", "A")] * 3
    assert [event.is_error for event in result.events if isinstance(event, ToolReturned)] == [True, False]


async def test_conditions_are_recorded_and_stay_the_same_after_a_resume() -> None:
    # A call is valid if the tool was enabled when the model was called.
    settings = {"is_on": True}
    model = ScriptedModel([[call("ask", question="?"), call("refund")], "done"])

    async def is_on(ctx: RunContext, agent: Any) -> bool:
        return settings["is_on"]

    runner = Runner(Agent("A", model=model, tools=[ask, refund(is_on, needs_approval=True)]))
    suspended = await runner.run("hi")
    settings["is_on"] = False
    result = await runner.resume(suspended.run_id, {asked.id: True for asked in suspended.interrupts})
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["True", "refunded"]
    assert [each.disabled_tools for each in responses(result.events)] == [(), ("refund",)]
    settings["is_on"] = True
    assert (await runner.runs.replay(result.events)).output == "done"


async def test_a_forced_tool_that_is_disabled_is_not_forced() -> None:
    # A provider refuses a choice that names no tool of the request.
    model = ScriptedModel(["no"])
    await Runner(Agent("A", model=model, tools=[refund(False), look_up], tool_choice="refund")).run("hi")
    assert model.requests[0].tool_choice is None


async def test_agents_as_tools_wrappers_and_own_tools_have_conditions() -> None:
    class Own:
        spec = ToolSpec("own", "Do it.")
        is_enabled = False

        async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
            """Do nothing."""
            return ToolResult("")

    guarded: Tool = with_tool_guardrails(refund(False), input_guardrails=[accept])
    expert = Agent("Expert", model=ScriptedModel(["x"]))
    is_vip = {"value": False}
    tools: list[Any] = [
        guarded,
        Own(),
        expert.as_tool("first", is_enabled=lambda ctx, agent: is_vip["value"]),
        expert.as_tool("second", needs_approval=True, is_enabled=False),
        look_up,
    ]
    model = ScriptedModel(["a", "b"])
    runner = Runner(Agent("A", model=model, tools=tools))
    await runner.run("hi")
    is_vip["value"] = True
    await runner.run("hi")
    assert tool_names(model) == [["look_up"], ["first", "look_up"]]


async def test_tools_of_a_toolset_have_conditions() -> None:
    class Tools:
        async def get_tools(self, ctx: RunContext[Any]) -> list[Any]:
            """Return the tools."""
            return self.tools

        tools = [refund(False), look_up]

    model = ScriptedModel([call("refund"), "done"])
    runner = Runner(Agent("A", model=model, tools=[Tools()]), store="memory:")
    result = await runner.run("hi")
    assert tool_names(model) == [["look_up"], ["look_up"]]
    assert (await runner.runs.replay(result.run_id)).output == "done"


async def test_values_that_a_condition_writes_are_recorded_with_the_turn() -> None:
    def count(ctx: RunContext, agent: Any) -> bool:
        ctx.values.set("turns", ctx.values.get("turns", 0) + 1)
        return True

    runner = Runner(Agent("A", model=ScriptedModel([call("refund"), "done"]), tools=[refund(count)]))
    result = await runner.run("hi")
    assert result.values["turns"] == 2
    assert (await runner.runs.replay(result.events)).values["turns"] == 2


async def test_an_error_in_is_enabled_ends_the_run_and_names_the_tool() -> None:
    def fails(ctx: RunContext, agent: Any) -> bool:
        raise KeyError("tier")

    with pytest.raises(RunError, match="is_enabled of tool `refund` of `A` raised KeyError: 'tier'"):
        await Runner(Agent("A", model=ScriptedModel(["never"]), tools=[refund(fails)])).run("hi")


@pytest.mark.parametrize("wrong", ["yes", 3, None, of_one])
def test_a_wrong_condition_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError, match=r"is_enabled of tool `refund` is .*\(ctx, agent\)"):
        refund(wrong)
    with pytest.raises(SetupError, match=r"is_enabled of Expert.as_tool\(\) is .*\(ctx, agent\)"):
        Agent("Expert").as_tool(is_enabled=wrong)


async def test_parallel_guardrails_work_with_conditions() -> None:
    model = ScriptedModel(["done"])
    guarded = with_guardrails(
        Agent("A", model=model, tools=[refund(False), look_up]),
        input_guardrails=[accept],
        mode="parallel",
    )
    await Runner(guarded).run("hi")
    assert tool_names(model) == [["look_up"]]


async def test_conditional_tools_survive_crashes_after_every_event() -> None:
    def is_first(ctx: RunContext, agent: Any) -> bool:
        return not ctx.values.get("is_used")

    @tool(is_enabled=is_first)
    async def use(ctx: RunContext) -> str:
        """Use it once."""
        ctx.values.set("is_used", True)
        return "used"

    def new_runner(store: Any) -> Runner:
        b = Agent("B", description="B")
        steps = {"A": [call("use"), call("use"), call("transfer_to_b")], "B": ["done"]}
        edge = handoff(b, is_enabled=lambda ctx, agent: bool(ctx.values.get("is_used")))
        return Runner(Agent("A", tools=[use], handoffs=[edge]), model=ScriptedModel(steps), store=store)

    await assert_survives_crashes(new_runner, "go")
