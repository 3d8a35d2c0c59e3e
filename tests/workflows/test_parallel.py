"""Several agents at once: what each reads, how it is joined, and what becomes of errors, exits and timeouts."""

import asyncio
from typing import Any

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.waiting import forever
from tests.workflows.parts import (
    answer_of,
    answered,
    asker,
    check_replay,
    elsewhere,
    failing,
    passing,
    paths,
    reader,
    speaker,
    texts,
)

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Exit,
    Limits,
    ParallelAgent,
    Runner,
    RunResult,
    SequentialAgent,
    SetupError,
    agent,
    then_transfer,
    tool,
)
from batonkit.errors import BranchesFailedError, BranchTimeoutError, LimitError
from batonkit.log import AgentFinished, AgentResponded, AgentStarted, Event
from batonkit.testing import ScriptedModel, call, transfer_to
from batonkit.workflows import BreakLoop


def waiting(name: str, gate: asyncio.Event) -> BaseAgent[Any, Any]:
    """Says its name when the gate opens."""

    @agent(name, description=name)
    async def wait(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say(name)

    return wait


def opening(name: str, gate: asyncio.Event) -> BaseAgent[Any, Any]:
    """Says its name and opens the gate."""

    @agent(name, description=name)
    async def open_gate(ctx: AgentContext) -> None:
        await ctx.say(name)
        gate.set()

    return open_gate


async def test_branches_run_at_once_and_are_joined_as_declared() -> None:
    # The first can only end after the second; its words come first all the same.
    gate, seen = asyncio.Event(), list[list[str]]()
    both = ParallelAgent("P", sub_agents=[waiting("slow", gate), opening("fast", gate)])
    runner = Runner(SequentialAgent("S", sub_agents=[both, reader("after", seen)]), history="verbatim")
    result = await runner.run("go")
    assert [event.agent for event in result.events if isinstance(event, AgentResponded)] == ["fast", "slow", "after"]
    assert texts(result) == ["slow", "fast", "after"]
    assert seen == [["go", "slow", "fast"]]
    await check_replay(runner, result)


async def test_siblings_never_see_each_other_at_any_depth() -> None:
    seen: list[list[str]] = []
    inner = ParallelAgent("In", sub_agents=[reader("i1", seen), reader("i2", seen)])
    deep = SequentialAgent("D", sub_agents=[speaker("d"), inner, reader("d2", seen)])
    root = SequentialAgent("S", sub_agents=[speaker("a"), ParallelAgent("P", sub_agents=[reader("p", seen), deep])])
    await Runner(root, history="verbatim").run("go")
    assert sorted(seen, key=len) == [["go", "a"], ["go", "a", "d"], ["go", "a", "d"], ["go", "a", "d", "i1", "i2"]]


async def test_the_output_is_a_dict_of_the_branches_outputs() -> None:
    same = speaker("same")
    odd = ParallelAgent("P", sub_agents=[same, speaker("same#2", "odd"), same, speaker("x", "y")])
    result = await Runner(odd).run("go")
    assert result.output == {"same": "same", "same#2": "odd", "same#3": "same", "x": "y"}
    assert paths(result.events) == ["P.same", "P.same#2", "P.same", "P.x"]


async def test_a_branchs_exit_ends_the_run_after_the_join() -> None:
    gate = asyncio.Event()

    @agent("leaves")
    async def leaves(ctx: AgentContext) -> Exit:
        await ctx.say("bye")
        gate.set()
        return Exit("left")

    steps = [ParallelAgent("P", sub_agents=[leaves, waiting("w", gate)]), speaker("never")]
    runner = Runner(SequentialAgent("S", sub_agents=steps))
    result = await runner.run("go")
    assert (texts(result), result.output) == (["bye", "left", "w"], "left")
    await check_replay(runner, result)


async def test_an_exit_beats_a_break_and_the_first_exit_counts() -> None:
    branches = [speaker("b", then=BreakLoop()), speaker("e1", then=Exit("one")), speaker("e2", then=Exit("two"))]
    assert (await Runner(ParallelAgent("P", sub_agents=branches)).run("go")).output == "one"


async def test_branches_transfer_within_themselves() -> None:
    model = ScriptedModel({"R1": [transfer_to("E1")], "E1": ["one"], "R2": [transfer_to("E2")], "E2": ["two"]})
    routers = [
        Agent(f"R{number}", description="r", sub_agents=[Agent(f"E{number}", description="e")]) for number in (1, 2)
    ]
    runner = Runner(ParallelAgent("P", sub_agents=routers), model=model)
    result = await runner.run("go")
    assert sorted(paths(result.events)) == ["P.R1", "P.R1.E1", "P.R2", "P.R2.E2"]
    assert result.output == {"R1": "one", "R2": "two"}
    await check_replay(runner, result)


# --- errors


async def test_collect_lets_all_branches_end_and_names_every_failure() -> None:
    gate = asyncio.Event()
    branches = [failing("f1"), waiting("w", gate), failing("f2", KeyError("lost")), opening("o", gate)]
    runner = Runner(SequentialAgent("S", sub_agents=[ParallelAgent("P", sub_agents=branches), speaker("never")]))
    with pytest.raises(BranchesFailedError) as caught:
        await runner.run("go", run_id="r")
    assert str(caught.value) == "2 of the branches of `P` failed: `f1`: ValueError: f1 cannot; `f2`: KeyError: 'lost'"
    assert {name: type(error) for name, error in caught.value.errors.items()} == {"f1": ValueError, "f2": KeyError}
    assert isinstance(caught.value.__cause__, ValueError)


async def test_two_failures_of_one_agent_are_told_apart() -> None:
    bad = failing("bad")
    with pytest.raises(BranchesFailedError) as caught:
        await Runner(ParallelAgent("P", sub_agents=[bad, bad])).run("go")
    assert list(caught.value.errors) == ["bad", "bad#2"]


async def test_a_resume_tries_only_the_failed_branches_again() -> None:
    broken, taken = [True], list[str]()

    @agent("flaky")
    async def flaky(ctx: AgentContext) -> None:
        if broken.pop() if broken else False:
            raise ValueError("not yet")
        await ctx.say("flaky")

    @agent("steady")
    async def steady(ctx: AgentContext) -> None:
        await ctx.say(await ctx.step("take", lambda: taken.append("x") or "taken"))

    runner = Runner(ParallelAgent("P", sub_agents=[flaky, steady]))
    with pytest.raises(BranchesFailedError):
        await runner.run("go", run_id="r")
    result = await runner.resume("r")
    assert (texts(result), taken) == (["flaky", "taken"], ["x"])


async def test_fail_fast_stops_the_others_at_the_first_error() -> None:
    stopped: list[str] = []

    @agent("endless")
    async def endless(ctx: AgentContext) -> None:
        try:
            await forever()
        finally:
            stopped.append("endless")

    branches = [endless, failing("f")]
    with pytest.raises(ValueError, match="f cannot"):
        await Runner(ParallelAgent("P", sub_agents=branches, on_error="fail_fast")).run("go")
    assert stopped == ["endless"]


async def test_fail_fast_waits_for_questions_if_nothing_fails() -> None:
    gate = asyncio.Event()
    branches = [asker("a"), waiting("w", gate), opening("o", gate)]
    runner = Runner(ParallelAgent("P", sub_agents=branches, on_error="fail_fast"))
    result = await answered(runner, await runner.run("go"))
    assert texts(result) == ["a begins", "a: yes to a?", "w", "o"]


async def test_ignore_goes_on_without_the_branches_that_failed() -> None:
    # All that is left of them is a message that says so, on resume as well.
    tries: list[str] = []

    @agent("bad")
    async def bad(ctx: AgentContext) -> None:
        ctx.values.set("x", "bad")
        await ctx.say("half")
        tries.append("bad")
        raise ValueError("no")

    seen: list[list[str]] = []
    both = ParallelAgent("P", sub_agents=[speaker("a"), bad, speaker("b")], on_error="ignore")
    runner = Runner(SequentialAgent("S", sub_agents=[both, asker("ask"), reader("z", seen)]), history="verbatim")
    result = await runner.run("go", values={"x": "before"})
    result = await answered(runner, result)
    assert texts(result)[:3] == ["a", "[bad] failed: ValueError: no", "b"]
    assert seen[-1][:4] == ["go", "a", "[bad] failed: ValueError: no", "b"]
    assert (result.values["x"], tries) == ("before", ["bad"])
    await check_replay(runner, result)


async def test_ignore_leaves_failed_branches_out_of_the_output() -> None:
    result = await Runner(ParallelAgent("P", sub_agents=[failing("f"), speaker("a")], on_error="ignore")).run("go")
    assert result.output == {"a": "a"}


@pytest.mark.parametrize("policy", ["collect", "ignore", "fail_fast"])
async def test_an_error_that_ends_the_run_also_ends_it_from_a_branch(policy: Any) -> None:
    model = ScriptedModel({"A": ["a"], "B": ["b"]})
    branches = [Agent("A"), Agent("B"), speaker("c")]
    runner = Runner(ParallelAgent("P", sub_agents=branches, on_error=policy), model=model, limits=Limits(model_calls=1))
    with pytest.raises(LimitError, match="1 model_calls"):
        await runner.run("go")


async def test_a_question_comes_before_errors_beside_it() -> None:
    # The failed branch is tried again when the answer is there.
    runner = Runner(ParallelAgent("P", sub_agents=[failing("f"), asker("a"), speaker("b")]))
    result = await runner.run("go")
    assert [question.agent for question in result.interrupts] == ["a"]
    with pytest.raises(BranchesFailedError, match="1 of the branches of `P` failed: `f`"):
        await runner.resume(result.run_id, "yes")


async def test_a_question_is_closed_when_what_is_around_it_has_failed() -> None:
    # The answer is not needed any more, so the interrupt is closed.
    def fast() -> ParallelAgent:
        return ParallelAgent("F", sub_agents=[asker("a"), failing("f")], on_error="fail_fast")

    model = ScriptedModel({"A": [call("f", request="x"), "done"]})
    called = await Runner(Agent("A", tools=[fast().as_tool()]), model=model).run("go")
    ignored = await Runner(ParallelAgent("P", sub_agents=[fast(), asker("b")], on_error="ignore")).run("go")
    report = then_transfer(
        ParallelAgent("F", sub_agents=[asker("a"), failing("f")], on_error="fail_fast", handoffs=[speaker("z")]),
        to="z",
        on_error="report",
    )
    reported = await Runner(report).run("go")
    assert [result.status for result in (called, ignored, reported)] == ["completed", "suspended", "completed"]
    assert [question.agent for result in (called, ignored, reported) for question in result.interrupts] == ["b"]


async def test_a_branch_that_lets_out_a_cancellation_has_failed() -> None:
    @agent("gives_up")
    async def gives_up(ctx: AgentContext) -> None:
        raise asyncio.CancelledError

    runner = Runner(ParallelAgent("P", sub_agents=[gives_up, speaker("a")]))
    with pytest.raises(BranchesFailedError, match="CancelledError"):
        await runner.run("go")


# --- limits of a branch


async def test_no_more_branches_than_allowed_run_at_once() -> None:
    running, most = [0], [0]

    def busy(name: str) -> BaseAgent[Any, Any]:
        @agent(name, description=name)
        async def work(ctx: AgentContext) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0)
            running[0] -= 1
            await ctx.say(name)

        return work

    names = [f"b{number}" for number in range(6)]
    runner = Runner(ParallelAgent("P", sub_agents=[busy(name) for name in names], max_concurrency=2))
    result = await runner.run("go")
    assert (most, texts(result)) == ([2], names)
    await check_replay(runner, result)


