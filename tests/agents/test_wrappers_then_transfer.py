"""An agent that always hands on: after a normal end and only then."""

from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from baton import Agent, AgentContext, Exit, RunContext, Runner, SetupError, Transfer, agent, then_transfer, tool
from baton.errors import TurnLimitError
from baton.events import AgentResponded, Event
from baton.messages import UserMessage
from baton.testing import ScriptedModel, call, transcript, transfer_to


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool(on_error="raise")
async def fail() -> str:
    """Fail."""
    raise OSError("disk full")


def desk(**facts: Any) -> Runner[Any, Any]:
    """`Worker` always hands on to `Boss`."""
    worker = Agent("Worker", description="works", tools=[ask, fail], exit_tool=True)
    boss = Agent("Boss", description="decides")
    on_error = facts.pop("on_error", "raise")
    return Runner(then_transfer(worker, to="Boss", on_error=on_error), extra_agents=[boss], **facts)


async def test_after_a_normal_end_control_goes_on() -> None:
    # T21: the same trace as a transfer that a model asked for.
    model = ScriptedModel({"Worker": ["work done"], "Boss": ["well done"]})
    result = await desk(model=model).run("go")
    assert (result.agent, result.output) == ("Boss", "well done")
    assert transcript(result.events) == snapshot(
        [
            'run of Worker started with "go"',
            "Worker started",
            'Worker: said "work done"',
            'Worker: called transfer_to_agent({"agent_name":"Boss"})',
            "Worker: transfer_to_agent -> successfully transferred to agent [Boss]",
            "Worker → Boss",
            "Worker finished",
            "Boss started",
            'Boss: said "well done"',
            "Boss finished",
            "run completed",
        ]
    )


async def test_the_synthetic_call_is_valid_json_for_any_name() -> None:
    # T21
    name = 'the "Boss" \\ 上司'
    worker = then_transfer(Agent("Worker", model=ScriptedModel(["done"])), to=name)
    result = await Runner(worker, extra_agents=[Agent(name, model=ScriptedModel(["ok"]))]).run("go")
    (spoken,) = [event for event in result.events if isinstance(event, AgentResponded) and event.message.tool_calls]
    assert msgspec.json.decode(spoken.message.tool_calls[0].arguments) == {"agent_name": name}
    assert result.agent == name


async def test_the_agent_keeps_its_name_description_tools_and_edges() -> None:
    # T21: it wraps any agent.
    child = Agent("Child", description="c", model=ScriptedModel(["from the child"]))
    model = ScriptedModel([transfer_to("Child")])
    worker = Agent("Worker", description="works", model=model, tools=[ask], sub_agents=[child])
    wrapped = then_transfer(worker, to="Boss")
    assert (wrapped.name, wrapped.description) == ("Worker", "works")
    result = await Runner(wrapped, extra_agents=[Agent("Boss")]).run("go")
    # The model's own transfer passes; only a normal end hands on.
    assert (result.agent, result.output) == ("Child", "from the child")
    assert [spec.name for spec in model.requests[0].tools] == ["ask", "transfer_to_agent"]
    assert model.requests[0].tools[1].parameters["properties"]["agent_name"]["enum"] == ["Child"]


async def test_it_wraps_an_agent_of_your_own() -> None:
    # T21
    @agent()
    async def worker(ctx: AgentContext) -> None:
        await ctx.say("done by hand")

    model = ScriptedModel(["well done"])
    result = await Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss", model=model)]).run("go")
    assert result.agent == "Boss"
    assert UserMessage("For context: [worker] said: done by hand.") in model.requests[0].messages


async def test_an_exit_passes() -> None:
    # T21
    model = ScriptedModel({"Worker": [call("exit", final_result="that is all")]})
    result = await desk(model=model).run("go")
    assert (result.agent, result.output) == ("Worker", "that is all")


async def test_a_transfer_of_its_own_passes() -> None:
    # T21
    @agent(handoffs=["Other"])
    async def worker(ctx: AgentContext) -> Transfer:
        return Transfer("Other")

    others = [Agent("Boss"), Agent("Other", model=ScriptedModel(["other"]))]
    assert (await Runner(then_transfer(worker, to="Boss"), extra_agents=others).run("go")).agent == "Other"


@pytest.mark.parametrize("on_error", ["raise", "report"])
async def test_an_interrupt_passes_and_control_goes_on_after_the_answer(on_error: str) -> None:
    # T21
    model = ScriptedModel({"Worker": [call("ask", question="?"), "done"], "Boss": ["well done"]})
    runner = desk(model=model, on_error=on_error)
    suspended = await runner.run("go")
    assert (suspended.status, suspended.agent) == ("suspended", "Worker")
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.agent, result.output) == ("Boss", "well done")


async def test_an_error_ends_the_run() -> None:
    # T21
    model = ScriptedModel({"Worker": [call("fail")], "Boss": ["never"]})
    live = desk(model=model).stream("go")
    with pytest.raises(Exception, match="disk full"):
        await live._drive()
    assert live.result.status == "failed"
    assert [request.agent for request in model.requests] == ["Worker"]


