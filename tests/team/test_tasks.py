"""Task handoffs: the stack, digressions, the end of tasks, and what agents read of it."""

from datetime import date
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import (
    Agent,
    AgentContext,
    BatonError,
    Limits,
    RunContext,
    Runner,
    RunResult,
    SetupError,
    Transfer,
    agent,
    handoff,
    tool,
)
from batonkit.errors import LimitError, LoopError, TaskResultError
from batonkit.log import (
    AgentStarted,
    CancelTask,
    ControlTransferred,
    Event,
    Finish,
    OpenTask,
    Origin,
    RunStarted,
    TaskEnded,
    TaskOpened,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage, text_of
from batonkit.runs import HandoffRules, HistoryOptions, Interrupt
from batonkit.stores import MemoryStore
from batonkit.team.tasks import known_tasks, last_active_agent, open_tasks
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, transcript, transfer_to
from batonkit.workflows import BreakLoop, LoopAgent, ParallelAgent, SequentialAgent


class Booking(BaseModel):
    day: date
    people: int


BOOKED = {"day": "2026-05-03", "people": 2}


def make_desk(worker: Any, **options: Any) -> Agent:
    return Agent("Desk", handoffs=[handoff(worker, return_to="caller", until="finished", **options)])


def texts(model: ScriptedModel, number: int = -1) -> list[str]:
    return [text_of(message.content) for message in model.requests[number].messages]


def ends(result: RunResult[Any]) -> list[tuple[str, str, Any]]:
    return [(each.task.agent, each.outcome, each.result) for each in result.events if isinstance(each, TaskEnded)]


# --- one task


async def test_the_target_stays_active_until_it_has_finished() -> None:
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_booking"), "You are booked."],
            "Booking": ["Which day?", "How many?", call("finish_task", result=BOOKED)],
        }
    )
    runner = Runner(make_desk(Agent("Booking"), result_type=Booking), model=model)
    first = await runner.run("A table, please.", thread="t")
    assert (first.output, first.agent, [task.agent for task in first.open_tasks]) == (
        "Which day?",
        "Booking",
        ["Booking"],
    )
    second = await runner.run("May 3rd.", thread="t")
    assert (second.output, second.agent) == ("How many?", "Booking")
    third = await runner.run("Two.", thread="t")
    assert (third.output, third.agent, third.open_tasks) == ("You are booked.", "Desk", ())
    assert transcript(third.events) == snapshot(
        [
            'run of Booking started with "Two."',
            "Booking started",
            'Booking: called finish_task({"result":{"day":"2026-05-03","people":2}})',
            "Booking: finish_task -> The task is finished.",
            'Booking: finished the task of Booking -> {"day":"2026-05-03","people":2}',
            "Booking → Desk (returned)",
            "Booking finished",
            "Desk started",
            'Desk: said "You are booked."',
            "Desk finished",
            "run completed",
        ]
    )
    assert third.events[-2].path == ("Booking", "Desk")


async def test_the_caller_reads_the_result_in_the_place_of_the_calls_first_result() -> None:
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_booking"), "You are booked.", "Bye."],
            "Booking": ["Which day?", call("finish_task", result="May 3rd, two people")],
        }
    )
    runner = Runner(make_desk(Agent("Booking")), model=model)
    await runner.run("A table, please.", thread="t")
    asked = model.requests[0].messages
    await runner.run("May 3rd.", thread="t")
    (request,) = [text_of(message.content) for message in asked]
    assert request == "A table, please."
    _, said, returned, question, answer = model.requests[-1].messages
    assert isinstance(said, AssistantMessage)
    assert isinstance(returned, ToolMessage)
    assert returned.tool_call_id == said.tool_calls[0].id
    assert returned.content == "May 3rd, two people"
    assert text_of(question.content) == "For context: [Booking] said: Which day?"
    assert text_of(answer.content) == "May 3rd."
    # In later runs of the thread as well; the log keeps the first result.
    await runner.run("Thanks", thread="t")
    assert " ".join(texts(model)).count("May 3rd, two people") == 1
    events = await runner.thread("t").events()
    assert any('{"assistant":"Booking"}' in str(event) for event in events)


