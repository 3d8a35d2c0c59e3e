"""Transfers of every kind, returning control, run paths and the output of a run."""

import asyncio
from typing import Any

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, AgentContext, BaseAgent, Exit, RunContext, Runner, Transfer, agent, handoff, tool
from batonkit.agents import RunHooks
from batonkit.errors import OpenInterruptError, TransferError
from batonkit.log import AgentFinished, AgentResponded, AgentStarted, ControlTransferred, Event, ToolReturned
from batonkit.messages import UserMessage
from batonkit.testing import ScriptedModel, call, transcript, transfer_to
from batonkit.workflows import BreakLoop, SequentialAgent


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def events_of_agents(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    """Return the type and agent of each event that belongs to an agent."""
    return [(type(event).__name__, event.agent) for event in events if event.agent]


# --- transfers


async def test_the_events_of_a_transfer_to_a_sub_agent() -> None:
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["hello"]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert events_of_agents(result.events) == [
        ("AgentStarted", "A"),
        ("AgentResponded", "A"),
        ("ToolReturned", "A"),
        ("ControlTransferred", "A"),
        ("AgentFinished", "A"),
        ("AgentStarted", "B"),
        ("AgentResponded", "B"),
        ("AgentFinished", "B"),
    ]
    response, returned, transferred = result.events[2:5]
    assert isinstance(response, AgentResponded)
    assert isinstance(returned, ToolReturned)
    assert isinstance(transferred, ControlTransferred)
    (transfer_call,) = response.message.tool_calls
    assert (returned.content, returned.call_id, returned.is_error) == (
        "successfully transferred to agent [B]",
        transfer_call.id,
        False,
    )
    assert (transferred.source, transferred.target, transferred.call_id) == ("A", "B", transfer_call.id)
    assert (transferred.payload, transferred.reason) == (None, "")


async def test_the_events_of_a_transfer_through_a_handoff_tool() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["hello"]})
    result = await Runner(Agent("A", handoffs=[Agent("B")]), model=model).run("hi")
    returned = next(event for event in result.events if isinstance(event, ToolReturned))
    assert returned.content == '{"assistant":"B"}'
    assert [name for name, _ in events_of_agents(result.events)] == [
        "AgentStarted",
        "AgentResponded",
        "ToolReturned",
        "ControlTransferred",
        "AgentFinished",
        "AgentStarted",
        "AgentResponded",
        "AgentFinished",
    ]


async def test_the_result_of_a_handoff_tool_is_json_for_any_name() -> None:
    name = 'the "Boss" 上司'
    model = ScriptedModel({"A": [call("go")], name: ["hello"]})
    edge = handoff(Agent(name), tool_name_override="go")
    result = await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    returned = next(event for event in result.events if isinstance(event, ToolReturned))
    assert returned.content == '{"assistant":"the \\"Boss\\" 上司"}'


async def test_the_target_reads_the_input_and_the_history() -> None:
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["hello"]})
    result = await Runner(Agent("A", sub_agents=[Agent("B", instructions="Be B.")]), model=model).run("hi")
    request = model.requests[1]
    assert request.instructions.startswith("Be B.")
    assert list(request.messages) == [
        UserMessage("hi"),
        UserMessage('For context: [A] called tool: `transfer_to_agent` with arguments: {"agent_name":"B"}.'),
        UserMessage(
            "For context: [A] `transfer_to_agent` tool returned result: successfully transferred to agent [B]."
        ),
    ]
    assert (result.agent, result.output) == ("B", "hello")


async def test_the_transferring_agent_does_not_run_again() -> None:
    model = ScriptedModel({"A": [transfer_to("B"), "never"], "B": ["hello"]})
    await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_an_agent_runs_again_after_a_transfer_back() -> None:
    model = ScriptedModel({"A": [transfer_to("B"), "back again"], "B": [transfer_to("A")]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "back again")


async def test_a_custom_agent_can_transfer_with_a_payload() -> None:
    # No call requested it, so there is no tool result.
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("B", payload={"reason": "bored"})

    result = await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["hello"]))]).run("hi")
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A → B with {"reason":"bored"}',
            "A finished",
            "B started",
            'B: said "hello"',
            "B finished",
            "run completed",
        ]
    )


async def test_a_custom_agent_cannot_transfer_without_a_handoff() -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("C")

    runner = Runner(a, extra_agents=[Agent("B", handoffs=["C"]), Agent("C")])
    with pytest.raises(TransferError, match=r"`A` cannot transfer to `C`; it can reach: `B`\.") as caught:
        await runner.run("hi")
    assert (caught.value.source, caught.value.target, caught.value.reachable) == ("A", "C", ("B",))


