"""`then_transfer`: an agent that transfers control when it finishes."""

from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from batonkit import Agent, AgentContext, Exit, RunContext, Runner, SetupError, Transfer, agent, then_transfer, tool
from batonkit.errors import TurnLimitError
from batonkit.log import AgentResponded, Event
from batonkit.messages import UserMessage
from batonkit.testing import ScriptedModel, call, transcript, transfer_to


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool(on_error="raise")
async def fail() -> str:
    """Fail."""
    raise OSError("disk full")


def make_runner(**options: Any) -> Runner[Any, Any]:
    """Create a runner whose `Worker` transfers to `Boss`."""
    worker = Agent("Worker", description="works", tools=[ask, fail], exit_tool=True)
    boss = Agent("Boss", description="decides")
    on_error = options.pop("on_error", "raise")
    return Runner(then_transfer(worker, to="Boss", on_error=on_error), extra_agents=[boss], **options)


async def test_an_agent_that_finishes_transfers_control() -> None:
    # The same events as for a transfer that a model requested.
    model = ScriptedModel({"Worker": ["work done"], "Boss": ["well done"]})
    result = await make_runner(model=model).run("go")
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
    name = 'the "Boss" \\ 上司'
    worker = then_transfer(Agent("Worker", model=ScriptedModel(["done"])), to=name)
    result = await Runner(worker, extra_agents=[Agent(name, model=ScriptedModel(["ok"]))]).run("go")
    (response,) = [event for event in result.events if isinstance(event, AgentResponded) and event.message.tool_calls]
    assert msgspec.json.decode(response.message.tool_calls[0].arguments) == {"agent_name": name}
    assert result.agent == name


async def test_the_agent_keeps_its_name_description_tools_and_edges() -> None:
    child = Agent("Child", description="c", model=ScriptedModel(["from the child"]))
    model = ScriptedModel([transfer_to("Child")])
    worker = Agent("Worker", description="works", model=model, tools=[ask], sub_agents=[child])
    wrapped = then_transfer(worker, to="Boss")
    assert (wrapped.name, wrapped.description) == ("Worker", "works")
    result = await Runner(wrapped, extra_agents=[Agent("Boss")]).run("go")
    # The model's own transfer is followed instead.
    assert (result.agent, result.output) == ("Child", "from the child")
    assert [spec.name for spec in model.requests[0].tools] == ["ask", "transfer_to_agent"]
    assert model.requests[0].tools[1].parameters["properties"]["agent_name"]["enum"] == ["Child"]


async def test_a_custom_agent_can_be_wrapped() -> None:
    @agent()
    async def worker(ctx: AgentContext) -> None:
        await ctx.say("done by a function")

    model = ScriptedModel(["well done"])
    result = await Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss", model=model)]).run("go")
    assert result.agent == "Boss"
    assert UserMessage("For context: [worker] said: done by a function.") in model.requests[0].messages


async def test_an_exit_is_not_followed_by_a_transfer() -> None:
    model = ScriptedModel({"Worker": [call("exit", final_result="that is all")]})
    result = await make_runner(model=model).run("go")
    assert (result.agent, result.output) == ("Worker", "that is all")


async def test_the_agents_own_transfer_takes_precedence() -> None:
    @agent(handoffs=["Other"])
    async def worker(ctx: AgentContext) -> Transfer:
        return Transfer("Other")

    others = [Agent("Boss"), Agent("Other", model=ScriptedModel(["other"]))]
    assert (await Runner(then_transfer(worker, to="Boss"), extra_agents=others).run("go")).agent == "Other"


@pytest.mark.parametrize("on_error", ["raise", "report"])
async def test_an_interrupt_suspends_the_run_and_the_transfer_follows_the_answer(on_error: str) -> None:
    model = ScriptedModel({"Worker": [call("ask", question="?"), "done"], "Boss": ["well done"]})
    runner = make_runner(model=model, on_error=on_error)
    suspended = await runner.run("go")
    assert (suspended.status, suspended.agent) == ("suspended", "Worker")
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.agent, result.output) == ("Boss", "well done")