async def test_other_agents_read_the_result_rewritten() -> None:
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_booking"), call("transfer_to_clerk")],
            "Booking": [call("finish_task", result="May 3rd")],
            "Clerk": ["Noted."],
        }
    )
    edges = [handoff(Agent("Booking"), return_to="caller", until="finished"), Agent("Clerk")]
    await Runner(Agent("Desk", handoffs=edges), model=model).run("A table, please.")
    assert texts(model)[:3] == [
        "A table, please.",
        "For context: [Desk] called tool: `transfer_to_booking` with arguments: {}.",
        "For context: [Desk] `transfer_to_booking` tool returned result: May 3rd.",
    ]
    assert "finish_task" not in " ".join(texts(model))


@pytest.mark.parametrize("policy", ["rewritten", "verbatim", "lineage", "answers"])
@pytest.mark.parametrize("hide_transfers", [False, True])
async def test_every_policy_with_messages_of_agents_shows_the_result_once(policy: Any, hide_transfers: bool) -> None:
    model = ScriptedModel(
        {"Desk": [call("transfer_to_b"), "ok"], "B": [call("finish_task", result="the result")]},
    )
    runner = Runner(
        make_desk(Agent("B")).clone(history=policy),
        model=model,
        history=HistoryOptions(show_transfers=not hide_transfers),
    )
    await runner.run("hi")
    assert " ".join(texts(model)).count("the result") == 1


async def test_a_task_without_a_call_ends_with_a_message() -> None:
    @agent("Desk", handoffs=[handoff("B", return_to="C", until="finished")])
    async def desk(ctx: AgentContext) -> Transfer:
        return Transfer("B")

    model = ScriptedModel({"B": [call("finish_task", result="42")], "C": ["fine"]})
    runner = Runner(desk, model=model, extra_agents=[Agent("B"), Agent("C")])
    result = await runner.run("hi")
    assert result.output == "fine"
    assert texts(model) == ["hi", "For context: the task that [Desk] gave to [B] ended with: 42"]
    assert [text_of(message.content) for message in result.messages].count(texts(model)[1]) == 1


async def test_the_model_is_told_of_its_task_only_while_it_has_one() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), transfer_to("B")], "B": [call("cancel_task"), "hello"]})
    b = Agent("B", instructions="Be kind.")
    desk = Agent("Desk", sub_agents=[b], handoffs=[handoff(b, return_to="caller", until="finished")])
    await Runner(desk, model=model).run("hi")
    with_task, without = model.requests[1], model.requests[3]
    assert with_task.instructions.startswith("Be kind.")
    assert "[Desk] has handed you a task" in with_task.instructions
    assert [spec.name for spec in with_task.tools][-2:] == ["finish_task", "cancel_task"]
    assert "task" not in without.instructions
    assert "finish_task" not in [spec.name for spec in without.tools]


async def test_the_prompt_is_in_the_language_of_the_team() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b")], "B": ["?"]})
    await Runner(make_desk(Agent("B")), model=model, prompt_language="zh").run("hi")
    assert "[Desk] 交给你一项任务" in model.requests[1].instructions


# --- how a task ends


async def test_a_cancelled_task_returns_control_without_a_result() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "sorry"], "B": [call("cancel_task", reason="fully booked")]})
    result = await Runner(make_desk(Agent("B")), model=model).run("hi")
    assert (result.output, ends(result)) == ("sorry", [("B", "cancelled", None)])
    assert texts(model)[2] == "The task was cancelled: fully booked"


@pytest.mark.parametrize(("tool", "form"), [("finish_task", '{"result": …}'), ("cancel_task", '{"reason": "…"}')])
async def test_arguments_that_are_nested_too_deeply_do_not_end_the_task(tool: str, form: str) -> None:
    arguments = f'{{"result": "x", "more": {"[" * 1_000_000 + "]" * 1_000_000}}}'
    nested = AssistantMessage(tool_calls=(ToolCall("x", tool, arguments),))
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "sorry"], "B": [nested, call("cancel_task")]})
    result = await Runner(make_desk(Agent("B")), model=model).run("hi")
    assert ends(result) == [("B", "cancelled", None)]
    assert f"arguments must be {form}." in str(model.requests[2].messages[-1].content)