async def test_the_target_sees_the_values_of_the_source() -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        ctx.values.set("x", 1)
        return Transfer("B")

    @agent("B")
    async def b(ctx: AgentContext) -> None:
        ctx.values.set("y", ctx.values["x"] + 1)

    result = await Runner(a, extra_agents=[b]).run("hi")
    assert result.values == {"x": 1, "y": 2}
    changes = [event.value_changes for event in result.events if isinstance(event, AgentFinished)]
    assert [change.written if change else None for change in changes] == [{"x": 1}, {"y": 2}]


async def test_break_loop_without_a_loop_ends_the_run() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> BreakLoop:
        await ctx.say("enough")
        return BreakLoop()

    result = await Runner(a).run("hi")
    assert (result.status, result.output) == ("completed", "enough")


# --- returning control


async def test_control_stays_with_the_target_by_default() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b"), "never"], "B": ["the end"]})
    result = await Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to=None)]), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "the end")


async def test_control_returns_to_the_caller_which_reads_the_result() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b"), "A sums up"], "B": ["B's finding"]})
    result = await Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "A sums up")
    assert UserMessage("For context: [B] said: B's finding.") in model.requests[2].messages
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            "A: called transfer_to_b({})",
            'A: transfer_to_b -> {"assistant":"B"}',
            "A → B",
            "A finished",
            "B started",
            'B: said "B\'s finding"',
            "B → A (returned)",
            "B finished",
            "A started",
            'A: said "A sums up"',
            "A finished",
            "run completed",
        ]
    )


async def test_control_can_continue_with_a_named_agent() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["B's finding"], "C": ["C sums up"]})
    edge = handoff(Agent("B"), return_to="C")
    result = await Runner(Agent("A", handoffs=[edge]), extra_agents=[Agent("C")], model=model).run("hi")
    assert (result.agent, result.output) == ("C", "C sums up")
    assert [event.path for event in result.events if isinstance(event, AgentStarted)][-1] == ("A", "B", "C")


async def test_a_transfer_of_the_target_takes_precedence_over_return_to() -> None:
    # Only a target that finishes without a transfer gives control back.
    model = ScriptedModel({"A": [call("transfer_to_b"), "A again"], "B": [call("transfer_to_a")]})
    b = Agent("B", handoffs=["A"])
    result = await Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "A again")
    # The transfer to A discards the return, so A's answer ends the run.
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "A"]


async def test_nested_callers_get_control_back_in_reverse_order() -> None:
    c = Agent("C")
    b = Agent("B", handoffs=[handoff(c, return_to="caller")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), "A ends"], "B": [call("transfer_to_c"), "B sums up"], "C": ["C's finding"]}
    )
    result = await Runner(a, model=model).run("hi")
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "C", "B", "A"]
    assert result.output == "A ends"


async def test_the_caller_gets_control_back_after_a_further_transfer_of_its_target() -> None:
    # B transfers to C; when C finishes, control returns to A.
    b = Agent("B", handoffs=[Agent("C")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    model = ScriptedModel({"A": [call("transfer_to_b"), "A ends"], "B": [call("transfer_to_c")], "C": ["C's finding"]})
    result = await Runner(a, model=model).run("hi")
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "C", "A"]


async def test_control_does_not_return_after_an_error() -> None:
    @agent("B")
    async def b(ctx: AgentContext) -> None:
        raise OSError("disk full")

    model = ScriptedModel({"A": [call("transfer_to_b"), "never"]})
    stream = Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).stream("hi")
    with pytest.raises(OSError, match="disk full"):
        await stream._drive()
    assert (stream.result.status, stream.result.agent) == ("failed", "B")
    assert model.remaining == 1


async def test_control_returns_to_the_caller_after_an_interrupt_is_answered() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b"), "A ends"], "B": [call("ask", question="?"), "B's finding"]})
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B", tools=[ask]), return_to="caller")]), model=model)
    suspended = await runner.run("hi")
    assert suspended.agent == "B"
    assert (await runner.resume(suspended.run_id, "yes")).output == "A ends"


async def test_control_does_not_return_after_an_exit() -> None:
    @agent("B")
    async def b(ctx: AgentContext) -> Exit:
        return Exit("over")

    model = ScriptedModel({"A": [call("transfer_to_b"), "never"]})
    result = await Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert result.output == "over"


