"""Run and agent hooks: order, number of calls, errors and replay."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, RunResult, tool
from batonkit.agents import AgentHooks, RunHooks
from batonkit.errors import OpenInterruptError
from batonkit.log import ToolReturned
from batonkit.messages import ToolCall
from batonkit.models import ModelRequest, ModelResponse
from batonkit.runs import Interrupt
from batonkit.testing import ScriptedModel, call, transfer_to


class RecordingHooks(RunHooks):
    """Run hooks that record every call."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.lines.append(f"run start {agent.name}")

    async def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.lines.append(f"run end {agent.name} {output}")

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.lines.append(f"agent start {agent.name}")

    async def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        self.lines.append(f"agent end {agent.name} {output}")

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> None:
        self.lines.append(f"model start {agent.name} {len(request.messages)}")

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: ModelResponse) -> None:
        self.lines.append(f"model end {agent.name}")

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
        self.lines.append(f"tool start {call.name}")

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> None:
        self.lines.append(f"tool end {call.name} {result.content}")

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self.lines.append(f"handoff {from_agent.name} {to_agent.name}")

    def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> None:
        self.lines.append(f"interrupt {interrupt.payload}")


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


async def test_run_hooks_are_called_in_order() -> None:
    hooks = RecordingHooks()
    model = ScriptedModel({"A": [call("look_up", city="Rome"), call("transfer_to_b")], "B": ["done"]})
    await Runner(Agent("A", tools=[look_up], handoffs=[Agent("B")]), model=model, hooks=hooks).run("hi")
    assert hooks.lines == [
        "run start A",
        "agent start A",
        "model start A 1",
        "model end A",
        "tool start look_up",
        "tool end look_up sunny in Rome",
        "model start A 3",
        "model end A",
        "handoff A B",
        "agent end A None",
        "agent start B",
        "model start B 5",
        "model end B",
        "agent end B done",
        "run end B done",
    ]


async def test_agent_hooks_are_called_for_their_agent_only() -> None:
    calls: list[str] = []

    class RecordingAgentHooks(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            calls.append(f"start {agent.name}")

        async def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
            calls.append(f"end {agent.name} {output}")

        def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            calls.append(f"handoff {source.name} {agent.name}")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("transfer_to_c")], "C": ["done"]})
    c = Agent("C")
    b = Agent("B", hooks=RecordingAgentHooks(), handoffs=[c])
    await Runner(Agent("A", handoffs=[b]), model=model).run("hi")
    # on_handoff is called for the source and for the target.
    assert calls == ["handoff A B", "start B", "handoff B C", "end B None"]