async def test_a_plain_transfer_to_the_caller_declines_the_task() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "sorry"], "B": [call("transfer_to_desk")]})
    result = await Runner(make_desk(Agent("B", handoffs=["Desk"])), model=model).run("hi")
    assert (result.output, ends(result), result.agent) == ("sorry", [("B", "declined", None)], "Desk")
    assert texts(model)[2] == "[B] handed the conversation back without a result."


async def test_a_task_that_the_target_does_not_accept_is_never_opened() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "sorry"]})
    result = await Runner(make_desk(Agent("B", accepts=lambda ctx, given: "busy")), model=model).run("hi")
    assert result.output == "sorry"
    assert not [event for event in result.events if isinstance(event, TaskOpened)]


async def test_code_finishes_and_cancels_its_task() -> None:
    @agent("B")
    async def worker(ctx: AgentContext) -> Finish | CancelTask:
        if any("stop" in text_of(message.content) for message in ctx.messages()):
            return CancelTask("stopped")
        return Finish(Booking(day=date(2026, 5, 3), people=2))

    model = ScriptedModel({"Desk": [call("transfer_to_b"), "done", call("transfer_to_b"), "too bad"]})
    runner = Runner(make_desk(worker, result_type=Booking), model=model)
    first = await runner.run("go", thread="t")
    assert (first.output, ends(first)) == ("done", [("B", "finished", BOOKED)])
    second = await runner.run("stop", thread="t", start_at="root")
    assert (second.output, ends(second)) == ("too bad", [("B", "cancelled", None)])


async def test_a_wrong_result_from_code_is_an_error() -> None:
    @agent("B")
    async def worker(ctx: AgentContext) -> Finish:
        return Finish({"day": "soon"})

    model = ScriptedModel({"Desk": [call("transfer_to_b")]})
    with pytest.raises(
        TaskResultError,
        match=r"`B` must answer with a result of its task that fits `Booking`, .*: day: .*; people: Field",
    ):
        await Runner(make_desk(worker, result_type=Booking), model=model).run("go")


async def test_a_wrong_result_goes_back_to_the_model_a_few_times() -> None:
    wrong = call("finish_task", result={"day": "2026-05-03"})
    model = ScriptedModel(
        {"Desk": [call("transfer_to_b"), "done"], "B": [wrong, wrong, call("finish_task", result=BOOKED)]}
    )
    result = await Runner(make_desk(Agent("B"), result_type=Booking), model=model).run("go")
    assert result.output == "done"
    assert texts(model, 2)[-1] == "Not finished: people: Field required."
    assert "Not finished" not in " ".join(texts(model))

    model = ScriptedModel({"Desk": [call("transfer_to_b")], "B": [wrong] * 5})
    with pytest.raises(TaskResultError, match="fits `Booking`, but its model failed to: people: Field required"):
        await Runner(make_desk(Agent("B"), result_type=Booking), model=model).run("go")
    assert len(model.requests) == 4


async def test_only_the_agent_of_the_innermost_task_can_end_it() -> None:
    @agent("Lone")
    async def lone(ctx: AgentContext) -> Finish:
        return Finish("x")

    with pytest.raises(SetupError, match=r"`Lone` returned Finish\(.*\), but no task is open; only the target"):
        await Runner(lone).run("hi")
    model = ScriptedModel({"Desk": [call("transfer_to_b")], "B": [call("transfer_to_lone")]})
    with pytest.raises(SetupError, match=r"`Lone` returned .*, but `B` works on the innermost task"):
        await Runner(make_desk(Agent("B", handoffs=[lone])), model=model).run("hi")


# --- digressions


@pytest.mark.parametrize("options", [{}, {"return_to": "caller"}], ids=["plain", "return_to"])
async def test_a_digression_returns_to_the_open_task(options: Any) -> None:
    weather = Agent("Weather")
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_b"), "done"],
            "B": [call("transfer_to_weather"), "It is sunny. Which day?", call("finish_task", result="Monday")],
            "Weather": ["Sunny."],
        }
    )
    runner = Runner(make_desk(Agent("B", handoffs=[handoff(weather, **options)])), model=model)
    first = await runner.run("hi", thread="t")
    assert (first.output, first.agent) == ("It is sunny. Which day?", "B")
    returned = [event for event in first.events if isinstance(event, ControlTransferred)][-1]
    assert (returned.source, returned.target, returned.reason) == ("Weather", "B", "returned")
    assert (await runner.run("Monday", thread="t")).output == "done"