async def test_return_to_is_taken_from_the_handoff_that_was_called() -> None:
    b = Agent("B")
    edges = [handoff(b, tool_name_override="consult", return_to="caller"), handoff(b, tool_name_override="hand_over")]
    for tool_name, starts in (("consult", ["A", "B", "A"]), ("hand_over", ["A", "B"])):
        model = ScriptedModel({"A": [call(tool_name), "A sums up"], "B": ["B's finding"]})
        result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
        assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == starts


async def test_a_function_that_returns_an_agent_does_not_use_the_options_of_a_handoff() -> None:
    b = Agent("B")

    def to_b() -> Agent:
        return b

    model = ScriptedModel({"A": [call("to_b"), "never"], "B": ["B's finding"]})
    result = await Runner(Agent("A", tools=[to_b], handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "B's finding")


async def test_the_history_policy_is_taken_from_the_handoff_that_was_called() -> None:
    b = Agent("B")
    edges = [
        handoff(b, tool_name_override="without_history", history="none"),
        handoff(b, tool_name_override="with_history", history=None),
    ]
    for tool_name, count in (("without_history", 1), ("with_history", 3)):
        model = ScriptedModel({"A": [call(tool_name)], "B": ["ok"]})
        await Runner(Agent("A", handoffs=edges), model=model).run("hi")
        assert len(model.requests[1].messages) == count


# --- run paths


async def test_the_run_path_grows_with_every_transfer() -> None:
    model = ScriptedModel({"A": [transfer_to("B"), "done"], "B": [transfer_to("A")]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    started = [event for event in result.events if isinstance(event, AgentStarted)]
    assert [event.path for event in started] == [("A",), ("A", "B"), ("A", "B", "A")]
    # Events of an activation have its agent and path; events of the run have neither.
    assert {(event.agent, event.path) for event in result.events} == {
        ("", ()),
        ("A", ("A",)),
        ("B", ("A", "B")),
        ("A", ("A", "B", "A")),
    }


async def test_agents_and_tools_can_read_the_run_path() -> None:
    seen: list[tuple[str, ...]] = []

    @tool
    async def look(ctx: RunContext) -> str:
        seen.append(ctx.path)
        return "ok"

    @agent("B", handoffs=["A"])
    async def b(ctx: AgentContext) -> Transfer:
        seen.append(ctx.path)
        return Transfer("A")

    model = ScriptedModel([call("look"), call("transfer_to_b"), call("look"), "done"])
    await Runner(Agent("A", model=model, tools=[look], handoffs=[b])).run("hi")
    assert seen == [("A",), ("A", "B"), ("A", "B", "A")]


async def test_the_run_path_grows_when_control_returns() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b"), "done"], "B": ["finding"]})
    result = await Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]), model=model).run("hi")
    assert result.events[-2].path == ("A", "B", "A")


# --- shared agents


async def test_an_agent_can_have_several_parents_and_transfer_to_each() -> None:
    shared = Agent("Shared", description="s")
    left = Agent("Left", description="l", sub_agents=[shared])
    right = Agent("Right", description="r", sub_agents=[shared])
    model = ScriptedModel(
        {
            "Root": [transfer_to("Left")],
            "Left": [transfer_to("Shared")],
            "Shared": [transfer_to("Right")],
            "Right": ["ok"],
        }
    )
    runner = Runner(Agent("Root", sub_agents=[left, right]), model=model)
    assert (await runner.run("hi")).agent == "Right"
    tools = {request.agent: request.tools for request in model.requests}
    assert tools["Shared"][0].parameters["properties"]["agent_name"]["enum"] == ["Left", "Right"]


async def test_an_agent_can_be_in_several_teams() -> None:
    shared = Agent("Shared", description="s")
    alone = Runner(shared, model=ScriptedModel(["alone"]))
    model = ScriptedModel({"Shared": ["ok", "ok"], "One": [transfer_to("Shared")], "Two": [transfer_to("Shared")]})
    teams = [Runner(Agent(name, sub_agents=[shared]), model=model) for name in ("One", "Two")]
    for team, parent in zip(teams, ("One", "Two"), strict=True):
        assert (await team.run("hi")).agent == "Shared"
        enum: Any = model.requests[-1].tools[0].parameters["properties"]["agent_name"]["enum"]
        assert enum == [parent]
    result = await alone.run("hi")
    assert (result.output, alone.team.members["Shared"].routes.reachable) == ("alone", ())


# --- functions that return undeclared agents