async def test_the_hooks_of_a_handoff_run_concurrently() -> None:
    arrived: list[str] = []
    all_arrived = asyncio.Event()

    async def arrive(name: str) -> None:
        arrived.append(name)
        if len(arrived) == 3:
            all_arrived.set()
        await all_arrived.wait()

    class WaitingRunHooks(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            await arrive("run")

    class WaitingAgentHooks(AgentHooks):
        async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            await arrive("agent")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", hooks=WaitingAgentHooks(), handoffs=[Agent("B", hooks=WaitingAgentHooks())])
    assert (await Runner(a, model=model, hooks=WaitingRunHooks()).run("hi")).output == "done"
    assert sorted(arrived) == ["agent", "agent", "run"]


async def test_hooks_are_not_called_again_after_a_resume_or_in_a_replay() -> None:
    hooks = RecordingHooks()
    model = ScriptedModel(
        {"A": [call("look_up", city="Rome"), call("transfer_to_b")], "B": [call("ask", question="sure?"), "done"]}
    )
    a = Agent("A", tools=[look_up], handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=hooks)
    suspended = await runner.run("hi")
    assert hooks.lines[-1] == "interrupt sure?"
    before = list(hooks.lines)
    result = await runner.resume(suspended.run_id, "yes")
    new = [entry for entry in hooks.lines[len(before) :] if not entry.startswith("tool start")]
    assert new == ["tool end ask yes", "model start B 7", "model end B", "agent end B done", "run end B done"]
    count = len(hooks.lines)
    await runner.runs.replay(result.events)
    assert len(hooks.lines) == count


async def test_on_tool_start_is_called_once_for_a_tool_that_interrupts() -> None:
    # Hooks do not run again after a resume.
    hooks = RecordingHooks()
    model = ScriptedModel([call("ask", question="sure?"), "done"])
    runner = Runner(Agent("A", model=model, tools=[ask]), hooks=hooks)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert hooks.lines.count("tool start ask") == 1


async def test_on_tool_end_is_called_for_a_function_that_returns_an_agent() -> None:
    hooks = RecordingHooks()
    sales = Agent("Sales")

    def to_sales() -> Agent:
        """Transfer to sales."""
        return sales

    model = ScriptedModel({"A": [call("to_sales")], "Sales": ["hello"]})
    await Runner(Agent("A", tools=[to_sales]), model=model, hooks=hooks).run("hi")
    starts = [entry for entry in hooks.lines if entry.startswith("tool start")]
    ends = [entry for entry in hooks.lines if entry.startswith("tool end")]
    assert len(starts) == len(ends) == 1


async def run_until_completed(runner: Runner[Any, Any]) -> RunResult[Any]:
    """Start a run and resume it, with answers, until it is completed."""
    stream = runner.stream("hi", run_id="r1")
    for _ in range(5):
        with suppress(ZeroDivisionError):
            await stream._drive()
        if stream.result.status == "completed":
            return stream.result
        stream = runner.stream_resume("r1", {question.id: "yes" for question in stream.result.interrupts})
    raise AssertionError("the run was not completed")


@pytest.mark.parametrize(
    "name",
    [
        "on_run_start",
        "on_agent_start",
        "on_model_start",
        "on_model_end",
        "on_tool_start",
        "on_tool_end",
        "on_handoff",
        "on_agent_end",
        "on_interrupt",
        "on_run_end",
    ],
)
async def test_an_error_in_a_hook_ends_the_run_and_a_resume_repeats_nothing(name: str) -> None:
    executed, failures = list[str](), list[str]()

    def fail_once(*arguments: Any) -> None:
        if not failures:
            failures.append(name)
            raise ZeroDivisionError(name)

    @tool
    async def work() -> str:
        """Work."""
        executed.append("work")
        return "ok"

    hooks = RunHooks()
    setattr(hooks, name, fail_once)
    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", tools=[ask])])
    result = await run_until_completed(Runner(a, model=model, hooks=hooks))
    assert failures == [name]
    assert result.output == "done"
    assert executed == ["work"]
    assert len(model.requests) == 4


async def test_a_run_fails_with_the_error_of_its_hook() -> None:
    class RefusingHooks(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            raise PermissionError(f"{from_agent.name} must not call {to_agent.name}")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["never"]})
    stream = Runner(Agent("A", handoffs=[Agent("B")]), model=model, hooks=RefusingHooks()).stream("hi")
    with pytest.raises(PermissionError, match="A must not call B"):
        await stream._drive()
    assert stream.result.status == "failed"
    assert model.remaining == 1


async def test_values_written_by_a_hook_are_not_recorded_with_the_tool_result() -> None:
    class WritingHooks(RunHooks):
        def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
            ctx.values.set("started", 1)

    def new_runner(model: ScriptedModel) -> Runner:
        return Runner(Agent("A", tools=[look_up]), model=model, hooks=WritingHooks())

    steps = [call("look_up", city="Rome"), "Sunny."]
    uninterrupted = await new_runner(ScriptedModel(steps)).run("Go.")
    position = next(index for index, event in enumerate(uninterrupted.events) if isinstance(event, ToolReturned))
    model = ScriptedModel(steps)
    model.fast_forward(uninterrupted.events[:position])
    runner = new_runner(model)
    resumed = await runner.resume(await runner.runs.load(uninterrupted.events[:position]))
    returned = [
        event for result in (uninterrupted, resumed) for event in result.events if isinstance(event, ToolReturned)
    ]
    assert [event.value_changes for event in returned] == [None, None]
    assert resumed.values == uninterrupted.values == {"started": 1}


async def test_a_hook_that_swallows_its_interrupt_ends_the_run() -> None:
    # on_run_start runs outside of every activation.
    class SwallowingHooks(RunHooks):
        async def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
            try:
                await ctx.interrupt("sure?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return

    runner = Runner(Agent("A", model=ScriptedModel(["done"])), hooks=SwallowingHooks())
    with pytest.raises(OpenInterruptError, match="the hook on_run_start continued while its question"):
        await runner.run("hi")


class FalsyRunHooks(list[str], RunHooks):
    """Run hooks that are falsy as long as nothing was recorded."""

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.append(f"start {agent.name}")


class FalsyAgentHooks(list[str], AgentHooks):
    """Agent hooks that are falsy as long as nothing was recorded."""

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self.append(f"{source.name} to {agent.name}")


async def test_falsy_hooks_are_called() -> None:
    # Hooks that are also an empty list were ignored.
    run_hooks, source_hooks, target_hooks = FalsyRunHooks(), FalsyAgentHooks(), FalsyAgentHooks()
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["done"]})
    team = Agent("A", hooks=source_hooks, sub_agents=[Agent("B", hooks=target_hooks)])
    await Runner(team, model=model, hooks=run_hooks).run("hi")
    assert run_hooks == ["start A", "start B"]
    assert source_hooks == target_hooks == ["A to B"]
