"""One agent after the other: what flows through, what ends it, and the paths."""

from typing import Any

import pytest
from tests.workflows.parts import (
    answered,
    asker,
    check_replay,
    failing,
    paths,
    reader,
    speaker,
    texts,
    writer,
)

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Exit,
    Limits,
    LoopAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SetupError,
    agent,
    handoff,
    tool,
)
from batonkit.errors import LimitError
from batonkit.testing import ScriptedModel, call, transcript, transfer_to
from batonkit.workflows import BreakLoop


async def test_each_step_runs_once_in_order_and_reads_what_was_said_before() -> None:
    seen: list[list[str]] = []
    runner = Runner(SequentialAgent("S", sub_agents=[speaker("a"), speaker("b"), reader("c", seen)]))
    result = await runner.run("go")
    assert transcript(result.events) == [
        'run of S started with "go"',
        "S started",
        "a started",
        'a: said "a"',
        "a finished",
        "b started",
        'b: said "b"',
        "b finished",
        "c started",
        'c: said "c"',
        "c finished",
        "S finished",
        "run completed",
    ]
    assert seen == [["go", "For context: [a] said: a.", "For context: [b] said: b."]]
    assert (result.output, result.agent) == ("c", "S")
    await check_replay(runner, result)


async def test_the_output_is_the_last_answer_of_a_step() -> None:
    result = await Runner(SequentialAgent("S", sub_agents=[speaker("a"), writer("quiet", x=1)])).run("go")
    assert (result.output, result.values) == ("a", {"x": 1})


@pytest.mark.parametrize("action", [Exit("over"), Exit()])
async def test_an_exit_ends_the_sequence_and_everything_around_it(action: Exit) -> None:
    inner = SequentialAgent("Inner", sub_agents=[speaker("b", then=action), speaker("never")])
    runner = Runner(SequentialAgent("S", sub_agents=[speaker("a"), inner, speaker("nor I")]))
    result = await runner.run("go")
    said = ["a", "b"] if action.result is None else ["a", "b", action.result]
    assert (texts(result), result.output, result.status) == (said, said[-1], "completed")
    await check_replay(runner, result)


async def test_an_error_ends_the_sequence_and_a_resume_tries_that_step_again() -> None:
    tries: list[int] = []

    @agent("flaky")
    async def flaky(ctx: AgentContext) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        await ctx.say("now")

    taken: list[str] = []

    @agent("first")
    async def first(ctx: AgentContext) -> None:
        await ctx.say(await ctx.step("take", lambda: taken.append("x") or "taken"))

    runner = Runner(SequentialAgent("S", sub_agents=[first, flaky, speaker("last")]))
    with pytest.raises(ValueError, match="not yet"):
        await runner.run("go", run_id="r")
    result = await runner.resume("r")
    assert (texts(result), taken) == (["taken", "now", "last"], ["x"])


async def test_a_steps_transfers_stay_inside_the_step() -> None:
    # The next step's path continues from the step, not from the agent it transferred to.
    model = ScriptedModel({"Router": [transfer_to("Expert")], "Expert": ["expert answer"], "Writer": ["written"]})
    router = Agent("Router", sub_agents=[Agent("Expert", description="knows")], description="routes")
    runner = Runner(SequentialAgent("S", sub_agents=[router, Agent("Writer")]), model=model)
    result = await runner.run("go")
    assert paths(result.events) == ["S.Router", "S.Router.Expert", "S.Router.Writer"]
    assert result.output == "written"
    assert [text for message in model.requests[-1].messages if (text := str(message.content))] == [
        "go",
        'For context: [Router] called tool: `transfer_to_agent` with arguments: {"agent_name":"Expert"}.',
        "For context: [Router] `transfer_to_agent` tool returned result: successfully transferred to agent [Expert].",
        "For context: [Expert] said: expert answer.",
    ]
    assert [spec.name for spec in model.requests[-1].tools] == [], "the last step has nobody to transfer to"
    await check_replay(runner, result)


async def test_control_returns_to_a_step_before_the_next_step_starts() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_worker"), "thanks"], "Worker": ["done"], "Next": ["next"]})
    boss = Agent("Boss", handoffs=[handoff(Agent("Worker", description="works"), return_to="caller")])
    result = await Runner(SequentialAgent("S", sub_agents=[boss, Agent("Next")]), model=model).run("go")
    assert paths(result.events) == ["S.Boss", "S.Boss.Worker", "S.Boss.Worker.Boss", "S.Boss.Next"]


async def test_nested_workflows_contribute_their_own_names_to_the_path() -> None:
    inner = SequentialAgent("In", sub_agents=[speaker("b"), speaker("c")])
    both = ParallelAgent("Both", sub_agents=[speaker("d"), speaker("e")])
    result = await Runner(SequentialAgent("S", sub_agents=[speaker("a"), inner, both, speaker("f")])).run("go")
    assert paths(result.events) == ["S.a", "S.a.In.b", "S.a.In.b.c", "S.a.In.Both.d", "S.a.In.Both.e", "S.a.In.Both.f"]


async def test_a_step_after_nested_workflows_reads_all_of_their_messages() -> None:
    seen: list[list[str]] = []
    deep = ParallelAgent("P", sub_agents=[speaker("p1"), LoopAgent("L", sub_agents=[speaker("l")], max_iterations=2)])
    root = SequentialAgent("S", sub_agents=[speaker("a"), SequentialAgent("In", sub_agents=[deep]), reader("z", seen)])
    runner = Runner(root, history="verbatim")
    result = await runner.run("go")
    assert seen == [["go", "a", "p1", "l", "l"]]
    await check_replay(runner, result)