async def test_a_question_does_not_keep_the_place_of_a_branch() -> None:
    branches = [asker("a"), asker("b"), speaker("c")]
    runner = Runner(ParallelAgent("P", sub_agents=branches, max_concurrency=1))
    result = await runner.run("go")
    assert [question.agent for question in result.interrupts] == ["a", "b"]
    assert texts(result) == ["a begins", "b begins", "c"]
    assert texts(await answered(runner, result)) == ["a begins", "a: yes to a?", "b begins", "b: yes to b?", "c"]


@pytest.mark.parametrize("policy", ["collect", "ignore"])
async def test_a_branch_that_takes_too_long(policy: Any) -> None:
    clock, never = FrozenLoopClock(), asyncio.Event()
    branches = [waiting("slow", never), speaker("a")]
    parallel = ParallelAgent("P", sub_agents=branches, branch_timeout=60, on_error=policy)

    async def run_until_it_is_late() -> RunResult[Any]:
        async with Runner(parallel).stream("go") as run:
            async for event in run:
                if isinstance(event, AgentFinished) and event.agent == "a":
                    clock.advance(60)
        return run.result

    if policy == "ignore":
        result = await run_until_it_is_late()
        assert texts(result) == [
            "[slow] failed: BranchTimeoutError: branch `slow` of `P` did not finish within 60 s",
            "a",
        ]
        await check_replay(Runner(parallel), result)
        return
    with pytest.raises(BranchesFailedError) as caught:
        await run_until_it_is_late()
    assert isinstance(caught.value.errors["slow"], BranchTimeoutError)
    assert list(caught.value.errors) == ["slow"]


