"""Plan, do, look again: the plan is a typed value in the run's values, and nothing is kept outside the log."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.patterns.team_work import ask, fail, taken_up

from baton import (
    Agent,
    AgentContext,
    BaseAgent,
    Exit,
    ParallelAgent,
    RunContext,
    Runner,
    SetupError,
    agent,
    plan_execute,
    supervisor,
    tool,
)
from baton.errors import BranchesFailedError, LimitError, OutputError, ToolFailedError
from baton.events import ToolReturned
from baton.messages import Image, Text, ToolMessage, UserMessage, text_of
from baton.patterns import PLAN_EXECUTE_KEY, ParallelPlan, Plan, make_executor, make_planner, make_replanner
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, call, transcript


def plan(*steps: Any) -> str:
    return msgspec.json.encode({"steps": steps}).decode()


def trip(**options: Any) -> BaseAgent[Any, str]:
    facts: dict[str, Any] = {
        "planner": make_planner(),
        "executor": make_executor(tools=[ask, fail]),
        "replanner": make_replanner(),
        "name": "Trip",
        "description": "Plans trips.",
    }
    return plan_execute(**{**facts, **options})


def told(model: ScriptedModel, agent: str, turn: int = 0) -> str:
    """All that an agent was told before one of its turns."""
    asked = [request for request in model.requests if request.agent == agent]
    return "\n---\n".join(text_of(message.content) for message in asked[turn].messages)


async def test_a_plan_is_made_done_and_looked_at_again_until_there_is_an_answer() -> None:
    # P2
    model = ScriptedModel(
        {
            "Planner": [plan("find a train", "find a hotel", "write it up")],
            "Executor": ["ICE at 9:40", "Hotel Roma, 80 EUR"],
            "Replanner": [call("plan", steps=["find a hotel"]), call("respond", response="ICE 9:40, Hotel Roma.")],
        }
    )
    result = await Runner(trip(), model=model).run("A trip to Rome")
    model.assert_done()
    assert (result.agent, result.output) == ("Trip", "ICE 9:40, Hotel Roma.")
    assert [line for line in transcript(result.events) if "started" in line] == snapshot(
        [
            'run of Trip started with "A trip to Rome"',
            "Trip started",
            "Trip.plan started",
            "Planner started",
            "Trip.loop started",
            "Trip.execute started",
            "Executor started",
            "Trip.replan started",
            "Replanner started",
            "Trip.execute started",
            "Executor started",
            "Trip.replan started",
            "Replanner started",
        ]
    )
    assert told(model, "Executor", 1) == snapshot(
        """\
Objective:
A trip to Rome

Plan:
1. find a hotel

Completed steps:
1. find a train
   Result: ICE at 9:40

Your step:
find a hotel\
"""
    )
    assert told(model, "Replanner", 0) == snapshot(
        """\
Objective:
A trip to Rome

Plan:
1. find a train
2. find a hotel
3. write it up

Completed steps:
1. find a train
   Result: ICE at 9:40