async def test_an_error_ends_the_run() -> None:
    model = ScriptedModel({"Worker": [call("fail")], "Boss": ["never"]})
    stream = make_runner(model=model).stream("go")
    with pytest.raises(Exception, match="disk full"):
        await stream._drive()
    assert stream.result.status == "failed"
    assert [request.agent for request in model.requests] == ["Worker"]


async def test_an_error_is_reported_as_a_message_with_on_error_report() -> None:
    model = ScriptedModel({"Worker": [call("fail")], "Boss": ["we will manage"]})
    result = await make_runner(model=model, on_error="report").run("go")
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


async def test_a_reported_error_removes_the_messages_of_the_failed_agent() -> None:
    # Only the message about the error remains.
    model = ScriptedModel({"Worker": [call("ask", question="?"), call("fail")], "Boss": ["ok"]})
    runner = make_runner(model=model, on_error="report", history="verbatim")
    suspended = await runner.run("go")
    await runner.resume(suspended.run_id, "yes")
    assert [type(message).__name__ for message in model.requests[-1].messages] == [
        "UserMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


async def test_an_agent_with_a_reported_error_does_not_run_again_after_a_resume() -> None:
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


async def test_the_turn_limit_is_raised_or_reported() -> None:
    steps = {"Worker": [call("unknown_tool")] * 5, "Boss": ["ok"]}
    worker = Agent("Worker", tools=[ask], max_turns=1, on_max_turns="error")
    with pytest.raises(TurnLimitError):
        await Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss")], model=ScriptedModel(steps)).run(
            "go"
        )
    reported = then_transfer(worker, to="Boss", on_error="report")
    result = await Runner(reported, extra_agents=[Agent("Boss")], model=ScriptedModel(steps)).run("go")
    assert result.agent == "Boss"


async def test_agents_can_be_chained() -> None:
    first = then_transfer(Agent("One"), to="Two")
    second = then_transfer(Agent("Two"), to="Three")
    model = ScriptedModel({"One": ["1"], "Two": ["2"], "Three": ["3"]})
    result = await Runner(first, extra_agents=[second, Agent("Three")], model=model).run("go")
    assert result.output == "3"
    assert result.events[-2].path == ("One", "Two", "Three")


async def test_an_exit_of_the_target_ends_the_run() -> None:
    @agent()
    async def last(ctx: AgentContext) -> Exit:
        return Exit("over")

    model = ScriptedModel({"One": ["1"]})
    result = await Runner(then_transfer(Agent("One"), to="last"), extra_agents=[last], model=model).run("go")
    assert result.output == "over"


def test_an_agent_that_transfers_to_itself_is_refused() -> None:
    with pytest.raises(SetupError, match=r"then_transfer\(`A`, to=`A`\) would never end"):
        then_transfer(Agent("A"), to="A")


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(SetupError, match="`A` has a handoff to `Unknown`, but the team has no agent of that name"):
        Runner(then_transfer(Agent("A"), to="Unknown"))


async def test_the_model_has_no_tool_for_the_transfer() -> None:
    # The model does not see this handoff.
    model = ScriptedModel({"Worker": ["done"], "Boss": ["ok"]})
    await make_runner(model=model).run("go")
    assert [spec.name for spec in model.requests[0].tools] == ["ask", "fail", "exit"]
    assert model.requests[0].instructions == ""


async def test_the_events_of_the_wrapped_agent_are_unchanged_after_a_resume() -> None:
    model = ScriptedModel({"Worker": ["done"], "Boss": [call("ask", question="?"), "ok"]})
    worker = Agent("Worker")
    runner = Runner(then_transfer(worker, to="Boss"), extra_agents=[Agent("Boss", tools=[ask])], model=model)
    suspended = await runner.run("go")
    result = await runner.resume(suspended.run_id, "yes")

    def events_of_worker(events: tuple[Event, ...]) -> list[Event]:
        return [event for event in events if event.agent == "Worker"]

    assert events_of_worker(result.events) == events_of_worker(suspended.events)
