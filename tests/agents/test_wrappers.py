"""Wrappers and hooks together with workflows: guardrails, `then_transfer` and hooks."""

from typing import Any

import pytest
from tests.workflows.parts import answered, asker, check_replay, failing, paths, speaker, texts, writer

from batonkit import (
    Agent,
    AgentHooks,
    BaseAgent,
    Exit,
    Limits,
    LoopAgent,
    ParallelAgent,
    RunContext,
    RunHooks,
    Runner,
    SequentialAgent,
    SetupError,
    then_transfer,
)
from batonkit.agents import with_guardrails
from batonkit.errors import GuardrailTrippedError, LimitError
from batonkit.log import ControlTransferred
from batonkit.testing import ScriptedModel, call
from batonkit.workflows import BreakLoop


def polite(ctx: RunContext, checked: Any) -> bool:
    """Check that the text is not rude."""
    return "rude" not in str(checked)


def sequence(*agents: BaseAgent[Any, Any], **options: Any) -> SequentialAgent:
    """Create a sequence called S."""
    return SequentialAgent("S", sub_agents=agents, **options)


# --- guardrails


async def test_guardrails_around_a_workflow_check_its_input_and_output() -> None:
    runner = Runner(
        with_guardrails(sequence(speaker("a"), asker("b")), input_guardrails=[polite], output_guardrails=[polite])
    )
    result = await answered(runner, await runner.run("go"))
    assert texts(result) == ["a", "b begins", "b: yes to b?"]
    assert [(each.stage, each.agent, each.verdict.passed) for each in result.guardrail_results] == [
        ("input", "S", True),
        ("output", "S", True),
    ]
    await check_replay(runner, result)
    with pytest.raises(GuardrailTrippedError, match="the input of `S`"):
        await runner.run("rude")
    with pytest.raises(GuardrailTrippedError, match="the output of `S`"):
        await Runner(with_guardrails(sequence(speaker("a", "rude")), output_guardrails=[polite])).run("go")


async def test_a_guarded_step_stops_its_sequence_or_only_its_branch() -> None:
    rude = with_guardrails(speaker("a", "rude"), output_guardrails=[polite])
    with pytest.raises(GuardrailTrippedError):
        await Runner(sequence(rude, speaker("b"))).run("go")
    result = await Runner(ParallelAgent("P", sub_agents=[rude, speaker("b")], on_error="ignore")).run("go")
    assert texts(result)[0].startswith("[a] failed: GuardrailTrippedError")
    assert result.output == {"b": "b"}


async def test_parallel_guardrails_work_in_a_branch() -> None:
    guarded = with_guardrails(Agent("A"), input_guardrails=[polite], mode="parallel")
    runner = Runner(ParallelAgent("P", sub_agents=[guarded, Agent("B")]), model=ScriptedModel({"A": ["a"], "B": ["b"]}))
    assert (await runner.run("go")).output == {"A": "a", "B": "b"}


# --- then_transfer


async def test_then_transfer_wraps_a_workflow() -> None:
    inner = SequentialAgent("W", sub_agents=[speaker("a"), asker("b")], handoffs=[speaker("next")])
    runner = Runner(then_transfer(inner, to="next"))
    result = await answered(runner, await runner.run("go"))
    assert paths(result.events) == ["W.a", "W.a.b", "W.a.b", "W", "W.next"]
    assert result.agent == "next"
    await check_replay(runner, result)


@pytest.mark.parametrize("action", [Exit("over"), BreakLoop()])
async def test_exit_and_break_loop_are_passed_on_by_then_transfer(action: Any) -> None:
    inner = SequentialAgent("W", sub_agents=[speaker("a", then=action)], handoffs=[speaker("next")])
    loop = LoopAgent("L", sub_agents=[then_transfer(inner, to="next")])
    result = await Runner(sequence(loop, speaker("end"))).run("go")
    said = "end" if isinstance(action, BreakLoop) else action.result
    assert texts(result) == (["a"] if said is None else ["a", said])


async def test_then_transfer_in_a_step_stays_inside_the_step() -> None:
    step = then_transfer(Agent("A", handoffs=[speaker("next")]), to="next")
    runner = Runner(sequence(step, speaker("z")), model=ScriptedModel({"A": ["a"]}))
    result = await runner.run("go")
    assert paths(result.events) == ["S.A", "S.A", "S.A.next", "S.A.z"]
    with pytest.raises(SetupError, match="an agent that runs inside another one cannot reach agents outside"):
        Runner(sequence(then_transfer(speaker("a"), to="z"), speaker("z")))


async def test_a_reported_error_leaves_the_same_values_before_and_after_a_resume() -> None:
    # Only values of branches that were never joined are lost.
    branches = ParallelAgent("P", sub_agents=[writer("lost", lost=1), failing("f")])
    inside = SequentialAgent("W", sub_agents=[writer("kept", kept=1, gone=None), branches], handoffs=[asker("next")])
    runner = Runner(then_transfer(inside, to="next", on_error="report"))
    result = await runner.run("go", values={"gone": 1})
    assert result.values == {"kept": 1}
    result = await answered(runner, result)
    assert result.values == {"kept": 1}
    assert texts(result)[0] == (
        "[W] failed: BranchesFailedError: 1 of the branches of `P` failed: `f`: ValueError: f cannot"
    )
    await check_replay(runner, result)