Which steps remain? If none, what is the answer?\
"""
    )


async def test_the_progress_is_left_under_a_documented_key() -> None:
    # P4
    model = ScriptedModel(
        {"Planner": [plan("look")], "Executor": ["seen"], "Replanner": [call("respond", response="I looked.")]}
    )
    result = await Runner(trip(), model=model).run("Look")
    assert result.values == {
        f"{PLAN_EXECUTE_KEY}:Trip": {
            "objective": "Look",
            "plan": {"steps": ["look"]},
            "done": [{"step": "look", "result": "seen"}],
            "rounds": 1,
            "answer": "I looked.",
            "is_complete": True,
        }
    }
    # The answer is plain text, in the messages as well.
    assert result.messages[-1].content == "I looked."


async def test_who_comes_after_reads_what_happened_inside() -> None:
    # W6
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_trip"), "thanks"],
            "Planner": [plan("look")],
            "Executor": [call("ask", question="?"), "seen"],
            "Replanner": [call("respond", response="I looked.")],
        }
    )
    runner = Runner(supervisor(Agent("Boss"), sub_agents=[trip()]), model=model)
    stopped = await runner.run("Look")
    await runner.resume(stopped.run_id, "yes")
    assert told(model, "Boss", 1).split("\n---\n")[-7:] == [
        'For context: [Planner] said: {"steps":["look"]}.',
        'For context: [Executor] called tool: `ask` with arguments: {"question":"?"}.',
        "For context: [Executor] `ask` tool returned result: yes.",
        "For context: [Executor] said: seen.",
        'For context: [Replanner] called tool: `respond` with arguments: {"response":"I looked."}.',
        'For context: [Replanner] `respond` tool returned result: {"response":"I looked."}.',
        "For context: [Trip] said: I looked..",
    ]
    # What leads to a worker is no part of what is asked of it.
    assert told(model, "Executor").startswith("Objective:\nLook\n\nPlan:")


@pytest.mark.parametrize("by", ["output", "tool"])
async def test_a_planner_gives_the_plan_as_output_or_with_a_tool(by: Any) -> None:
    # P2
    given = plan("look") if by == "output" else call("plan", steps=["look"])
    model = ScriptedModel(
        {"Planner": [given], "Executor": ["seen"], "Replanner": [call("respond", response="I looked.")]}
    )
    result = await Runner(trip(planner=make_planner(method=by)), model=model).run("Look")
    assert result.output == "I looked."
    assert model.requests[0].tool_choice == (None if by == "output" else "plan")


async def test_a_plan_that_does_not_fit_goes_back_to_the_model() -> None:
    # P2
    model = ScriptedModel(
        {
            "Planner": [call("plan", stops=["look"]), call("plan", steps=["look"])],
            "Executor": ["seen"],
            "Replanner": [call("plan", steps="all"), call("respond", response="I looked.")],
        }
    )
    result = await Runner(trip(planner=make_planner(method="tool")), model=model).run("Look")
    refused = [event for event in result.events if isinstance(event, ToolReturned) and event.is_error]
    assert [(event.agent, "not a plan" in text_of(event.content)) for event in refused] == [
        ("Planner", True),
        ("Replanner", True),
    ]


class Day(BaseModel):
    city: str
    nights: int


class Itinerary(BaseModel):
    days: list[Day]

    @property
    def steps(self) -> list[Day]:
        return self.days


async def test_the_plan_may_be_of_any_type_with_steps() -> None:
    # P2
    days = [{"city": "Rome", "nights": 2}, {"city": "Bari", "nights": 1}]
    model = ScriptedModel(
        {
            "Planner": [msgspec.json.encode({"days": days}).decode()],
            "Executor": ["booked Rome", "booked Bari"],
            "Replanner": [call("plan", days=days[1:]), call("respond", response="Booked.")],
        }
    )
    team = trip(
        planner=make_planner(plan_type=Itinerary), replanner=make_replanner(plan_type=Itinerary), plan_type=Itinerary
    )
    result = await Runner(team, model=model).run("Italy")
    assert told(model, "Executor", 1).endswith('Your step:\n{"city":"Bari","nights":1}')
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["plan"] == {"days": days[1:]}


async def test_at_the_limit_the_answer_is_what_was_done_and_says_so() -> None:
    # P2
    model = ScriptedModel(
        {
            "Planner": [plan("one", "two", "three")],
            "Executor": ["first result", "second result"],
            "Replanner": [call("plan", steps=["two", "three"]), call("plan", steps=["three"])],
        }
    )
    result = await Runner(trip(max_iterations=2), model=model).run("Count")
    assert result.output == snapshot(
        """\
Not finished: this is what was done in 2 rounds.

1. one
   Result: first result
2. two
   Result: second result