async def test_a_task_inside_a_task_returns_to_the_outer_one() -> None:
    pay = Agent("Pay")
    b = Agent("B", handoffs=[handoff(pay, return_to="caller", until="finished")])
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_b"), "done"],
            "B": [call("transfer_to_pay"), "Paid. Which day?", call("finish_task", result="Monday")],
            "Pay": ["Which card?", call("finish_task", result="paid")],
        }
    )
    runner = Runner(make_desk(b), model=model)
    first = await runner.run("hi", thread="t")
    assert [(task.caller, task.agent) for task in first.open_tasks] == [("Desk", "B"), ("B", "Pay")]
    assert [task.run_id for task in first.open_tasks] == [first.run_id] * 2
    second = await runner.run("visa", thread="t")
    assert (second.output, [task.agent for task in second.open_tasks]) == ("Paid. Which day?", ["B"])
    assert (await runner.run("Monday", thread="t")).output == "done"


async def test_agents_that_wait_for_an_answer_are_kept_with_the_task() -> None:
    # Boss asks Desk and waits; Desk hands a task to B; after the task Desk answers, and Boss goes on.
    desk = make_desk(Agent("B"))
    boss = Agent("Boss", handoffs=[handoff(desk, return_to="caller")])
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_desk"), "I see."],
            "Desk": [call("transfer_to_b"), "It is Monday."],
            "B": ["Which day?", call("finish_task", result="Monday")],
        }
    )
    runner = Runner(boss, model=model)
    first = await runner.run("hi", thread="t")
    assert (first.agent, first.open_tasks[0].returns) == ("B", ("Boss",))
    second = await runner.run("Monday", thread="t")
    assert (second.agent, second.output) == ("Boss", "I see.")


# --- the end of the run, limits and loops


async def test_exit_clears_the_stack() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "hello again"], "B": [call("exit", final_result="bye")]})
    runner = Runner(make_desk(Agent("B", exit_tool=True)), model=model)
    result = await runner.run("hi", thread="t")
    assert (result.output, ends(result), result.open_tasks) == ("bye", [("B", "dropped", None)], ())
    # Control is back with the agent that opened the first task.
    assert (await runner.run("hi", thread="t")).agent == "Desk"
    assert texts(model)[2] == '{"assistant":"B"}'


async def test_break_loop_outside_a_loop_keeps_the_stack() -> None:
    @agent("B")
    async def worker(ctx: AgentContext) -> BreakLoop:
        await ctx.say("hm")
        return BreakLoop()

    model = ScriptedModel({"Desk": [call("transfer_to_b")]})
    assert len((await Runner(make_desk(worker), model=model).run("hi")).open_tasks) == 1


@pytest.mark.parametrize("error", [BatonError("broken"), RuntimeError("broken")])
async def test_a_failure_keeps_the_stack(error: Exception) -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b"), "done"], "B": [error, "Which day?"]})
    runner = Runner(make_desk(Agent("B")), model=model)
    with pytest.raises(BatonError):
        await runner.run("hi", thread="t")
    assert await runner.thread("t").active_agent() == "B"
    result = await runner.run("hi?", thread="t")
    assert (result.agent, [task.agent for task in result.open_tasks]) == ("B", ["B"])


async def test_a_failing_digression_is_over_in_the_next_run() -> None:
    guest = Agent("Guest")
    model = ScriptedModel(
        {"Desk": [call("transfer_to_b")], "B": [call("transfer_to_guest"), "Which day?"], "Guest": [BatonError("no")]}
    )
    runner = Runner(make_desk(Agent("B", handoffs=[guest])), model=model)
    with pytest.raises(BatonError):
        await runner.run("hi", thread="t")
    assert (await runner.run("hi?", thread="t")).agent == "B"


async def test_the_depth_of_the_stack_is_bounded() -> None:
    edge = handoff("A", return_to="caller", until="finished")
    model = ScriptedModel({"A": [call("transfer_to_a")] * 9})
    with pytest.raises(LimitError, match=r"its limit of 8 open_tasks .*; raise it with Limits\(open_tasks=…\)"):
        await Runner(Agent("A", handoffs=[edge]), model=model, limits=Limits(idle_cycles=None)).run("hi")


