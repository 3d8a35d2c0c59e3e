"""The crash laboratory: good teams survive it, and what is wrong with others is named."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from batonkit import Agent, AgentContext, RunContext, Runner, Transfer, agent, tool
from batonkit.agents import RunHooks
from batonkit.errors import OverloadedError
from batonkit.messages import ToolSpec
from batonkit.models import RetryModel
from batonkit.runs import Interrupt
from batonkit.stores import MemoryStore, Store
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, crash_report, transfer_to
from batonkit.tools import ToolResult
from batonkit.workflows import LoopAgent, ParallelAgent, SequentialAgent

NewRunner = Callable[[Store], Runner[Any, Any]]


@tool(effect="once")
async def pay(ctx: RunContext[Any], amount: int) -> str:
    """Pay."""
    ctx.context.append(amount)
    return f"paid {amount}"


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask the customer."""
    colour = await ctx.step("look up", lambda: "green")
    return f"{colour}, {await ctx.interrupt('Really?')}"


@tool(needs_approval=True)
async def ship(what: str) -> str:
    """Ship something."""
    return f"{what} shipped"


@tool
async def count_up(ctx: RunContext[Any], by: int) -> str:
    """Count."""
    ctx.values.set("count", ctx.values.get("count", 0) + by)
    return f"counted {by}"


@tool(effect="read")
async def read() -> str:
    """Read."""
    return "read"


def desk(store: Store) -> Runner[Any, Any]:
    books = Agent("Books", description="Keeps the books.", tools=[pay, ask, ship])
    front = Agent("Desk", description="Greets.", sub_agents=[books])
    steps = {
        "Desk": [transfer_to("Books")],
        "Books": [[call("pay", amount=3), call("ask")], call("ship", what="lamp"), "Done."],
    }
    return Runner(front, model=ScriptedModel(steps), store=store)


def workflow(store: Store) -> Runner[Any, Any]:
    both = ParallelAgent("Both", sub_agents=[Agent("One", tools=[count_up]), Agent("Two", tools=[read])])
    rounds = LoopAgent("Rounds", sub_agents=[Agent("Three", tools=[count_up])], max_iterations=2)
    steps = {
        "One": [call("count_up", by=1), "one"],
        "Two": [[call("read"), call("read")], "two"],
        "Three": [call("count_up", by=2), "three", call("count_up", by=3), "three again"],
    }
    return Runner(SequentialAgent("All", sub_agents=[both, rounds]), model=ScriptedModel(steps), store=store)


def nested(store: Store) -> Runner[Any, Any]:
    inner = Agent("Inner", description="Helps.", tools=[ask, count_up])
    model = ScriptedModel({"Outer": [call("inner", request="x"), "out"], "Inner": [call("ask"), "in"]})
    return Runner(Agent("Outer", tools=[inner.as_tool()]), model=model, store=store)


class Hooks(RunHooks):
    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: Any) -> None:
        ctx.values.set("started", ctx.values.get("started", 0) + 1)

    async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        await ctx.step("note", lambda: "noted")


def of_code(store: Store) -> Runner[Any, Any]:
    target = Agent(
        "Target", description="Counts.", tools=[count_up], model=ScriptedModel([call("count_up", by=4), "4"])
    )

    @agent("Code", handoffs=[target])
    async def code(ctx: AgentContext[Any]) -> Transfer:
        await ctx.say(f"hello {await ctx.step('name', lambda: 'Ada')}")
        ctx.values.set("more", await ctx.interrupt("More?"))
        await ctx.say("on to the next")
        return Transfer("Target")

    return Runner(code, store=store, hooks=Hooks())


def retrying(store: Store) -> Runner[Any, Any]:
    steps = [OverloadedError("full"), call("count_up", by=1), OverloadedError("full"), "ok"]
    model = RetryModel(ScriptedModel(steps), initial_delay=0.0001, should_retry=lambda error: True)
    return Runner(Agent("Patient", tools=[count_up]), model=model, store=store)


def failing(store: Store) -> Runner[Any, Any]:
    steps = [call("count_up", by=1), RuntimeError("the line is dead")]
    return Runner(Agent("Unlucky", tools=[count_up]), model=ScriptedModel(steps), store=store)


def answer(interrupt: Interrupt) -> Any:
    return True if interrupt.tool_call is not None and interrupt.tool_call.name == "ship" else "yes"


@pytest.mark.parametrize("new_runner", [desk, workflow, nested, of_code, retrying, failing])
async def test_teams_survive_a_crash_after_every_event(new_runner: NewRunner) -> None:
    report = await assert_survives_crashes(new_runner, "Go.", answers=answer, new_context=list, outside=list)
    assert report.crashes > report.events >= 5
    assert report.resumes >= report.crashes