Remaining steps:
1. three\
"""
    )
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["is_complete"] is False
    # Before, the replanner was told that it is its last chance.
    assert "This is the last round" not in told(model, "Replanner", 0)
    assert "This is the last round" in told(model, "Replanner", 1)


async def test_without_a_limit_the_runs_limits_hold() -> None:
    model = ScriptedModel(
        {"Planner": [plan("on")], "Executor": ["went"], "Replanner": [call("plan", steps=["on"])]}, cycle=True
    )
    with pytest.raises(LimitError, match="model_calls"):
        await Runner(trip(max_iterations=0), model=model).run("on and on")


async def test_an_empty_plan_does_nothing_but_ask_for_the_answer() -> None:
    model = ScriptedModel({"Planner": [plan()], "Replanner": [call("respond", response="Nothing to do.")]})
    for options in ({}, {"parallel_steps": True}):
        result = await Runner(
            trip(**options), model=ScriptedModel({"Planner": [plan()], "Replanner": ["Nothing."]})
        ).run("")
        assert result.output == "Nothing."
    assert (await Runner(trip(), model=model).run("Rest")).output == "Nothing to do."


async def test_any_agent_may_plan_do_and_look() -> None:
    # P2: code as planner, a supervisor as executor, a plain agent as replanner.
    @agent("Planner", description="Plans.")
    async def planner(ctx: AgentContext) -> None:
        ctx.output = Plan(["look"])

    workers = [Agent("Eyes", description="See."), Agent("Ears", description="Hear.")]
    executor = supervisor(Agent("Lead", description="Leads."), sub_agents=workers)
    model = ScriptedModel(
        {
            "Lead": [call("transfer_to_eyes"), call("transfer_to_ears"), "seen and heard"],
            "Eyes": ["seen"],
            "Ears": ["heard"],
            "Judge": ["It was seen and heard."],
        }
    )
    result = await Runner(trip(planner=planner, executor=executor, replanner=Agent("Judge")), model=model).run("Look")
    assert result.output == "It was seen and heard."
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"] == [{"step": "look", "result": "seen and heard"}]


async def test_what_is_no_plan_is_an_error_that_names_its_author() -> None:
    model = ScriptedModel({"Planner": ["First we look, then we leap."]}, cycle=True)
    with pytest.raises(OutputError, match=r"`Planner` must answer with a `Plan`"):
        await Runner(trip(planner=Agent("Planner")), model=model).run("Leap")


async def test_a_plan_type_without_steps_is_said() -> None:
    class Goal(BaseModel):
        goal: str

    model = ScriptedModel({"Planner": ['{"goal":"rest"}']})
    team = trip(planner=make_planner(plan_type=Goal), plan_type=Goal)
    with pytest.raises(SetupError, match="no list `steps`"):
        await Runner(team, model=model).run("Rest")


@pytest.mark.parametrize("who", ["Planner", "Executor", "Replanner"])
async def test_an_exit_ends_the_run_wherever_it_comes_from(who: str) -> None:
    # P2, W1
    class Leaver(BaseAgent[Any, Any]):
        async def run(self, ctx: AgentContext[Any]) -> Exit:
            return Exit(f"{who} left")

    model = ScriptedModel({"Planner": [plan("look")], "Executor": ["seen"], "Boss": [call("transfer_to_trip")]})
    team = supervisor(Agent("Boss"), sub_agents=[trip(**{who.lower(): Leaver(who)})])
    assert (await Runner(team, model=model).run("Look")).output == f"{who} left"


async def test_an_error_in_the_executor_ends_the_run_and_a_resume_tries_again() -> None:
    fails = [True]

    @tool(on_error="raise")
    async def shaky() -> str:
        """Fails at first."""
        if fails.pop() if fails else False:
            raise OSError("not yet")
        return "worked"

    model = ScriptedModel(
        {
            "Planner": [plan("try")],
            "Executor": [call("shaky"), "it worked"],
            "Replanner": [call("respond", response="Tried.")],
        }
    )
    runner = Runner(trip(executor=make_executor(tools=[shaky])), model=model)
    live = runner.stream("Try")
    with pytest.raises(ToolFailedError):
        await live._drive()
    assert (await runner.resume(live.run_id)).output == "Tried."


async def test_a_question_in_the_executor_survives_in_a_fresh_runner() -> None:
    # P2: no state outside the log; the second step asks, the first is not done again.
    script: dict[str, list[Any]] = {
        "Planner": [plan("one", "two")],
        "Executor": ["first", call("ask", question="Which?")],
        "Replanner": [call("plan", steps=["two"])],
    }

    def make() -> Runner[Any, Any]:
        return Runner(trip(), model=ScriptedModel(script))

    stopped = await make().run("Choose")
    (question,) = stopped.interrupts
    assert question.path == (
        "Trip", "Trip.plan", "Trip.loop", "Trip.execute", "Trip.replan", "Trip.execute", "Executor",
    )  # fmt: skip
    script.update(Planner=[], Executor=["second: the left one"], Replanner=[call("respond", response="The left one.")])
    result = await taken_up(make, stopped, {question.id: "left"})
    assert result.output == "The left one."
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"] == [
        {"step": "one", "result": "first"},
        {"step": "two", "result": "second: the left one"},
    ]


def beside(**options: Any) -> BaseAgent[Any, Any]:
    return trip(
        planner=make_planner(plan_type=ParallelPlan),
        replanner=make_replanner(plan_type=ParallelPlan),
        parallel_steps=True,
        **options,
    )


def by_step(answers: dict[str, Any]) -> Any:
    """An executor's answers by the step it is told to do: who is asked first does not matter."""

    def answer(request: Any) -> Any:
        step = text_of(request.messages[0].content).rpartition("\n")[2]
        turn = sum(isinstance(message, ToolMessage) for message in request.messages)
        given: Any = answers[step]
        return cast("list[Any]", given)[turn] if isinstance(given, list) else given

    return answer


