"""`tool_use_behavior`: an agent that stops after tools instead of asking its model again."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, RunContext, Runner, ToolError, agent, tool
from batonkit.agents import AgentContext, Stop, StopAt
from batonkit.context import RunContext as Context
from batonkit.errors import OutputError, SetupError
from batonkit.log import AgentResponded, Event, StepCompleted, ToolReturned
from batonkit.messages import AssistantMessage, ToolMessage, UserMessage
from batonkit.testing import ScriptedModel, assert_survives_crashes, call


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"sunny in {city}"


@tool
async def time(city: str) -> str:
    """Return the time."""
    return f"noon in {city}"


@tool
async def broken() -> str:
    """Fail."""
    raise ToolError("broken")


@tool(return_directly=True)
async def direct() -> str:
    """Answer."""
    return "directly"


@tool
async def ask(ctx: RunContext) -> str:
    """Ask a person."""
    return str(await ctx.interrupt("?"))


ROME, OSLO = call("weather", city="Rome"), call("time", city="Oslo")
TOOLS: list[Any] = [weather, time, broken, direct, ask]


async def outcome(behavior: Any, *steps: Any, **options: Any) -> tuple[Any, int]:
    """Return the output of a run and the number of model calls."""
    model = ScriptedModel([*steps])
    made = Agent("A", tools=options.pop("tools", TOOLS), model=model, tool_use_behavior=behavior, **options)
    result = await Runner(made, extra_agents=[Agent("B", model=ScriptedModel(["from B"]))]).run("hi")
    return result.output, len(model.requests)


async def test_by_default_the_model_is_asked_again() -> None:
    assert await outcome("run_again", ROME, "It is sunny.") == ("It is sunny.", 2)


async def test_stop_on_first_answers_with_the_first_result_in_the_order_of_the_calls() -> None:
    assert await outcome("stop_on_first", ROME) == ("sunny in Rome", 1)
    assert await outcome("stop_on_first", [OSLO, ROME]) == ("noon in Oslo", 1)


async def test_an_error_is_not_an_answer() -> None:
    # The model corrects it.
    assert await outcome("stop_on_first", call("broken"), ROME) == ("sunny in Rome", 2)
    assert await outcome("stop_on_first", [call("broken"), ROME]) == ("sunny in Rome", 1)
    assert await outcome(StopAt(["broken"]), [call("broken"), ROME], "enough") == ("enough", 2)


async def test_stop_at_stops_at_the_named_tools_only() -> None:
    assert await outcome(StopAt(["time"]), ROME, OSLO) == ("noon in Oslo", 2)
    assert await outcome(StopAt(["time", "weather"]), [ROME, OSLO]) == ("sunny in Rome", 1)


async def test_a_function_decides_with_all_results() -> None:
    seen: list[list[tuple[str, str, bool]]] = []

    async def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop | None:
        assert ctx.agent == "A"
        seen.append([(each.tool_name, str(each.content), each.is_error) for each in results])
        return Stop({"weather": results[-1].content}) if len(seen) == 2 else None

    assert await outcome(decide, [ROME, call("broken")], [OSLO, ROME]) == ('{"weather":"sunny in Rome"}', 2)
    assert seen == [
        [("weather", "sunny in Rome", False), ("broken", "broken", True)],
        [("time", "noon in Oslo", False), ("weather", "sunny in Rome", False)],
    ]


async def test_a_transfer_an_exit_and_a_direct_result_take_precedence() -> None:
    # Transfer > exit > return-directly > tool_use_behavior > text
    steps = [ROME, call("direct"), call("exit", final_result="exited"), call("transfer_to_b")]
    handed = await outcome("stop_on_first", steps, handoffs=["B"], exit_tool=True)
    assert handed == ("from B", 1)
    assert await outcome("stop_on_first", steps[:3], exit_tool=True) == ("exited", 1)
    assert await outcome("stop_on_first", steps[:2]) == ("directly", 1)


async def test_only_ordinary_tools_count() -> None:
    # Neither an unknown tool nor a refused transfer is a result.
    assert await outcome("stop_on_first", call("nothing"), "sorry") == ("sorry", 2)
    calls: list[Any] = []

    def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop | None:
        calls.append(results)
        return None

    assert await outcome(decide, [call("nothing")], "sorry") == ("sorry", 2)
    assert calls == []


async def test_a_denied_transfer_asks_the_model_again() -> None:
    # As for return-directly results, because the model must learn of the refusal.
    target = Agent("C", description="C", accepts=lambda ctx, given: "busy", model=ScriptedModel(["never"]))
    for both in ([ROME, call("transfer_to_c")], [call("transfer_to_c")]):
        assert await outcome("stop_on_first", both, "then not", handoffs=[target]) == ("then not", 2)


async def test_the_answer_is_a_message_of_the_agent() -> None:
    # History, result and the next run of a thread have it.
    model = ScriptedModel([ROME, "and now?"])
    runner = Runner(Agent("A", tools=TOOLS, model=model, tool_use_behavior=StopAt(["weather"])))
    result = await runner.run("hi", thread="t")
    assert [type(message) for message in result.messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert result.messages[-1].content == "sunny in Rome"
    last = [event for event in result.events if isinstance(event, AgentResponded)][-1]
    assert (last.key, last.model, last.text) == ("1/m1/stop", "", "sunny in Rome")
    await runner.run("thanks", thread="t")
    assert [message.content for message in model.requests[1].messages][-2:] == ["sunny in Rome", "thanks"]


def of_one(ctx: RunContext) -> None:
    """Take too few arguments."""


class Report(BaseModel):
    degrees: int


async def test_the_output_fits_the_output_type() -> None:
    @tool
    async def report() -> Report:
        """Report."""
        return Report(degrees=25)

    assert await outcome("stop_on_first", call("report"), tools=[report], output_type=Report) == (Report(degrees=25), 1)

    def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop:
        return Stop(Report(degrees=3))

    assert await outcome(decide, call("report"), tools=[report], output_type=Report) == (Report(degrees=3), 1)
    with pytest.raises(OutputError):
        await outcome("stop_on_first", ROME, output_type=Report)


async def test_output_key_and_callers_get_the_answer() -> None:
    model = ScriptedModel({"Expert": [ROME], "Desk": [call("expert", request="weather?"), "done"]})
    expert = Agent("Expert", tools=TOOLS, tool_use_behavior="stop_on_first", output_key="report")
    result = await Runner(Agent("Desk", tools=[expert.as_tool("expert")]), model=model).run("hi")
    assert result.values["report"] == "sunny in Rome"
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["sunny in Rome"] * 2


async def test_a_function_is_called_once_across_resumes_and_replays() -> None:
    calls: list[int] = []

    async def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop | None:
        calls.append(len(results))
        ctx.values.set("decided", len(calls))
        return Stop("enough") if await ctx.interrupt("stop?") else None

    model = ScriptedModel([ROME, OSLO])
    runner = Runner(Agent("A", tools=TOOLS, model=model, tool_use_behavior=decide))
    first = await runner.run("hi")
    second = await runner.resume(first.run_id, False)
    result = await runner.resume(second.run_id, True)
    assert (result.output, len(model.requests)) == ("enough", 2)
    # Each decision runs to its question and once more with the answer; recorded ones do not run again.
    assert calls == [1, 1, 1, 1]
    replayed = await runner.runs.replay(result.events)
    assert (replayed.output, replayed.values["decided"], len(calls)) == ("enough", 4, 4)
    assert sum(isinstance(event, StepCompleted) for event in result.events) == 2


async def test_a_behavior_waits_for_interrupts_of_tools() -> None:
    model = ScriptedModel([[ROME, call("ask")]])
    runner = Runner(Agent("A", tools=TOOLS, model=model, tool_use_behavior="stop_on_first"))
    suspended = await runner.run("hi")
    assert suspended.status == "suspended"
    assert (await runner.resume(suspended.run_id, "yes")).output == "sunny in Rome"


async def test_a_fork_decides_again_after_an_edited_result() -> None:
    runner = Runner(Agent("A", tools=TOOLS, model=ScriptedModel([ROME]), tool_use_behavior="stop_on_first"))
    result = await runner.run("hi")
    forked = await runner.runs.fork(result.events, edit={"1/m1.0": "rain"})
    assert (await runner.resume(forked)).output == "rain"


@pytest.mark.parametrize(
    ("behavior", "told"),
    [
        ("stop_at_first", r'is .stop_at_first.; use "run_again".*did you mean `stop_on_first`'),
        (None, r"tool_use_behavior of `A` is None; use"),
        (Stop, r"tool_use_behavior of `A` is .*; use"),
        (of_one, r"tool_use_behavior of `A` is called with \(ctx, results\)"),
        (StopAt(["wether"]), r"stops at `wether`, which it does not have; its tools are: .*did you mean `weather`"),
    ],
)
def test_a_wrong_behavior_is_refused_when_the_agent_is_made(behavior: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        Agent("A", tools=TOOLS, tool_use_behavior=behavior)


@pytest.mark.parametrize("wrong", ["weather", [3], None])
def test_stop_at_needs_a_list_of_names(wrong: Any) -> None:
    with pytest.raises(SetupError, match=r"StopAt\(\) has tools=.*; give a list of string"):
        StopAt(wrong)


def test_names_of_toolset_tools_are_not_known_when_the_agent_is_made() -> None:
    class Tools:
        async def get_tools(self, ctx: Context[Any]) -> list[Any]:
            """Return no tools."""
            return []

    assert Agent("A", tools=[Tools()], tool_use_behavior=StopAt(["remote"])).tool_use_behavior == StopAt(["remote"])


def test_annotations_of_tools_are_not_evaluated_when_the_agent_is_made() -> None:
    # They may name what is defined later.
    async def later(given: str) -> str:
        """Use it."""
        return given

    later.__annotations__["given"] = "NotDefinedYet"
    Agent("A", tools=[tool(later)], tool_use_behavior=StopAt(["later"]))


async def test_another_result_than_stop_is_refused() -> None:
    def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Any:
        return "sunny"

    with pytest.raises(SetupError, match=r"tool_use_behavior of `A` returned .sunny.; return Stop\(output\), or None"):
        await outcome(decide, ROME)


async def test_behaviors_work_inside_custom_agents_and_streams() -> None:
    # The answer is delivered like any message of the agent.
    inner = Agent("Inner", tools=TOOLS, model=ScriptedModel([ROME]), tool_use_behavior="stop_on_first")

    @agent("Outer", sub_agents=[inner])
    async def outer(ctx: AgentContext) -> Any:
        from batonkit import Transfer

        return Transfer("Inner")

    async with Runner(outer).stream("hi") as run:
        seen = [event async for event in run if isinstance(event, Event)]
    assert [event.text for event in seen if isinstance(event, AgentResponded)] == ["", "sunny in Rome"]


@pytest.mark.parametrize("behavior", ["stop_on_first", StopAt(["time"]), "function"])
async def test_behaviors_survive_crashes_after_every_event(behavior: Any) -> None:
    def decide(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop | None:
        ctx.values.set("decisions", ctx.values.get("decisions", 0) + 1)
        return Stop(results[-1].content) if results[-1].tool_name == "time" else None

    def new_runner(store: Any) -> Runner:
        made = Agent(
            "A",
            tools=TOOLS,
            model=ScriptedModel([[call("broken"), ROME], [ROME, OSLO]]),
            tool_use_behavior=decide if behavior == "function" else behavior,
        )
        return Runner(made, store=store)

    await assert_survives_crashes(new_runner, "go")


async def test_an_invalid_call_of_the_exit_tool_is_not_a_result() -> None:
    def stop(ctx: RunContext, results: Sequence[ToolReturned]) -> Stop:
        return Stop(f"{len(results)} results")

    wrong = call("exit", nothing=1)
    assert await outcome(stop, wrong, "an answer", exit_tool=True) == ("an answer", 2)
    assert await outcome(stop, [wrong, ROME], exit_tool=True) == ("1 results", 1)
