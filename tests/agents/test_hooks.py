"""Hooks: who is told of what, in which order, once; and one that fails ends the run."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from baton import Agent, RunContext, Runner, RunResult, tool
from baton.agents import AgentHooks, RunHooks
from baton.errors import OpenInterruptError
from baton.events import ToolReturned
from baton.messages import ToolCall
from baton.models import ModelRequest, ModelResponse
from baton.runner import Interrupt
from baton.testing import ScriptedModel, call, transfer_to


class Diary(RunHooks):
    """Writes everything down."""

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


async def test_hooks_are_told_of_everything_in_order() -> None:
    # handoffs.md H12
    diary = Diary()
    model = ScriptedModel({"A": [call("look_up", city="Rome"), call("transfer_to_b")], "B": ["done"]})
    await Runner(Agent("A", tools=[look_up], handoffs=[Agent("B")]), model=model, hooks=diary).run("hi")
    assert diary.lines == [
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


async def test_an_agents_own_hooks_are_told_of_it_alone() -> None:
    # handoffs.md H12
    told: list[str] = []

    class Own(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            told.append(f"start {agent.name}")

        async def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
            told.append(f"end {agent.name} {output}")

        def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            told.append(f"handoff {source.name} {agent.name}")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("transfer_to_c")], "C": ["done"]})
    c = Agent("C")
    b = Agent("B", hooks=Own(), handoffs=[c])
    await Runner(Agent("A", handoffs=[b]), model=model).run("hi")
    # Of a handoff both its source and its target are told.
    assert told == ["handoff A B", "start B", "handoff B C", "end B None"]


async def test_the_hooks_of_a_handoff_run_at_once() -> None:
    # handoffs.md H12
    arrived: list[str] = []
    everybody = asyncio.Event()

    async def arrive(who: str) -> None:
        arrived.append(who)
        if len(arrived) == 3:
            everybody.set()
        await everybody.wait()

    class OfRun(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            await arrive("run")

    class OfAgent(AgentHooks):
        async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            await arrive("agent")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", hooks=OfAgent(), handoffs=[Agent("B", hooks=OfAgent())])
    assert (await Runner(a, model=model, hooks=OfRun()).run("hi")).output == "done"
    assert sorted(arrived) == ["agent", "agent", "run"]


async def test_hooks_are_not_told_again_after_resume() -> None:
    # handoffs.md H12
    diary = Diary()
    model = ScriptedModel(
        {"A": [call("look_up", city="Rome"), call("transfer_to_b")], "B": [call("ask", question="sure?"), "done"]}
    )
    a = Agent("A", tools=[look_up], handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=diary)
    suspended = await runner.run("hi")
    assert diary.lines[-1] == "interrupt sure?"
    before = list(diary.lines)
    result = await runner.resume(suspended.run_id, "yes")
    new = [entry for entry in diary.lines[len(before) :] if not entry.startswith("tool start")]
    assert new == ["tool end ask yes", "model start B 7", "model end B", "agent end B done", "run end B done"]
    told = len(diary.lines)
    await runner.replay(result.events)
    assert len(diary.lines) == told


async def test_a_tool_that_asks_is_started_once() -> None:
    # handoffs.md H12: none of them runs again on resume.
    diary = Diary()
    model = ScriptedModel([call("ask", question="sure?"), "done"])
    runner = Runner(Agent("A", model=model, tools=[ask]), hooks=diary)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert diary.lines.count("tool start ask") == 1


async def test_every_start_of_a_tool_has_its_end() -> None:
    # handoffs.md H12: also that of a function that returns an agent.
    diary = Diary()
    sales = Agent("Sales")

    def to_sales() -> Agent:
        """Hand over."""
        return sales

    model = ScriptedModel({"A": [call("to_sales")], "Sales": ["hello"]})
    await Runner(Agent("A", tools=[to_sales]), model=model, hooks=diary).run("hi")
    starts = [entry for entry in diary.lines if entry.startswith("tool start")]
    ends = [entry for entry in diary.lines if entry.startswith("tool end")]
    assert len(starts) == len(ends) == 1


async def driven_to_the_end(runner: Runner[Any, Any]) -> RunResult[Any]:
    """Start a run and take it up again, with answers, until it is completed."""
    live = runner.stream("hi", run_id="r1")
    for _ in range(5):
        with suppress(ZeroDivisionError):
            await live._drive()
        if live.result.status == "completed":
            return live.result
        live = runner.stream_resume("r1", {question.id: "yes" for question in live.result.interrupts})
    raise AssertionError("it never ends")


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
async def test_a_hook_that_fails_ends_the_run_and_a_resume_repeats_nothing(name: str) -> None:
    # handoffs.md H12, H13
    ran, failures = list[str](), list[str]()

    def fail_once(*given: Any) -> None:
        if not failures:
            failures.append(name)
            raise ZeroDivisionError(name)

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "ok"

    hooks = RunHooks()
    setattr(hooks, name, fail_once)
    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", tools=[ask])])
    result = await driven_to_the_end(Runner(a, model=model, hooks=hooks))
    assert failures == [name]
    assert result.output == "done"
    assert ran == ["work"]
    assert len(model.requests) == 4


async def test_a_hook_that_fails_ends_the_run_with_its_own_error() -> None:
    # handoffs.md H12
    class Strict(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            raise PermissionError(f"{from_agent.name} must not call {to_agent.name}")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["never"]})
    live = Runner(Agent("A", handoffs=[Agent("B")]), model=model, hooks=Strict()).stream("hi")
    with pytest.raises(PermissionError, match="A must not call B"):
        await live._drive()
    assert live.result.status == "failed"
    assert model.remaining == 1


async def test_what_a_hook_wrote_is_recorded_with_it_alone_also_when_the_run_is_taken_up() -> None:
    class Counting(RunHooks):
        def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
            ctx.values.set("started", 1)

    def new_runner() -> Runner:
        steps = [call("look_up", city="Rome"), "Sunny."]
        return Runner(Agent("A", tools=[look_up]), model=ScriptedModel(steps), hooks=Counting())

    whole = await new_runner().run("Go.")
    cut = next(place for place, event in enumerate(whole.events) if isinstance(event, ToolReturned))
    runner = new_runner()
    assert isinstance(runner.model, ScriptedModel)
    runner.model.fast_forward(whole.events[:cut])
    again = await runner.resume(runner.load_log(whole.events[:cut]))
    returned = [event for result in (whole, again) for event in result.events if isinstance(event, ToolReturned)]
    assert [event.value_changes for event in returned] == [None, None]
    assert again.values == whole.values == {"started": 1}


async def test_a_hook_that_swallows_its_suspension_ends_the_run() -> None:
    # F12: also a hook of the run, which is outside of every activation.
    class Careless(RunHooks):
        async def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
            try:
                await ctx.interrupt("sure?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return

    runner = Runner(Agent("A", model=ScriptedModel(["done"])), hooks=Careless())
    with pytest.raises(OpenInterruptError, match="the hook on_run_start went on while its question"):
        await runner.run("hi")


class FalsyRunHooks(list[str], RunHooks):
    """Hooks that are falsy as long as nothing was recorded."""

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        self.append(f"start {agent.name}")


class FalsyAgentHooks(list[str], AgentHooks):
    """Hooks of one agent that are falsy as long as nothing was recorded."""

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self.append(f"{source.name} to {agent.name}")


async def test_falsy_hooks_are_called() -> None:
    # F31: an empty list that is a hooks object was taken for no hooks.
    of_run, of_source, of_target = FalsyRunHooks(), FalsyAgentHooks(), FalsyAgentHooks()
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["done"]})
    team = Agent("A", hooks=of_source, sub_agents=[Agent("B", hooks=of_target)])
    await Runner(team, model=model, hooks=of_run).run("hi")
    assert of_run == ["start A", "start B"]
    assert of_source == of_target == ["A to B"]