async def test_model_calls_before_a_reported_error_count_after_a_resume() -> None:
    inside = SequentialAgent("W", sub_agents=[Agent("A"), failing("f")], handoffs=[asker("next")])
    step = then_transfer(inside, to="next", on_error="report")
    runner = Runner(sequence(step, Agent("B")), model=ScriptedModel({"A": ["a"]}), limits=Limits(model_calls=1))
    result = await runner.run("go")
    with pytest.raises(LimitError):
        await answered(runner, result)


async def test_an_exceeded_run_limit_is_not_reported() -> None:
    inside = LoopAgent("W", sub_agents=[Agent("A")], handoffs=[speaker("next")])
    runner = Runner(
        then_transfer(inside, to="next", on_error="report"),
        model=ScriptedModel({"A": ["a"]}, cycle=True),
        limits=Limits(model_calls=2),
    )
    with pytest.raises(LimitError):
        await runner.run("go")


# --- hooks


class RecordingHooks(RunHooks):
    """Run hooks that record the starts, ends, handoffs and interrupts of agents."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_agent_start(self, ctx: RunContext, agent: Any) -> None:
        self.lines.append(f"+{agent.name}")

    def on_agent_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
        self.lines.append(f"-{agent.name}={output}")

    def on_handoff(self, ctx: RunContext, from_agent: Any, to_agent: Any) -> None:
        self.lines.append(f"{from_agent.name}>{to_agent.name}")

    def on_interrupt(self, ctx: RunContext, interrupt: Any) -> None:
        self.lines.append(f"?{interrupt.agent}")

    async def on_run_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
        self.lines.append(f"end of {agent.name}")


class WritingHooks(AgentHooks):
    """Agent hooks that write a value when the agent starts and ends."""

    def on_start(self, ctx: RunContext, agent: Any) -> None:
        ctx.values.set(f"{agent.name} started", True)

    async def on_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
        ctx.values.set(f"{agent.name} ended", output)


async def test_run_hooks_are_called_once_for_nested_agents() -> None:
    hooks = RecordingHooks()
    inner = SequentialAgent("T", sub_agents=[asker("b")])
    boss = Agent("Boss", tools=[inner.as_tool()])
    model = ScriptedModel({"Boss": [call("t", request="x"), "done"]})
    runner = Runner(sequence(speaker("a"), boss), model=model, hooks=hooks)
    result = await answered(runner, await runner.run("go"))
    assert hooks.lines == [
        *("+S", "+a", "-a=a", "+Boss", "+T", "+b", "?b"),
        *("-b=b: yes to b?", "-T=b: yes to b?", "-Boss=done", "-S=done", "end of S"),
    ]
    assert [type(event) for event in result.events if isinstance(event, ControlTransferred)] == []
    await check_replay(runner, result)


async def test_agent_hooks_of_workflows_and_branches_can_write_values() -> None:
    branch = Agent("A", hooks=WritingHooks())
    parallel = ParallelAgent("P", sub_agents=[branch, asker("b")], hooks=WritingHooks())
    runner = Runner(sequence(parallel, hooks=WritingHooks()), model=ScriptedModel({"A": ["a"]}))
    result = await runner.run("go")
    assert result.values == {"S started": True, "P started": True}, "the branch is not joined yet"
    result = await answered(runner, result)
    outputs = {"A": "a", "b": "b: yes to b?"}
    assert result.values == {
        **dict.fromkeys(("S started", "P started", "A started"), True),
        "A ended": "a",
        "P ended": outputs,
        "S ended": outputs,
    }
    await check_replay(runner, result)


async def test_a_hook_can_interrupt_in_a_branch() -> None:
    class InterruptingHooks(AgentHooks):
        async def on_start(self, ctx: RunContext, agent: Any) -> None:
            ctx.values.set("allowed", await ctx.interrupt(f"may {agent.name}?"))

    branches = [Agent("A", hooks=InterruptingHooks()), asker("b"), speaker("c")]
    runner = Runner(ParallelAgent("P", sub_agents=branches), model=ScriptedModel({"A": ["a"]}))
    result = await runner.run("go")
    assert [question.payload for question in result.interrupts] == ["may A?", "b?"]
    result = await answered(runner, result, lambda questions: questions[:1])
    assert (texts(result)[0], result.values) == ("a", {"allowed": "yes to may A?"})
    await check_replay(runner, result)


async def test_an_error_in_a_hook_of_a_branch_fails_the_branch() -> None:
    class FailingHooks(AgentHooks):
        def on_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
            raise ValueError("not like this")

    branches = [Agent("A", hooks=FailingHooks()), speaker("b")]
    runner = Runner(ParallelAgent("P", sub_agents=branches, on_error="ignore"), model=ScriptedModel({"A": ["a"]}))
    assert (await runner.run("go")).output == {"b": "b"}