async def test_independent_steps_are_done_side_by_side() -> None:
    # P2
    met = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        """Wait for the other one."""
        async with asyncio.timeout(60):
            await met.wait()
        return "met"

    answers = by_step({"train": [call("meet"), "ICE"], "hotel": [call("meet"), "Roma"], "write": "written"})
    model = ScriptedModel(
        {
            "Planner": [plan(["train", "hotel"], "write")],
            "Executor": [answers] * 5,
            "Replanner": [call("plan", steps=["write"]), call("respond", response="Done.")],
        }
    )
    result = await Runner(beside(executor=make_executor(tools=[meet])), model=model).run("Rome")
    assert result.values == {
        f"{PLAN_EXECUTE_KEY}:Trip": {
            "objective": "Rome",
            "plan": {"steps": ["write"]},
            "done": [
                {"step": "train", "result": "ICE"},
                {"step": "hotel", "result": "Roma"},
                {"step": "write", "result": "written"},
            ],
            "rounds": 2,
            "answer": "Done.",
            "is_complete": True,
        }
    }
    # Neither reads of the other; no lane stands idle.
    assert "hotel" not in told(model, "Executor", 0).partition("Completed steps")[2].replace("Your step:\nhotel", "")
    assert [event.agent for event in result.events if event.key.endswith("/start") and ".execute" in event.agent] == [
        "Trip.execute", "Trip.execute.1", "Trip.execute.2", "Trip.execute", "Trip.execute.1",
    ]  # fmt: skip