async def test_an_agent_may_be_several_steps() -> None:
    again = asker("again")
    runner = Runner(SequentialAgent("S", sub_agents=[again, again]))
    first = await runner.run("go")
    second = await runner.resume(first.run_id, "one")
    result = await runner.resume(first.run_id, "two")
    assert [len(each.interrupts) for each in (first, second, result)] == [1, 1, 0]
    assert texts(result) == ["again begins", "again: one", "again begins", "again: two"]
    await check_replay(runner, result)


async def test_a_break_without_a_loop_ends_the_sequence() -> None:
    steps = [speaker("a", then=BreakLoop()), speaker("never")]
    result = await Runner(SequentialAgent("S", sub_agents=steps)).run("go")
    assert (texts(result), result.status) == (["a"], "completed")


async def test_a_workflow_can_be_transferred_to_and_gives_control_back() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_s"), "all done"]})
    work = SequentialAgent("S", description="works", sub_agents=[asker("a"), speaker("b")])
    runner = Runner(Agent("Desk", handoffs=[handoff(work, return_to="caller")]), model=model)
    result = await answered(runner, await runner.run("go"))
    assert paths(result.events) == ["Desk", "Desk.S.a", "Desk.S.a", "Desk.S.a.b", "Desk.S.Desk"]
    assert (result.output, result.agent) == ("all done", "Desk")
    await check_replay(runner, result)


async def test_a_workflow_may_have_handoffs_but_never_uses_them_by_itself() -> None:
    flow = SequentialAgent("S", sub_agents=[speaker("a")], handoffs=[speaker("b")])
    result = await Runner(flow).run("go")
    assert (result.output, result.agent) == ("a", "S")


async def test_a_function_may_bring_an_agent_into_a_step() -> None:
    # An undeclared agent with its own workflow.
    @tool
    def fetch() -> BaseAgent[Any, Any]:
        """Fetch an agent."""
        return SequentialAgent("Guest", sub_agents=[asker("inner"), speaker("last")])

    runner = Runner(
        SequentialAgent("S", sub_agents=[Agent("Host", tools=[fetch]), speaker("after")]),
        model=ScriptedModel({"Host": [call("fetch")]}),
    )
    result = await answered(runner, await runner.run("go"))
    assert texts(result)[2:] == ["inner begins", "inner: yes to inner?", "last", "after"]
    assert paths(result.events)[-1] == "S.Host.after"


async def test_the_runs_limits_hold_across_steps() -> None:
    steps = [Agent("A"), Agent("B"), Agent("C")]
    model = ScriptedModel({"A": ["a"], "B": ["b"], "C": ["c"]})
    runner = Runner(SequentialAgent("S", sub_agents=steps), model=model, limits=Limits(model_calls=2))
    with pytest.raises(LimitError, match=r"2 model_calls at S → A → B → C"):
        await runner.run("go")


@pytest.mark.parametrize(
    ("name", "steps", "complaint"),
    [
        ("S", [], "`S` has no steps; give at least one agent"),
        ("S", ["a"], "`S` has 'a' in sub_agents; give agents only"),
        ("S", speaker("a"), r"`S` has sub_agents=FunctionAgent\('a'\); give a list"),
        ("", [speaker("a")], "needs a name"),
    ],
)
def test_a_sequence_that_cannot_work(name: str, steps: Any, complaint: str) -> None:
    with pytest.raises(SetupError, match=complaint):
        SequentialAgent(name, sub_agents=steps)


@pytest.mark.parametrize("wanted", ["Later", "Earlier", "Outside"])
def test_a_name_that_leads_out_of_a_step(wanted: str) -> None:
    inner = SequentialAgent(
        "S", description="works", sub_agents=[speaker("Earlier"), Agent("Step", handoffs=[wanted]), speaker("Later")]
    )
    complaint = (
        f"`Step` has a handoff to `{wanted}`, but the team has no agent of that name, "
        "and an agent that runs inside another one cannot reach agents outside; the team has: `Step`"
    )
    with pytest.raises(SetupError, match=complaint):
        Runner(Agent("Outside", sub_agents=[inner]))


@pytest.mark.parametrize(
    "root",
    [
        SequentialAgent("S", sub_agents=[speaker("a"), speaker("a")]),
        SequentialAgent("S", sub_agents=[speaker("S")]),
        SequentialAgent("S", sub_agents=[Agent("X", sub_agents=[speaker("a")]), speaker("a")]),
        SequentialAgent("S", sub_agents=[Agent("X", tools=[speaker("a").as_tool()]), speaker("a")]),
        ParallelAgent("P", sub_agents=[SequentialAgent("S", sub_agents=[speaker("a")]), speaker("a")]),
    ],
)
def test_two_agents_of_one_name_in_nested_teams(root: BaseAgent[Any, Any]) -> None:
    with pytest.raises(SetupError, match="two different agents are called"):
        Runner(root)


async def test_a_failed_step_is_named_where_the_run_ends() -> None:
    runner = Runner(SequentialAgent("S", sub_agents=[speaker("a"), failing("b"), speaker("c")]))
    with pytest.raises(ValueError, match="b cannot") as caught:
        await runner.run("go", run_id="r")
    assert caught.value.__notes__ == ["in run r, at S → a → b"]