async def test_the_loop_fallback_ends_all_tasks() -> None:
    edge = handoff("A", return_to="caller", until="finished")
    model = ScriptedModel({"A": [call("transfer_to_a")] * 3, "Fallback": ["Let me help."]})
    runner = Runner(
        Agent("A", handoffs=[edge]),
        model=model,
        limits=Limits(open_tasks=2),
        handoff_rules=HandoffRules(loop_fallback="Fallback"),
        extra_agents=[Agent("Fallback")],
    )
    result = await runner.run("hi")
    assert (result.agent, result.open_tasks) == ("Fallback", ())
    assert [outcome for _, outcome, _ in ends(result)] == ["dropped", "dropped"]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_new_result_of_a_task_is_progress(is_new: bool) -> None:
    rounds = 8
    results = [call("finish_task", result=f"result {number if is_new else 0}") for number in range(rounds)]
    model = ScriptedModel({"Desk": [*[call("transfer_to_b")] * rounds, "done"], "B": results})
    runner = Runner(make_desk(Agent("B")), model=model)
    if is_new:
        assert (await runner.run("hi")).output == "done"
    else:
        with pytest.raises(LoopError):
            await runner.run("hi")


# --- inside workflows and tools


async def test_a_task_in_a_workflow_asks_the_user_with_an_interrupt() -> None:
    model = ScriptedModel(
        {
            "Desk": [call("transfer_to_b"), "Booked for Monday."],
            "B": ["Which day?", call("finish_task", result="Monday")],
            "Writer": ["Dear guest"],
        }
    )
    flow = SequentialAgent("Flow", sub_agents=[make_desk(Agent("B")), Agent("Writer")])
    runner = Runner(flow, model=model)
    result = await runner.run("A table", thread="t")
    (interrupt,) = result.interrupts
    assert interrupt.payload == {"kind": "question", "agent": "B", "text": "Which day?"}
    assert interrupt.agent == "B"
    result = await runner.resume(result.run_id, "Monday")
    assert result.output == "Dear guest"
    assert [type(message).__name__ for message in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "AssistantMessage",
    ]
    # The history from the log alone is the same.
    assert await runner.thread("t").messages() == result.messages
    replayed = await runner.runs.replay(result.events)
    assert replayed.messages == result.messages


async def test_a_task_in_an_agent_called_as_a_tool_asks_the_user() -> None:
    desk = make_desk(Agent("B"), result_type=int)
    model = ScriptedModel(
        {
            "Boss": [call("desk", request="book"), "All set."],
            "Desk": [call("transfer_to_b"), "Booked for 3."],
            "B": ["How many?", call("finish_task", result=3)],
        }
    )
    runner = Runner(Agent("Boss", tools=[desk.as_tool()]), model=model)
    result = await runner.run("hi")
    (interrupt,) = result.interrupts
    assert interrupt.payload["text"] == "How many?"
    result = await runner.resume(result.run_id, 3)
    assert (result.output, texts(model)[-1], result.open_tasks) == ("All set.", "Booked for 3.", ())
    assert "3" in texts(model, 3)


async def test_an_exit_in_a_workflow_ends_its_tasks() -> None:
    model = ScriptedModel({"Desk": [call("transfer_to_b")], "B": [call("exit", final_result="over")]})
    flow = SequentialAgent("Flow", sub_agents=[make_desk(Agent("B", exit_tool=True)), Agent("Never")])
    result = await Runner(flow, model=model).run("hi")
    assert (result.output, ends(result)) == ("over", [("B", "dropped", None)])


@pytest.mark.parametrize("kind", [SequentialAgent, LoopAgent, ParallelAgent])
async def test_a_step_of_a_workflow_finishes_the_workflows_task(kind: Any) -> None:
    @agent("Step")
    async def step(ctx: AgentContext) -> Finish:
        return Finish("worked")

    flow = kind("Flow", sub_agents=[step], description="flow")
    model = ScriptedModel({"Desk": [call("transfer_to_flow"), "done"]})
    result = await Runner(make_desk(flow), model=model).run("hi")
    assert (result.output, ends(result)) == ("done", [("Flow", "finished", "worked")])