async def test_a_timeout_of_the_branchs_own_is_an_error_like_any_other() -> None:
    parallel = ParallelAgent("P", sub_agents=[failing("f", TimeoutError("mine"))], branch_timeout=60)
    with pytest.raises(BranchesFailedError, match="TimeoutError: mine"):
        await Runner(parallel).run("go")


# --- delivery and cancel


async def test_events_are_delivered_as_they_happen() -> None:
    gate = asyncio.Event()
    runner = Runner(ParallelAgent("P", sub_agents=[waiting("w", gate), speaker("a")]))
    said: list[str] = []
    async with runner.stream("go") as run:
        async for event in run:
            if isinstance(event, AgentResponded):
                said.append(event.text)
                gate.set()  # Only now can the other go on: what was said has come out before.
    assert said == ["a", "w"]
    assert texts(run.result) == ["w", "a"]


async def test_cancel_reaches_every_branch_and_leaves_nothing_running() -> None:
    stopped: list[str] = []
    ready = asyncio.Barrier(4)

    def endless(name: str) -> BaseAgent[Any, Any]:
        @agent(name, description=name)
        async def wait(ctx: AgentContext) -> None:
            await ctx.say(name)
            try:
                await ready.wait()
                await forever()
            finally:
                await asyncio.sleep(0)  # Cleaning up takes a moment, and is waited for.
                stopped.append(name)

        return wait

    inner = ParallelAgent("In", sub_agents=[endless("b"), endless("c")])
    runner = Runner(ParallelAgent("P", sub_agents=[endless("a"), SequentialAgent("S", sub_agents=[inner])]))
    before = asyncio.all_tasks()
    async with runner.stream("go", run_id="r") as run:
        await ready.wait()
        await run.cancel()
        assert sorted(stopped) == ["a", "b", "c"]
    assert asyncio.all_tasks() == before
    assert (run.result.status, texts(run.result)) == ("cancelled", ["a", "b", "c"])