async def test_each_event_and_each_commit_is_a_place_to_die() -> None:
    def quick(store: Store) -> Runner[Any, Any]:
        return Runner(Agent("A", tools=[count_up]), model=ScriptedModel([call("count_up", by=1), "ok"]), store=store)

    report = await assert_survives_crashes(quick, "Go.")
    # The last event leaves nothing to do, but a crash may precede the storing of the run's status.
    assert report.events == 7
    assert report.events <= report.crashes <= report.events + report.commits
    assert (
        str(report)
        == f"{report.crashes} crashes in a run of 7 events, {report.resumes} resumes: the same outcome every time"
    )


async def test_a_once_tool_whose_result_was_lost_is_asked_about_and_not_run_again() -> None:
    paid: list[list[int]] = []

    def watched() -> list[int]:
        paid.append([])
        return paid[-1]

    await assert_survives_crashes(desk, "Go.", answers=answer, new_context=watched)
    assert paid
    assert all(world == [3] for world in paid)


async def test_a_once_tool_that_is_the_answer_is_so_also_when_a_person_tells_what_it_gave() -> None:
    @tool(effect="once", return_directly=True)
    async def decide() -> str:
        """Decide."""
        return "decided"

    def new_runner(store: Store) -> Runner[Any, Any]:
        return Runner(Agent("Judge", tools=[decide]), model=ScriptedModel([call("decide")]), store=store)

    await assert_survives_crashes(new_runner, "Go.")


async def test_state_in_the_memory_of_a_process_is_noticed() -> None:
    def basket_in_memory(store: Store) -> Runner[Any, Any]:
        basket: list[str] = []

        @tool
        async def put(item: str) -> str:
            """Put something into the basket."""
            basket.append(item)
            return "it is in the basket"

        @tool
        async def check_out() -> str:
            """Pay for what is in the basket."""
            return f"{len(basket)} things paid for"

        steps = [call("put", item="lamp"), call("check_out"), "Thank you."]
        return Runner(Agent("Shop", tools=[put, check_out]), model=ScriptedModel(steps), store=store)

    report = await crash_report(basket_in_memory, "A lamp, please.")
    first = report.divergences[0]
    assert (first.event, first.place) == (
        4,
        "killed after event 4 of 9 (1/m1.0: Shop: put -> it is in the basket), when it was stored",
    )
    assert "- event 1/m2.0: Shop: check_out -> 1 things paid for" in first.differences
    assert "+ event 1/m2.0: Shop: check_out -> 0 things paid for" in first.differences
    with pytest.raises(AssertionError, match=r"killed after event 4 of 9 .*\n.*\n.*0 things paid for"):
        await assert_survives_crashes(basket_in_memory, "A lamp, please.")


async def test_an_effect_that_happens_twice_outside_is_noticed() -> None:
    def new_runner(store: Store, *, effect: Any) -> Runner[Any, Any]:
        @tool(effect=effect)
        async def send(ctx: RunContext[Any], text: str) -> str:
            """Send a letter."""
            ctx.context.append(text)
            return "sent"

        return Runner(Agent("Post", tools=[send]), model=ScriptedModel([call("send", text="Hi"), "Sent."]), store=store)

    report = await crash_report(
        lambda store: new_runner(store, effect="idempotent"), "Go.", new_context=list, outside=list
    )
    assert {divergence.event for divergence in report.divergences} == {3}
    assert all("+ outside: ['Hi', 'Hi']" in each.differences for each in report.divergences)
    await assert_survives_crashes(lambda store: new_runner(store, effect="once"), "Go.", new_context=list, outside=list)


async def test_code_before_a_question_runs_again_unless_it_is_a_step() -> None:
    def new_runner(store: Store, *, in_step: bool) -> Runner[Any, Any]:
        @tool
        async def order(ctx: RunContext[Any]) -> str:
            """Order something."""
            if in_step:
                await ctx.step("charge", lambda: ctx.context.setdefault(ctx.idempotency_key, "charged"))
            else:
                ctx.values.set("charges", ctx.context.setdefault("charges", 0) + 1)
                ctx.context["charges"] += 1
            return f"ordered, {await ctx.interrupt('Sure?')}"

        return Runner(Agent("Shop", tools=[order]), model=ScriptedModel([call("order"), "Ok."]), store=store)

    await assert_survives_crashes(lambda store: new_runner(store, in_step=True), "Go.", answers="yes", new_context=dict)
    report = await crash_report(lambda store: new_runner(store, in_step=False), "Go.", answers="yes", new_context=dict)
    assert report.divergences


async def test_an_agent_that_looks_at_the_clock_is_not_repeatable() -> None:
    clock = count()

    def new_runner(store: Store) -> Runner[Any, Any]:
        @agent("Clock")
        async def clock_agent(ctx: AgentContext[Any]) -> None:
            await ctx.say(f"it is {next(clock)} o'clock")

        return Runner(clock_agent, store=store)

    report = await crash_report(new_runner, "What time is it?")
    assert (report.crashes, report.divergences[0].event) == (0, 0)
    assert "a second run differs from the first" in str(report)
    assert '+ output: "it is 2 o\'clock"' in report.divergences[0].differences
    await assert_survives_crashes(
        new_runner, "What time is it?", normalize=lambda line: "".join(c for c in line if not c.isdigit())
    )