async def test_an_agent_called_as_a_tool_cannot_finish_its_callers_task() -> None:
    @agent("Step")
    async def step(ctx: AgentContext) -> Finish:
        return Finish("worked")

    model = ScriptedModel({"Desk": [call("transfer_to_b")], "B": [call("step", request="go")]})
    with pytest.raises(SetupError, match="inside a tool call, where no task is open"):
        await Runner(make_desk(Agent("B", tools=[step.as_tool()])), model=model).run("hi")


# --- durability


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask."""
    return str(await ctx.interrupt(question))


def reply(interrupt: Interrupt) -> str:
    return f"reply to {interrupt.id}"


async def test_a_task_survives_a_crash_after_every_event() -> None:
    def new_runner(store: Any) -> Runner:
        weather = Agent("Weather")
        b = Agent("B", tools=[ask], handoffs=[handoff(weather, return_to="caller", until="finished"), "Desk"])
        model = ScriptedModel(
            {
                "Desk": [call("transfer_to_b"), call("transfer_to_b"), "done"],
                "B": [
                    call("transfer_to_weather"),
                    call("ask", question="day?"),
                    call("finish_task", result=1),
                    call("finish_task", result="Monday"),
                    call("transfer_to_desk"),
                ],
                "Weather": [call("finish_task", result="sunny")],
            }
        )
        return Runner(make_desk(b), model=model, store=store)

    await assert_survives_crashes(new_runner, "hi", answers=reply)


async def test_a_nested_task_survives_a_crash_after_every_event() -> None:
    def new_runner(store: Any) -> Runner:
        model = ScriptedModel(
            {
                "Desk": [call("transfer_to_b"), "Booked."],
                "B": ["Which day?", "How many?", call("finish_task", result="Monday, 2")],
            }
        )
        return Runner(SequentialAgent("Flow", sub_agents=[make_desk(Agent("B"))]), model=model, store=store)

    await assert_survives_crashes(new_runner, "hi", answers=reply)


# --- reading logs


def test_tasks_are_read_from_a_log() -> None:
    outer = OpenTask("1/task", "B", "A", "A", run_id="r0")
    inner = OpenTask("2/task", "C", "B", "B")
    events: list[Event] = [
        RunStarted("run", RUN_ORIGIN, 0, "r1", "B", tasks=(outer,)),
        AgentStarted("1/start", Origin("1", "B"), 0),
        TaskOpened("1/task", Origin("1", "B"), 0, inner),
        AgentStarted("2/start", Origin("2", "C"), 0),
        TaskOpened("2/0/1/task", Origin("2/0/1", "X"), 0, OpenTask("2/0/1/task", "Y", "X", "X")),
    ]
    assert [(task.agent, task.run_id) for task in open_tasks(events)] == [("B", "r0"), ("C", "r1")]
    assert last_active_agent(events) == "C"
    events.append(TaskEnded("2/task2", Origin("2", "C"), 0, inner, "finished"))
    assert last_active_agent(events) == "B"
    events.append(TaskEnded("3/task1", Origin("3", "B"), 0, outer, "declined"))
    assert (open_tasks(events), last_active_agent(events)) == ((), "A")
    assert open_tasks([]) == ()


def test_tasks_of_agents_that_are_gone_are_dropped_with_those_inside_them() -> None:
    tasks = [OpenTask("1", "B", "A", "A"), OpenTask("2", "C", "B", "B"), OpenTask("3", "D", "C", "C")]
    assert known_tasks(tasks, ["A", "B", "C", "D"]) == tuple(tasks)
    assert known_tasks(tasks, ["A", "B", "D"]) == tuple(tasks[:1])
    assert known_tasks(tasks, ["B", "C", "D"]) == ()


async def test_the_messages_of_a_thread_equal_those_of_its_runs() -> None:
    model = ScriptedModel(
        {"Desk": [call("transfer_to_b"), "done"], "B": ["Which day?", call("finish_task", result="Monday")]}
    )
    runner = Runner(make_desk(Agent("B")), model=model, store=MemoryStore())
    first = await runner.run("hi", thread="t")
    second = await runner.run("Monday", thread="t")
    messages = await runner.thread("t").messages()
    assert [type(message) for message in messages] == [type(m) for m in (*first.messages, *second.messages)]
    assert text_of(messages[2].content) == "Monday"
    assert isinstance(messages[-1], AssistantMessage)
    assert not any(isinstance(message, UserMessage) and "ended with" in str(message.content) for message in messages)