async def test_a_run_cancelled_twice_still_waits_for_its_branches() -> None:
    stopped: list[str] = []
    begun = asyncio.Event()

    @agent("slow_to_stop")
    async def slow_to_stop(ctx: AgentContext) -> None:
        begun.set()
        try:
            await forever()
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)
            raise
        finally:
            stopped.append("x")

    before = asyncio.all_tasks()
    task = asyncio.ensure_future(Runner(ParallelAgent("P", sub_agents=[slow_to_stop, speaker("a")])).run("go"))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stopped, asyncio.all_tasks()) == (["x"], before)


async def test_a_cancelled_run_goes_on_where_its_branches_were() -> None:
    gate, taken = asyncio.Event(), list[str]()

    @agent("a")
    async def a(ctx: AgentContext) -> None:
        await ctx.step("take", lambda: taken.append("a") or 1)
        await gate.wait()
        await ctx.say("a")

    runner = Runner(ParallelAgent("P", sub_agents=[a, speaker("b")]))
    async with runner.stream("go", run_id="r") as run:
        async for event in run:
            if isinstance(event, AgentResponded):
                break
    gate.set()
    result = await runner.resume("r")
    assert (texts(result), taken) == (["a", "b"], ["a"])


# --- what functions bring in


async def test_two_branches_may_each_bring_in_an_agent_of_the_same_name() -> None:
    def host(name: str) -> BaseAgent[Any, Any]:
        @tool
        async def fetch() -> BaseAgent[Any, Any]:
            """Fetch an expert."""
            await asyncio.sleep(0)
            return speaker("Expert", f"the expert of {name}")

        return Agent(name, tools=[fetch])

    model = ScriptedModel({"A": [call("fetch")], "B": [call("fetch")]})
    result = await Runner(ParallelAgent("P", sub_agents=[host("A"), host("B")]), model=model).run("go")
    assert result.output == {"A": "the expert of A", "B": "the expert of B"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sub_agents": []}, "`P` has no steps"),
        ({"on_error": "explode"}, "on_error of `P` is 'explode'; it can be: `collect`, `fail_fast`, `ignore`"),
        ({"max_concurrency": 0}, "`P` has max_concurrency=0; give at least 1, or None for no limit"),
        ({"max_concurrency": "2"}, "`P` has max_concurrency='2'; give at least 1"),
        ({"branch_timeout": 0}, "`P` has branch_timeout=0; give seconds above 0, or None for no limit"),
        ({"branch_timeout": "1 s"}, "`P` has branch_timeout='1 s'; give seconds above 0"),
        ({"reducers": {"x": 3}}, r"`P` has reducers\['x'\]=3; give a function \(current, written\)"),
    ],
)
def test_a_parallel_that_cannot_work(options: dict[str, Any], complaint: str) -> None:
    make: Any = ParallelAgent
    with pytest.raises(SetupError, match=complaint):
        make("P", **{"sub_agents": [speaker("a")], **options})