async def test_more_steps_than_lanes_are_left_for_the_next_round() -> None:
    # P2
    model = ScriptedModel(
        {
            "Planner": [plan(["a", "b", "c"])],
            "Executor": [by_step({"a": "A", "b": "B", "c": "C"})] * 3,
            "Replanner": [call("plan", steps=["c"]), call("respond", response="ABC")],
        }
    )
    team = trip(planner=make_planner(plan_type=ParallelPlan), replanner=make_replanner(), parallel_steps=2)
    result = await Runner(team, model=model).run("Go")
    assert [each["result"] for each in result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"]] == ["A", "B", "C"]


async def test_questions_of_steps_side_by_side_are_asked_together_and_answered_one_by_one() -> None:
    # P2, W5
    runs: list[str] = []

    @tool
    async def book(ctx: RunContext[Any], what: str) -> str:
        """Book something, if a person agrees."""
        answer = await ctx.interrupt(f"book {what}?")
        runs.append(what)
        return f"{what}: {answer}"

    def make(script: dict[str, list[Any]]) -> Runner[Any, Any]:
        return Runner(beside(executor=make_executor(tools=[book])), model=ScriptedModel(script))

    first = by_step({"train": call("book", what="train"), "hotel": call("book", what="hotel"), "bus": "no bus"})
    stopped = await make({"Planner": [plan(["train", "bus", "hotel"])], "Executor": [first] * 3}).run("Rome")
    assert [question.payload for question in stopped.interrupts] == ["book train?", "book hotel?"]
    train, hotel = stopped.interrupts
    answered = by_step({"train": [None, "the train is booked"], "hotel": [None, "the hotel is booked"]})
    half = await taken_up(lambda: make({"Executor": [answered]}), stopped, {hotel.id: "yes"})
    assert ([question.id for question in half.interrupts], runs) == ([train.id], ["hotel"])
    script: dict[str, list[Any]] = {"Executor": [answered], "Replanner": [call("respond", response="Booked.")]}
    result = await taken_up(lambda: make(script), half, {train.id: "yes"})
    assert (result.output, runs) == ("Booked.", ["hotel", "train"])
    # In the order of the plan, not of the answers.
    assert [each["step"] for each in result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"]] == ["train", "bus", "hotel"]


async def test_errors_side_by_side_are_all_named() -> None:
    # W3
    model = ScriptedModel({"Planner": [plan(["a", "b"])], "Executor": [by_step({"a": call("fail"), "b": "B"})] * 2})
    with pytest.raises(BranchesFailedError, match=r"`Trip\.execute\.1`: ToolFailedError"):
        await Runner(beside(), model=model).run("Go")


async def test_the_same_team_at_work_twice_at_once_does_not_mix_up() -> None:
    # A5
    def planned(request: Any) -> str:
        return plan(f"look at {text_of(request.messages[-1].content)}")

    def done(request: Any) -> str:
        return text_of(request.messages[0].content).rpartition("\n")[2].replace("look at", "saw")

    def answered(request: Any) -> Any:
        said = text_of(request.messages[0].content)
        return call("respond", response=said.partition("Result: ")[2].partition("\n")[0])

    model = ScriptedModel(
        {
            "Clerk": [[call("trip", request="Rome"), call("trip", request="Oslo")], "both"],
            "Planner": [planned] * 2,
            "Executor": [done] * 2,
            "Replanner": [answered] * 2,
        }
    )
    result = await Runner(Agent("Clerk", tools=[trip().as_tool()]), model=model).run("Look")
    returned = [line for line in transcript(result.events) if line.startswith("Clerk: trip ->")]
    assert sorted(line.partition(" [")[0] for line in returned) == [
        "Clerk: trip -> saw Oslo",
        "Clerk: trip -> saw Rome",
    ]
    assert list(result.values) == [f"{PLAN_EXECUTE_KEY}:Trip"]


async def test_one_plan_inside_another_keeps_both() -> None:
    # P2: the executor of one is a plan_execute itself, and asks a person.
    script: dict[str, list[Any]] = {
        "Planner": [plan("outer one", "outer two")],
        "Inner planner": [plan("inner")],
        "Inner executor": [call("ask", question="Go on?")],
    }

    def make() -> Runner[Any, Any]:
        inner = plan_execute(
            name="Inner",
            planner=make_planner(name="Inner planner"),
            executor=make_executor(name="Inner executor", tools=[ask]),
            replanner=make_replanner(name="Inner replanner"),
        )
        return Runner(trip(executor=inner), model=ScriptedModel(script))

    stopped = await make().run("Go")
    script.clear()
    script.update(
        {
            "Inner executor": ["inner done", "again done"],
            "Inner planner": [plan("again")],
            "Inner replanner": [call("respond", response="first done"), call("respond", response="second done")],
            "Replanner": [call("plan", steps=["outer two"]), call("respond", response="All done.")],
        }
    )
    result = await taken_up(make, stopped, {stopped.interrupts[0].id: "yes"})
    assert result.output == "All done."
    outer = result.values[f"{PLAN_EXECUTE_KEY}:Trip"]
    assert [each["result"] for each in outer["done"]] == ["first done", "second done"]
    assert result.values[f"{PLAN_EXECUTE_KEY}:Inner"]["done"] == [{"step": "again", "result": "again done"}]


async def test_the_users_pictures_reach_the_executor() -> None:
    model = ScriptedModel(
        {"Planner": [plan("look")], "Executor": ["a bridge"], "Replanner": [call("respond", response="A bridge.")]}
    )
    picture = Image(url="https://example.com/bridge.png")
    await Runner(trip(), model=model).run([UserMessage((Text("What is it?"), picture))])
    (asked,) = [request for request in model.requests if request.agent == "Executor"]
    assert asked.messages[0].content[1:] == (picture,)


async def test_two_plans_in_a_parallel_agent() -> None:
    # P2, W4: each branch has values of its own; both are there after the join.
    def one(name: str) -> BaseAgent[Any, Any]:
        return plan_execute(
            name=name,
            planner=make_planner(name=f"{name}P"),
            executor=make_executor(name=f"{name}E"),
            replanner=make_replanner(name=f"{name}R"),
        )

    script: dict[str, list[Any]] = {}
    for name in ("A", "B"):
        script |= {f"{name}P": [plan("x")], f"{name}E": ["y"], f"{name}R": [call("respond", response=f"{name} done")]}
    result = await Runner(ParallelAgent("Both", sub_agents=[one("A"), one("B")]), model=ScriptedModel(script)).run("Go")
    assert result.output == {"A": "A done", "B": "B done"}
    assert sorted(result.values) == ["plan_execute:A", "plan_execute:B"]


def test_what_cannot_work_is_said_at_once() -> None:
    with pytest.raises(SetupError, match="maximum number of parallel steps"):
        trip(parallel_steps=-1)
    with pytest.raises(SetupError, match="max_iterations=-1"):
        trip(max_iterations=-1)
    with pytest.raises(SetupError, match="`output`, `tool`"):
        make_planner(method="words")  # pyright: ignore[reportArgumentType]


async def test_a_thread_goes_on_after_a_plan() -> None:
    # P2: what was said in earlier runs is part of what is asked for; what their tools did is not.
    def script(city: str) -> ScriptedModel:
        return ScriptedModel(
            {
                "Planner": [plan(f"look at {city}")],
                "Executor": [call("look", at=city), f"{city} is fine"],
                "Replanner": [call("respond", response=f"Go to {city}.")],
            }
        )

    @tool
    async def look(at: str) -> str:
        """Look."""
        return f"{at} seen"

    team, store = trip(executor=make_executor(tools=[look])), MemoryStore()
    await Runner(team, model=script("Rome"), store=store).run("To Rome?", thread="t")
    model = script("Oslo")
    result = await Runner(team, model=model, store=store).run("Or Oslo?", thread="t")
    assert result.output == "Go to Oslo."
    objective = told(model, "Executor").partition("\n\nPlan:")[0].splitlines()
    assert objective == [
        "Objective:",
        "To Rome?",
        '[Planner] {"steps":["look at Rome"]}',
        "[Executor] Rome is fine",
        '[Replanner] {"response":"Go to Rome."}',
        "[Trip] Go to Rome.",
        "Or Oslo?",
    ]


async def test_a_plan_waits_in_a_store_for_its_answer(tmp_path: Path) -> None:
    # P2: another runner over the same file.
    def runner(script: dict[str, list[Any]]) -> Runner[Any, Any]:
        return Runner(trip(), model=ScriptedModel(script), store=str(tmp_path / "runs.db"))

    stopped = await runner({"Planner": [plan("one")], "Executor": [call("ask", question="Which?")]}).run("Choose")
    rest: dict[str, list[Any]] = {"Executor": ["left"], "Replanner": [call("respond", response="The left one.")]}
    result = await runner(rest).resume(stopped.run_id, {stopped.interrupts[0].id: "left"})
    assert result.output == "The left one."
