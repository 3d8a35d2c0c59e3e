"""Plan, execute and replan: plans, progress, parallel steps, interrupts and resume."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.workflows.pattern_parts import ask, fail, resume_in_new_runner

from batonkit import (
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
from batonkit.errors import BranchesFailedError, LimitError, OutputError, ToolFailedError
from batonkit.log import ToolReturned
from batonkit.log.entries import SHOWN_AS_ANSWER
from batonkit.messages import Image, Text, ToolMessage, UserMessage, text_of
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, transcript
from batonkit.workflows import PLAN_EXECUTE_KEY, ParallelPlan, Plan, make_executor, make_planner, make_replanner


def plan_json(*steps: Any) -> str:
    return msgspec.json.encode({"steps": steps}).decode()


def make_trip_agent(**options: Any) -> BaseAgent[Any, str]:
    defaults: dict[str, Any] = {
        "planner": make_planner(),
        "executor": make_executor(tools=[ask, fail]),
        "replanner": make_replanner(),
        "name": "Trip",
        "description": "Plans trips.",
    }
    return plan_execute(**{**defaults, **options})


def request_text(model: ScriptedModel, agent: str, turn: int = 0) -> str:
    """Return the texts of one request of an agent, joined."""
    requests = [request for request in model.requests if request.agent == agent]
    return "\n---\n".join(text_of(message.content) for message in requests[turn].messages)


async def test_steps_are_executed_and_replanned_until_there_is_an_answer() -> None:
    model = ScriptedModel(
        {
            "Planner": [plan_json("find a train", "find a hotel", "write it up")],
            "Executor": ["ICE at 9:40", "Hotel Roma, 80 EUR"],
            "Replanner": [call("plan", steps=["find a hotel"]), call("respond", response="ICE 9:40, Hotel Roma.")],
        }
    )
    result = await Runner(make_trip_agent(), model=model).run("A trip to Rome")
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
    assert request_text(model, "Executor", 1) == snapshot(
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
    assert request_text(model, "Replanner", 0) == snapshot(
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


async def test_the_progress_is_stored_in_the_values() -> None:
    model = ScriptedModel(
        {"Planner": [plan_json("look")], "Executor": ["seen"], "Replanner": [call("respond", response="I looked.")]}
    )
    result = await Runner(make_trip_agent(), model=model).run("Look")
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


async def test_later_agents_read_the_messages_of_the_phases() -> None:
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_trip"), "thanks"],
            "Planner": [plan_json("look")],
            "Executor": [call("ask", question="?"), "seen"],
            "Replanner": [call("respond", response="I looked.")],
        }
    )
    runner = Runner(supervisor(Agent("Boss"), sub_agents=[make_trip_agent()]), model=model)
    suspended = await runner.run("Look")
    await runner.resume(suspended.run_id, "yes")
    assert request_text(model, "Boss", 1).split("\n---\n")[-8:] == [
        'For context: [Planner] said: {"steps":["look"]}.',
        'For context: [Executor] called tool: `ask` with arguments: {"question":"?"}.',
        "For context: [Executor] `ask` tool returned result: yes.",
        "For context: [Executor] said: seen.",
        'For context: [Replanner] called tool: `respond` with arguments: {"response":"I looked."}.',
        f"For context: [Replanner] `respond` tool returned result: {SHOWN_AS_ANSWER}.",
        'For context: [Replanner] said: {"response":"I looked."}.',
        "For context: [Trip] said: I looked.",
    ]
    # The transfer to the worker is not part of its objective.
    assert request_text(model, "Executor").startswith("Objective:\nLook\n\nPlan:")


@pytest.mark.parametrize("method", ["output", "tool"])
async def test_a_planner_returns_the_plan_as_output_or_through_a_tool(method: Any) -> None:
    planned = plan_json("look") if method == "output" else call("plan", steps=["look"])
    model = ScriptedModel(
        {"Planner": [planned], "Executor": ["seen"], "Replanner": [call("respond", response="I looked.")]}
    )
    result = await Runner(make_trip_agent(planner=make_planner(method=method)), model=model).run("Look")
    assert result.output == "I looked."
    assert model.requests[0].tool_choice == (None if method == "output" else "plan")


async def test_an_invalid_plan_is_returned_to_the_model() -> None:
    model = ScriptedModel(
        {
            "Planner": [call("plan", stops=["look"]), call("plan", steps=["look"])],
            "Executor": ["seen"],
            "Replanner": [call("plan", steps="all"), call("respond", response="I looked.")],
        }
    )
    result = await Runner(make_trip_agent(planner=make_planner(method="tool")), model=model).run("Look")
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


async def test_the_plan_can_be_of_any_type_with_steps() -> None:
    days = [{"city": "Rome", "nights": 2}, {"city": "Bari", "nights": 1}]
    model = ScriptedModel(
        {
            "Planner": [msgspec.json.encode({"days": days}).decode()],
            "Executor": ["booked Rome", "booked Bari"],
            "Replanner": [call("plan", days=days[1:]), call("respond", response="Booked.")],
        }
    )
    team = make_trip_agent(
        planner=make_planner(plan_type=Itinerary), replanner=make_replanner(plan_type=Itinerary), plan_type=Itinerary
    )
    result = await Runner(team, model=model).run("Italy")
    assert request_text(model, "Executor", 1).endswith('Your step:\n{"city":"Bari","nights":1}')
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["plan"] == {"days": days[1:]}


async def test_at_max_iterations_the_answer_lists_completed_and_remaining_steps() -> None:
    model = ScriptedModel(
        {
            "Planner": [plan_json("one", "two", "three")],
            "Executor": ["first result", "second result"],
            "Replanner": [call("plan", steps=["two", "three"]), call("plan", steps=["three"])],
        }
    )
    result = await Runner(make_trip_agent(max_iterations=2), model=model).run("Count")
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
    # Only the last request tells the replanner that it is the last round.
    assert "This is the last round" not in request_text(model, "Replanner", 0)
    assert "This is the last round" in request_text(model, "Replanner", 1)


async def test_without_max_iterations_the_limits_of_the_run_apply() -> None:
    model = ScriptedModel(
        {"Planner": [plan_json("on")], "Executor": ["went"], "Replanner": [call("plan", steps=["on"])]}, cycle=True
    )
    with pytest.raises(LimitError, match="model_calls"):
        await Runner(make_trip_agent(max_iterations=0), model=model).run("endless")


async def test_an_empty_plan_goes_directly_to_the_replanner() -> None:
    model = ScriptedModel({"Planner": [plan_json()], "Replanner": [call("respond", response="Nothing to do.")]})
    for options in ({}, {"parallel_steps": True}):
        result = await Runner(
            make_trip_agent(**options), model=ScriptedModel({"Planner": [plan_json()], "Replanner": ["Nothing."]})
        ).run("go")
        assert result.output == "Nothing."
    assert (await Runner(make_trip_agent(), model=model).run("Rest")).output == "Nothing to do."


async def test_any_agent_can_be_planner_executor_or_replanner() -> None:
    # A function as planner, a supervisor as executor, a plain agent as replanner.
    @agent("Planner", description="Plans.")
    async def planner(ctx: AgentContext) -> None:
        ctx.output = Plan(["look"])

    workers = [Agent("Search", description="Searches."), Agent("Check", description="Checks.")]
    executor = supervisor(Agent("Lead", description="Leads."), sub_agents=workers)
    model = ScriptedModel(
        {
            "Lead": [call("transfer_to_search"), call("transfer_to_check"), "found and checked"],
            "Search": ["found"],
            "Check": ["checked"],
            "Reviewer": ["It was found and checked."],
        }
    )
    result = await Runner(
        make_trip_agent(planner=planner, executor=executor, replanner=Agent("Reviewer")), model=model
    ).run("Look")
    assert result.output == "It was found and checked."
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"] == [{"step": "look", "result": "found and checked"}]


async def test_an_invalid_plan_of_a_custom_planner_is_an_error_that_names_it() -> None:
    model = ScriptedModel({"Planner": ["First we look, then we leap."]}, cycle=True)
    with pytest.raises(OutputError, match=r"`Planner` must answer with a `Plan`"):
        await Runner(make_trip_agent(planner=Agent("Planner")), model=model).run("Leap")


async def test_a_plan_type_without_steps_is_refused() -> None:
    class Goal(BaseModel):
        goal: str

    model = ScriptedModel({"Planner": ['{"goal":"rest"}']})
    team = make_trip_agent(planner=make_planner(plan_type=Goal), plan_type=Goal)
    with pytest.raises(SetupError, match="no list `steps`"):
        await Runner(team, model=model).run("Rest")


@pytest.mark.parametrize("role", ["Planner", "Executor", "Replanner"])
async def test_an_exit_in_any_phase_ends_the_run(role: str) -> None:
    class ExitingAgent(BaseAgent[Any, Any]):
        async def run(self, ctx: AgentContext[Any]) -> Exit:
            return Exit(f"{role} left")

    model = ScriptedModel({"Planner": [plan_json("look")], "Executor": ["seen"], "Boss": [call("transfer_to_trip")]})
    team = supervisor(Agent("Boss"), sub_agents=[make_trip_agent(**{role.lower(): ExitingAgent(role)})])
    assert (await Runner(team, model=model).run("Look")).output == f"{role} left"


async def test_an_error_in_the_executor_ends_the_run_and_a_resume_retries() -> None:
    failures = [True]

    @tool(on_error="raise")
    async def fails_once() -> str:
        """Fail in the first call."""
        if failures.pop() if failures else False:
            raise OSError("not yet")
        return "worked"

    model = ScriptedModel(
        {
            "Planner": [plan_json("try")],
            "Executor": [call("fails_once"), "it worked"],
            "Replanner": [call("respond", response="Tried.")],
        }
    )
    runner = Runner(make_trip_agent(executor=make_executor(tools=[fails_once])), model=model)
    stream = runner.stream("Try")
    with pytest.raises(ToolFailedError):
        await stream._drive()
    assert (await runner.resume(stream.run_id)).output == "Tried."


async def test_an_interrupt_in_the_executor_can_be_answered_in_a_new_runner() -> None:
    # All state is in the log; the first step does not run again.
    script: dict[str, list[Any]] = {
        "Planner": [plan_json("one", "two")],
        "Executor": ["first", call("ask", question="Which?")],
        "Replanner": [call("plan", steps=["two"])],
    }

    def make() -> Runner[Any, Any]:
        return Runner(make_trip_agent(), model=ScriptedModel(script))

    suspended = await make().run("Choose")
    (question,) = suspended.interrupts
    assert question.path == (
        "Trip", "Trip.plan", "Trip.loop", "Trip.execute", "Trip.replan", "Trip.execute", "Executor",
    )  # fmt: skip
    script.update(Planner=[], Executor=["second: the left one"], Replanner=[call("respond", response="The left one.")])
    result = await resume_in_new_runner(make, suspended, {question.id: "left"})
    assert result.output == "The left one."
    assert result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"] == [
        {"step": "one", "result": "first"},
        {"step": "two", "result": "second: the left one"},
    ]


def make_parallel_trip_agent(**options: Any) -> BaseAgent[Any, Any]:
    return make_trip_agent(
        planner=make_planner(plan_type=ParallelPlan),
        replanner=make_replanner(plan_type=ParallelPlan),
        parallel_steps=True,
        **options,
    )


def answer_by_step(answers: dict[str, Any]) -> Any:
    """Return a model step for the executor that selects its answer by the step in the request."""

    def answer(request: Any) -> Any:
        step = text_of(request.messages[0].content).rpartition("\n")[2]
        turn = sum(isinstance(message, ToolMessage) for message in request.messages)
        step_answers: Any = answers[step]
        return cast("list[Any]", step_answers)[turn] if isinstance(step_answers, list) else step_answers

    return answer


async def test_independent_steps_run_in_parallel() -> None:
    barrier = asyncio.Barrier(2)

    @tool
    async def wait_for_other() -> str:
        """Wait for the other step."""
        async with asyncio.timeout(60):
            await barrier.wait()
        return "met"

    answers = answer_by_step(
        {"train": [call("wait_for_other"), "ICE"], "hotel": [call("wait_for_other"), "Roma"], "write": "written"}
    )
    model = ScriptedModel(
        {
            "Planner": [plan_json(["train", "hotel"], "write")],
            "Executor": [answers] * 5,
            "Replanner": [call("plan", steps=["write"]), call("respond", response="Done.")],
        }
    )
    result = await Runner(make_parallel_trip_agent(executor=make_executor(tools=[wait_for_other])), model=model).run(
        "Rome"
    )
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
    # The steps do not read each other's results, and no branch is started without a step.
    assert "hotel" not in request_text(model, "Executor", 0).partition("Completed steps")[2].replace(
        "Your step:\nhotel", ""
    )
    assert [event.agent for event in result.events if event.key.endswith("/start") and ".execute" in event.agent] == [
        "Trip.execute", "Trip.execute.1", "Trip.execute.2", "Trip.execute", "Trip.execute.1",
    ]  # fmt: skip


async def test_steps_above_the_maximum_are_left_for_the_next_round() -> None:
    model = ScriptedModel(
        {
            "Planner": [plan_json(["a", "b", "c"])],
            "Executor": [answer_by_step({"a": "A", "b": "B", "c": "C"})] * 3,
            "Replanner": [call("plan", steps=["c"]), call("respond", response="ABC")],
        }
    )
    team = make_trip_agent(planner=make_planner(plan_type=ParallelPlan), replanner=make_replanner(), parallel_steps=2)
    result = await Runner(team, model=model).run("Go")
    assert [each["result"] for each in result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"]] == ["A", "B", "C"]


async def test_interrupts_of_parallel_steps_are_raised_together_and_answered_separately() -> None:
    booked: list[str] = []

    @tool
    async def book(ctx: RunContext[Any], what: str) -> str:
        """Book something, if a person agrees."""
        answer = await ctx.interrupt(f"book {what}?")
        booked.append(what)
        return f"{what}: {answer}"

    def make(script: dict[str, list[Any]]) -> Runner[Any, Any]:
        return Runner(make_parallel_trip_agent(executor=make_executor(tools=[book])), model=ScriptedModel(script))

    first = answer_by_step({"train": call("book", what="train"), "hotel": call("book", what="hotel"), "bus": "no bus"})
    suspended = await make({"Planner": [plan_json(["train", "bus", "hotel"])], "Executor": [first] * 3}).run("Rome")
    assert [question.payload for question in suspended.interrupts] == ["book train?", "book hotel?"]
    train, hotel = suspended.interrupts
    after_answer = answer_by_step({"train": [None, "the train is booked"], "hotel": [None, "the hotel is booked"]})
    partly_answered = await resume_in_new_runner(
        lambda: make({"Executor": [after_answer]}), suspended, {hotel.id: "yes"}
    )
    assert ([question.id for question in partly_answered.interrupts], booked) == ([train.id], ["hotel"])
    script: dict[str, list[Any]] = {"Executor": [after_answer], "Replanner": [call("respond", response="Booked.")]}
    result = await resume_in_new_runner(lambda: make(script), partly_answered, {train.id: "yes"})
    assert (result.output, booked) == ("Booked.", ["hotel", "train"])
    # The order is that of the plan, not of the answers.
    assert [each["step"] for each in result.values[f"{PLAN_EXECUTE_KEY}:Trip"]["done"]] == ["train", "bus", "hotel"]


async def test_the_error_of_a_parallel_step_is_raised() -> None:
    model = ScriptedModel(
        {"Planner": [plan_json(["a", "b"])], "Executor": [answer_by_step({"a": call("fail"), "b": "B"})] * 2}
    )
    with pytest.raises(BranchesFailedError, match=r"`Trip\.execute\.1`: ToolFailedError"):
        await Runner(make_parallel_trip_agent(), model=model).run("Go")


async def test_concurrent_calls_of_one_plan_agent_are_separate() -> None:
    def make_plan(request: Any) -> str:
        return plan_json(f"look at {text_of(request.messages[-1].content)}")

    def execute(request: Any) -> str:
        return text_of(request.messages[0].content).rpartition("\n")[2].replace("look at", "saw")

    def replan(request: Any) -> Any:
        text = text_of(request.messages[0].content)
        return call("respond", response=text.partition("Result: ")[2].partition("\n")[0])

    model = ScriptedModel(
        {
            "Clerk": [[call("trip", request="Rome"), call("trip", request="Oslo")], "both"],
            "Planner": [make_plan] * 2,
            "Executor": [execute] * 2,
            "Replanner": [replan] * 2,
        }
    )
    result = await Runner(Agent("Clerk", tools=[make_trip_agent().as_tool()]), model=model).run("Look")
    returned = [line for line in transcript(result.events) if line.startswith("Clerk: trip ->")]
    assert sorted(line.partition(" [")[0] for line in returned) == [
        "Clerk: trip -> saw Oslo",
        "Clerk: trip -> saw Rome",
    ]
    assert list(result.values) == [f"{PLAN_EXECUTE_KEY}:Trip"]


async def test_nested_plan_agents_keep_separate_progress() -> None:
    # The executor is a plan_execute agent and interrupts.
    script: dict[str, list[Any]] = {
        "Planner": [plan_json("outer one", "outer two")],
        "Inner planner": [plan_json("inner")],
        "Inner executor": [call("ask", question="Continue?")],
    }

    def make() -> Runner[Any, Any]:
        inner = plan_execute(
            name="Inner",
            planner=make_planner(name="Inner planner"),
            executor=make_executor(name="Inner executor", tools=[ask]),
            replanner=make_replanner(name="Inner replanner"),
        )
        return Runner(make_trip_agent(executor=inner), model=ScriptedModel(script))

    suspended = await make().run("Go")
    script.clear()
    script.update(
        {
            "Inner executor": ["inner done", "again done"],
            "Inner planner": [plan_json("again")],
            "Inner replanner": [call("respond", response="first done"), call("respond", response="second done")],
            "Replanner": [call("plan", steps=["outer two"]), call("respond", response="All done.")],
        }
    )
    result = await resume_in_new_runner(make, suspended, {suspended.interrupts[0].id: "yes"})
    assert result.output == "All done."
    outer = result.values[f"{PLAN_EXECUTE_KEY}:Trip"]
    assert [each["result"] for each in outer["done"]] == ["first done", "second done"]
    assert result.values[f"{PLAN_EXECUTE_KEY}:Inner"]["done"] == [{"step": "again", "result": "again done"}]


async def test_images_of_the_input_are_passed_to_the_executor() -> None:
    model = ScriptedModel(
        {"Planner": [plan_json("look")], "Executor": ["a bridge"], "Replanner": [call("respond", response="A bridge.")]}
    )
    picture = Image(url="https://example.com/bridge.png")
    await Runner(make_trip_agent(), model=model).run([UserMessage((Text("What is it?"), picture))])
    (executor_request,) = [request for request in model.requests if request.agent == "Executor"]
    assert executor_request.messages[0].content[1:] == (picture,)


async def test_plan_agents_can_run_in_a_parallel_agent() -> None:
    # The values of both branches are there after the join.
    def make_agent(name: str) -> BaseAgent[Any, Any]:
        return plan_execute(
            name=name,
            planner=make_planner(name=f"{name}P"),
            executor=make_executor(name=f"{name}E"),
            replanner=make_replanner(name=f"{name}R"),
        )

    script: dict[str, list[Any]] = {}
    for name in ("A", "B"):
        script |= {
            f"{name}P": [plan_json("x")],
            f"{name}E": ["y"],
            f"{name}R": [call("respond", response=f"{name} done")],
        }
    result = await Runner(
        ParallelAgent("Both", sub_agents=[make_agent("A"), make_agent("B")]), model=ScriptedModel(script)
    ).run("Go")
    assert result.output == {"A": "A done", "B": "B done"}
    assert sorted(result.values) == ["plan_execute:A", "plan_execute:B"]


def test_invalid_options_are_refused_at_construction() -> None:
    with pytest.raises(SetupError, match="maximum number of parallel steps"):
        make_trip_agent(parallel_steps=-1)
    with pytest.raises(SetupError, match="max_iterations=-1"):
        make_trip_agent(max_iterations=-1)
    with pytest.raises(SetupError, match="`output`, `tool`"):
        make_planner(method="words")  # pyright: ignore[reportArgumentType]


async def test_the_next_run_of_a_thread_reads_the_answers_but_not_the_tool_calls() -> None:
    def script(city: str) -> ScriptedModel:
        return ScriptedModel(
            {
                "Planner": [plan_json(f"look at {city}")],
                "Executor": [call("look_up", at=city), f"{city} is fine"],
                "Replanner": [call("respond", response=f"Go to {city}.")],
            }
        )

    @tool
    async def look_up(at: str) -> str:
        """Look up a city."""
        return f"{at} seen"

    team, store = make_trip_agent(executor=make_executor(tools=[look_up])), MemoryStore()
    await Runner(team, model=script("Rome"), store=store).run("To Rome?", thread="t")
    model = script("Oslo")
    result = await Runner(team, model=model, store=store).run("Or Oslo?", thread="t")
    assert result.output == "Go to Oslo."
    objective = request_text(model, "Executor").partition("\n\nPlan:")[0].splitlines()
    assert objective == [
        "Objective:",
        "To Rome?",
        '[Planner] {"steps":["look at Rome"]}',
        "[Executor] Rome is fine",
        '[Replanner] {"response":"Go to Rome."}',
        "[Trip] Go to Rome.",
        "Or Oslo?",
    ]


async def test_an_interrupt_can_be_answered_through_a_store(tmp_path: Path) -> None:
    # Another runner with the same file.
    def runner(script: dict[str, list[Any]]) -> Runner[Any, Any]:
        return Runner(make_trip_agent(), model=ScriptedModel(script), store=str(tmp_path / "runs.db"))

    suspended = await runner({"Planner": [plan_json("one")], "Executor": [call("ask", question="Which?")]}).run(
        "Choose"
    )
    remaining: dict[str, list[Any]] = {"Executor": ["left"], "Replanner": [call("respond", response="The left one.")]}
    result = await runner(remaining).resume(suspended.run_id, {suspended.interrupts[0].id: "left"})
    assert result.output == "The left one."