# --- the acceptance: nested branches that ask


@pytest.mark.parametrize("order", [0, -1])
@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_questions_in_nested_branches_answered_one_at_a_time(order: int, is_elsewhere: bool) -> None:
    taken: list[str] = []
    seen: list[list[str]] = []

    def taking(name: str, *, asks: bool = False) -> BaseAgent[Any, Any]:
        @agent(name, description=name)
        async def take(ctx: AgentContext) -> None:
            await ctx.step("take", lambda: taken.append(name) or name)
            answer = await ctx.interrupt(f"{name}?") if asks else "done"
            await ctx.say(f"{name} {answer}")

        return take

    def make() -> Runner[Any, Any]:
        inner = ParallelAgent("In", sub_agents=[taking("i1", asks=True), taking("i2", asks=True)])
        outer = ParallelAgent("Out", sub_agents=[taking("o1"), inner, taking("o2")])
        return Runner(SequentialAgent("S", sub_agents=[taking("pre"), outer, reader("post", seen)]), history="verbatim")

    runner = make()
    result = await runner.run("go")
    delivered: list[Event] = list(result.events)
    assert [question.path for question in result.interrupts] == [
        ("S", "pre", "Out", "In", "i1"),
        ("S", "pre", "Out", "In", "i2"),
    ]
    for left in (1, 0):
        question = result.interrupts[order]
        if is_elsewhere:
            result = await elsewhere(make, result, {question.id: "yes"})
        else:
            result = await runner.resume(result.run_id, {question.id: "yes"})
        assert len(result.interrupts) == left
        assert result.events[: len(delivered)] == tuple(delivered)
    everything = ["pre done", "o1 done", "i1 yes", "i2 yes", "o2 done"]
    assert (texts(result), seen) == ([*everything, "post"], [["go", *everything]])
    assert sorted(taken) == sorted(["pre", "o1", "i1", "i2", "o2"]), "something was done twice, or never"
    started = [event.agent for event in result.events if isinstance(event, AgentStarted)]
    assert sorted(started) == sorted(["S", "pre", "Out", "o1", "In", "i1", "i2", "o2", "post"])
    await check_replay(make(), result)


async def test_the_join_is_the_same_live_and_after_a_resume() -> None:
    def make() -> Runner[Any, Any]:
        branches = [
            passing("a", speaker("a2")),
            asker("b"),
            SequentialAgent("S", sub_agents=[speaker("c"), asker("d")]),
        ]
        return Runner(SequentialAgent("R", sub_agents=[ParallelAgent("P", sub_agents=branches), speaker("z")]))

    expected = ["a", "a2", "b begins", "b: yes to b?", "c", "d begins", "d: yes to d?", "z"]
    for chosen in (slice(None), slice(1), slice(-1, None)):
        runner = make()
        result = await runner.run("go")
        while result.status == "suspended":
            answers = {question.id: answer_of(question) for question in result.interrupts[chosen]}
            result = await runner.resume(result.run_id, answers)
        assert texts(result) == expected