async def test_code_that_does_something_else_over_its_log_is_named() -> None:
    def new_runner(store: Store) -> Runner[Any, Any]:
        is_first = iter([True])

        @agent("Moody")
        async def moody(ctx: AgentContext[Any]) -> None:
            if next(is_first, False):
                await ctx.step("warm up", lambda: "warm")
            await ctx.say("hello")

        return Runner(moody, store=store)

    report = await crash_report(new_runner, "Hi.")
    assert report.divergences[0].place.startswith("without a crash, replaying the log of the run behaves differently")
    assert "ReplayMismatchError" in report.divergences[0].differences[0]


async def test_code_that_depends_on_how_often_it_ran_is_named() -> None:
    def new_runner(store: Store) -> Runner[Any, Any]:
        @agent("Counting")
        async def counting(ctx: AgentContext[Any]) -> None:
            ctx.context.append("ran")
            steps = ["a", "b"] if len(ctx.context) % 2 else ["b"]
            for step in steps:
                await ctx.step(step, lambda: "done")

        return Runner(counting, store=store)

    report = await crash_report(new_runner, "Go.", new_context=list)
    assert report.divergences


async def test_a_team_that_changes_between_processes_is_named() -> None:
    names = count()

    def new_runner(store: Store) -> Runner[Any, Any]:
        # Only the third runner is another one: it takes up the first run that was killed.
        name = "Other" if next(names) == 3 else "Same"
        return Runner(Agent(name), model=ScriptedModel(["ok"]), store=store)

    report = await crash_report(new_runner, "Go.")
    assert "TeamChangedError" in str(report)


async def test_a_question_without_an_answer_is_told_with_its_id() -> None:
    with pytest.raises(
        AssertionError, match=r"`Books` raised interrupt `2/m1.1/ask1` \('Really\?'\), and answers=… does not answer it"
    ):
        await assert_survives_crashes(desk, "Go.", new_context=list)
    with pytest.raises(AssertionError, match=r"raised interrupt `2/m2\.0/ask1`"):
        await assert_survives_crashes(desk, "Go.", answers={"2/m1.1/ask1": "yes"}, new_context=list)
    await assert_survives_crashes(desk, "Go.", answers={"2/m1.1/ask1": "yes", "2/m2.0/ask1": True}, new_context=list)


async def test_a_runner_that_keeps_its_run_elsewhere_is_refused() -> None:
    def new_runner(store: Store) -> Runner[Any, Any]:
        return Runner(Agent("A"), model=ScriptedModel(["ok"]), store=MemoryStore())

    with pytest.raises(Exception, match="does not use the store that it is given"):
        await assert_survives_crashes(new_runner, "Go.")


async def test_the_team_is_left_as_it_was() -> None:
    member = Agent("A", tools=[count_up])

    def new_runner(store: Store) -> Runner[Any, Any]:
        return Runner(member, model=ScriptedModel([call("count_up", by=1), "ok"]), store=store)

    await assert_survives_crashes(new_runner, "Go.")
    assert member._tool_table.by_name["count_up"] is count_up


async def test_one_scripted_model_may_serve_all_processes() -> None:
    model = ScriptedModel([call("count_up", by=1), "ok"])
    await assert_survives_crashes(lambda store: Runner(Agent("A", tools=[count_up]), model=model, store=store), "Go.")


async def test_a_tool_that_says_once_and_does_it_again_is_named() -> None:
    class Careless:
        """Says that it must not run twice, and records no intent."""

        effect = "once"

        @property
        def spec(self) -> ToolSpec:
            return ToolSpec("send", "Send a letter.", {"type": "object", "properties": {}})

        async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
            return ToolResult("sent")

    def new_runner(store: Store) -> Runner[Any, Any]:
        return Runner(Agent("Post", tools=[Careless()]), model=ScriptedModel([call("send"), "Sent."]), store=store)

    report = await crash_report(new_runner, "Go.")
    assert {divergence.event for divergence in report.divergences} == {3}
    assert all(
        divergence.differences == ["+ executed 2 times: `send` (1/m1.0), which must run once"]
        for divergence in report.divergences
    )


async def test_a_report_is_json_that_studio_opens() -> None:
    report = await crash_report(lambda store: Runner(Agent("Desk"), model=ScriptedModel(["hi"]), store=store), "hello")
    decoded = json.loads(report.to_json())
    assert (decoded["format"], decoded["version"], decoded["kind"]) == ("baton-report", 1, "crashes")
    assert decoded["counts"]["crashes"] == report.crashes > 0
    assert decoded["findings"] == []
    assert decoded["log"][0]["type"] == "RunStarted"
    assert len(decoded["log"]) == report.events