async def test_a_function_can_return_a_new_agent() -> None:
    def make(name: str) -> Agent:
        """Make an expert."""
        return Agent(f"Expert {name}", handoffs=[Agent(f"Helper of {name}")])

    model = ScriptedModel(
        {"A": [call("make", name="x")], "Expert x": [call("transfer_to_helper_of_x")], "Helper of x": ["hello"]}
    )
    result = await Runner(Agent("A", tools=[make]), model=model).run("hi")
    assert result.events[-2].path == ("A", "Expert x", "Helper of x")


async def test_an_agent_returned_by_a_function_is_not_added_to_the_team() -> None:
    # The team is immutable.
    def make() -> Agent:
        return Agent("Temporary")

    model = ScriptedModel({"A": [call("make")], "Temporary": ["hello"]})
    runner = Runner(Agent("A", tools=[make]), model=model)
    await runner.run("hi")
    assert list(runner.team.members) == ["A"]


async def test_an_agent_returned_by_a_function_is_restored_after_a_resume() -> None:
    def make() -> Agent:
        return Agent("Temporary", tools=[ask])

    model = ScriptedModel({"A": [call("make")], "Temporary": [call("ask", question="?"), "hello"]})
    runner = Runner(Agent("A", tools=[make]), model=model)
    suspended = await runner.run("hi")
    assert suspended.agent == "Temporary"
    assert (await runner.resume(suspended.run_id, "yes")).output == "hello"


# --- agents that continue without the answer


async def test_an_agent_that_swallows_its_interrupt_fails() -> None:
    # The run completed despite an open interrupt.
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        try:
            await ctx.say(await ctx.interrupt("sure?"))
        except BaseException:  # noqa: BLE001 - the mistake under test
            await ctx.say("assumed")

    stream = Runner(a).stream("hi")
    with pytest.raises(
        OpenInterruptError, match=r"`A` continued while its question `1/ask1` is open; .*except Exception"
    ):
        await stream._drive()
    assert stream.result.status == "failed"
    assert not any(isinstance(event, AgentFinished) for event in stream.result.events)


async def test_an_agent_that_swallows_the_interrupt_of_an_inner_agent_fails() -> None:
    inner = Agent("Inner", model=ScriptedModel([call("ask", question="?"), "asked"]), tools=[ask])

    class SwallowingAgent(BaseAgent):
        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (inner,)

        async def run(self, ctx: AgentContext) -> None:
            await asyncio.gather(ctx.run_agent(inner, "one"), return_exceptions=True)

    with pytest.raises(OpenInterruptError, match=r"`A` continued while its question `1/one/1/m1.0/ask1` is open"):
        await Runner(SwallowingAgent("A")).run("hi")


async def test_an_agent_that_transfers_despite_its_open_interrupt_fails() -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        try:
            await ctx.interrupt("sure?")
        except BaseException:  # noqa: BLE001 - the mistake under test
            return Transfer("B")
        return Transfer("B")

    with pytest.raises(OpenInterruptError, match="`A` continued"):
        await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["done"]))]).run("hi")


# --- the output of a run whose last agent has no answer


async def test_the_output_is_the_last_answer_if_the_last_agent_has_none() -> None:
    # It was None.
    outputs: list[tuple[str, Any]] = []

    class RecordingHooks(RunHooks):
        def on_agent_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
            outputs.append((agent.name, output))

        def on_run_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
            outputs.append(("run", output))

    @agent("Desk", handoffs=[handoff("Clerk", return_to="caller")])
    async def desk(ctx: AgentContext) -> Transfer | None:
        return Transfer("Clerk") if len(ctx.messages()) == 1 else None

    clerk = Agent("Clerk", output_type=int, model=ScriptedModel(["42"]))
    result = await Runner(desk, extra_agents=[clerk], hooks=RecordingHooks()).run("hi")
    assert (result.agent, result.output) == ("Desk", 42)
    # on_agent_end gets only the agent's own output.
    assert outputs == [("Desk", None), ("Clerk", None), ("Desk", None), ("run", 42)]


async def test_an_exit_without_a_result_keeps_the_last_answer() -> None:
    @agent("Closer")
    async def closer(ctx: AgentContext) -> Exit:
        return Exit()

    writer = Agent("Writer", model=ScriptedModel(["a text"]))
    result = await Runner(SequentialAgent("Both", sub_agents=[writer, closer])).run("hi")
    assert result.output == "a text"


async def test_a_run_without_answers_has_no_output() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        return None

    assert (await Runner(silent).run("hi")).output is None