async def test_an_error_is_reported_as_a_message_if_that_is_wanted() -> None:
    # T21
    model = ScriptedModel({"Worker": [call("fail")], "Boss": ["we will manage"]})
    result = await desk(model=model, on_error="report").run("go")
    assert (result.agent, result.output) == ("Boss", "we will manage")
    assert list(model.requests[1].messages) == snapshot(
        [
            UserMessage(content="go"),
            UserMessage(content="[Worker] failed: ToolFailedError: tool `fail` failed: OSError: disk full"),
            UserMessage(
                content='For context: [Worker] called tool: `transfer_to_agent` with arguments: {"agent_name":"Boss"}.'
            ),
            UserMessage(
                content="For context: [Worker] `transfer_to_agent` tool returned result: successfully transferred to agent [Boss]."  # noqa: E501
            ),
        ]
    )
    assert transcript(result.events) == snapshot(
        [
            'run of Worker started with "go"',
            "Worker started",
            "Worker: called fail({})",
            'Worker: step failed -> "[Worker] failed: ToolFailedError: tool `fail` failed: OSError: disk full"',
            'Worker: called transfer_to_agent({"agent_name":"Boss"})',
            "Worker: transfer_to_agent -> successfully transferred to agent [Boss]",
            "Worker → Boss",
            "Worker finished",
            "Boss started",
            'Boss: said "we will manage"',
            "Boss finished",
            "run completed",
        ]
    )


async def test_a_reported_error_leaves_no_half_a_conversation_behind() -> None:
    # T21, T26: the message is all that is left of the agent's attempt.
    model = ScriptedModel({"Worker": [call("ask", question="?"), call("fail")], "Boss": ["ok"]})
    runner = desk(model=model, on_error="report", history="verbatim")
    suspended = await runner.run("go")
    await runner.resume(suspended.run_id, "yes")
    assert [type(message).__name__ for message in model.requests[-1].messages] == [
        "UserMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


async def test_a_reported_error_is_not_tried_again_on_resume() -> None:
    # T21, DESIGN §1
    runs: list[str] = []

    @agent()
    async def worker(ctx: AgentContext) -> None:
        runs.append("worker")
        ctx.values.set("tried", len(runs))
        await ctx.step("before", lambda: "x")
        raise OSError("disk full")

    boss = Agent("Boss", tools=[ask])
    model = ScriptedModel([call("ask", question="?"), "ok"])
    runner = Runner(then_transfer(worker, to="Boss", on_error="report"), extra_agents=[boss], model=model)
    suspended = await runner.run("go")
    assert suspended.agent == "Boss"
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.output, runs, result.values) == ("ok", ["worker"], {"tried": 1})


async def test_a_turn_limit_is_an_error_like_any_other() -> None:
    # T21, T3
    steps = {"Worker": [call("ask_nobody")] * 5, "Boss": ["ok"]}
    worker = Agent("Worker", tools=[ask], max_turns=1, on_max_turns="error")
    with pytest.raises(TurnLimitError):
        await Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss")], model=ScriptedModel(steps)).run(
            "go"
        )
    reported = then_transfer(worker, to="Boss", on_error="report")
    result = await Runner(reported, extra_agents=[Agent("Boss")], model=ScriptedModel(steps)).run("go")
    assert result.agent == "Boss"


async def test_a_chain_of_agents_that_hand_on() -> None:
    # T21, T22
    first = then_transfer(Agent("One"), to="Two")
    second = then_transfer(Agent("Two"), to="Three")
    model = ScriptedModel({"One": ["1"], "Two": ["2"], "Three": ["3"]})
    result = await Runner(first, extra_agents=[second, Agent("Three")], model=model).run("go")
    assert result.output == "3"
    assert result.events[-2].path == ("One", "Two", "Three")


async def test_exit_of_the_last_agent_of_a_chain_does_not_come_back() -> None:
    # T21, T8
    @agent()
    async def last(ctx: AgentContext) -> Exit:
        return Exit("over")

    model = ScriptedModel({"One": ["1"]})
    result = await Runner(then_transfer(Agent("One"), to="last"), extra_agents=[last], model=model).run("go")
    assert result.output == "over"


def test_it_must_not_hand_on_to_itself() -> None:
    # T21
    with pytest.raises(SetupError, match=r"then_transfer\(`A`, to=`A`\) would never end"):
        then_transfer(Agent("A"), to="A")


def test_it_must_hand_on_to_somebody() -> None:
    # T11, T21
    with pytest.raises(SetupError, match="`A` has a handoff to `Nobody`, but the team has no agent of that name"):
        Runner(then_transfer(Agent("A"), to="Nobody"))


async def test_the_models_own_tools_do_not_show_where_it_hands_on() -> None:
    # T21: the edge is for the code, not for the model.
    model = ScriptedModel({"Worker": ["done"], "Boss": ["ok"]})
    await desk(model=model).run("go")
    assert [spec.name for spec in model.requests[0].tools] == ["ask", "fail", "exit"]
    assert model.requests[0].instructions == ""


async def test_what_it_says_is_recorded_once_across_resume() -> None:
    # T21
    model = ScriptedModel({"Worker": ["done"], "Boss": [call("ask", question="?"), "ok"]})
    worker = Agent("Worker")
    runner = Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss", tools=[ask])], model=model)
    suspended = await runner.run("go")
    result = await runner.resume(suspended.run_id, "yes")

    def of_worker(events: tuple[Event, ...]) -> list[Event]:
        return [event for event in events if event.agent == "Worker"]

    assert of_worker(result.events) == of_worker(suspended.events)
