"""Who has the floor next: transfers of every kind, where control goes afterwards, and the path that records it."""

import asyncio
from typing import Any

import pytest
from inline_snapshot import snapshot

from baton import Agent, AgentContext, BaseAgent, Exit, RunContext, Runner, Transfer, agent, handoff, tool
from baton.agents import RunHooks
from baton.errors import OpenInterruptError, TransferError
from baton.events import AgentFinished, AgentResponded, AgentStarted, ControlTransferred, Event, ToolReturned
from baton.messages import UserMessage
from baton.testing import ScriptedModel, call, transcript, transfer_to
from baton.workflows import BreakLoop, SequentialAgent


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def kinds(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    """What happened to whom."""
    return [(type(event).__name__, event.agent) for event in events if event.agent]


# --- T16, T17: a transfer


async def test_the_events_of_a_transfer_through_the_one_tool() -> None:
    # T16
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["hello"]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert kinds(result.events) == [
        ("AgentStarted", "A"),
        ("AgentResponded", "A"),
        ("ToolReturned", "A"),
        ("ControlTransferred", "A"),
        ("AgentFinished", "A"),
        ("AgentStarted", "B"),
        ("AgentResponded", "B"),
        ("AgentFinished", "B"),
    ]
    said, returned, transferred = result.events[2:5]
    assert isinstance(said, AgentResponded)
    assert isinstance(returned, ToolReturned)
    assert isinstance(transferred, ControlTransferred)
    (wish,) = said.message.tool_calls
    assert (returned.content, returned.call_id, returned.is_error) == (
        "successfully transferred to agent [B]",
        wish.id,
        False,
    )
    assert (transferred.source, transferred.target, transferred.call_id) == ("A", "B", wish.id)
    assert (transferred.payload, transferred.reason) == (None, "")


async def test_the_events_of_a_transfer_through_a_tool_per_target() -> None:
    # T16
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["hello"]})
    result = await Runner(Agent("A", handoffs=[Agent("B")]), model=model).run("hi")
    returned = next(event for event in result.events if isinstance(event, ToolReturned))
    assert returned.content == '{"assistant":"B"}'
    assert [name for name, _ in kinds(result.events)] == [
        "AgentStarted",
        "AgentResponded",
        "ToolReturned",
        "ControlTransferred",
        "AgentFinished",
        "AgentStarted",
        "AgentResponded",
        "AgentFinished",
    ]


async def test_the_result_of_a_tool_per_target_is_json_for_any_name() -> None:
    # T16
    name = 'the "Boss" 上司'
    model = ScriptedModel({"A": [call("go")], name: ["hello"]})
    edge = handoff(Agent(name), tool_name_override="go")
    result = await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    returned = next(event for event in result.events if isinstance(event, ToolReturned))
    assert returned.content == '{"assistant":"the \\"Boss\\" 上司"}'


async def test_the_target_works_on_the_original_input_and_the_history() -> None:
    # T17
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
    # T17
    model = ScriptedModel({"A": [transfer_to("B"), "never"], "B": ["hello"]})
    await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_it_runs_again_when_somebody_transfers_to_it() -> None:
    # T17, T22
    model = ScriptedModel({"A": [transfer_to("B"), "back again"], "B": [transfer_to("A")]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "back again")


async def test_an_agent_of_your_own_transfers_with_a_payload() -> None:
    # T16: no call asked for it, so there is none to answer.
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


async def test_an_agent_of_your_own_cannot_transfer_where_no_edge_goes() -> None:
    # T14, T19
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("C")

    runner = Runner(a, extra_agents=[Agent("B", handoffs=["C"]), Agent("C")])
    with pytest.raises(TransferError, match=r"`A` cannot transfer to `C`; it can reach: `B`\.") as caught:
        await runner.run("hi")
    assert (caught.value.source, caught.value.target, caught.value.reachable) == ("A", "C", ("B",))


async def test_values_flow_along_a_transfer() -> None:
    # T17
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


async def test_breaking_a_loop_where_there_is_none_just_ends() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> BreakLoop:
        await ctx.say("enough")
        return BreakLoop()

    result = await Runner(a).run("hi")
    assert (result.status, result.output) == ("completed", "enough")


# --- T21: where control goes afterwards


async def test_control_stays_by_default() -> None:
    # T21
    model = ScriptedModel({"A": [call("transfer_to_b"), "never"], "B": ["the end"]})
    result = await Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to=None)]), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "the end")


async def test_control_goes_back_to_the_caller_who_sees_the_result() -> None:
    # T21
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


async def test_control_goes_on_to_a_named_agent() -> None:
    # T21
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["B's finding"], "C": ["C sums up"]})
    edge = handoff(Agent("B"), return_to="C")
    result = await Runner(Agent("A", handoffs=[edge]), extra_agents=[Agent("C")], model=model).run("hi")
    assert (result.agent, result.output) == ("C", "C sums up")
    assert [event.path for event in result.events if isinstance(event, AgentStarted)][-1] == ("A", "B", "C")


async def test_a_transfer_of_the_target_goes_before_what_the_edge_says() -> None:
    # T21: only a target that finishes without a transfer gives control back.
    model = ScriptedModel({"A": [call("transfer_to_b"), "A again"], "B": [call("transfer_to_a")]})
    b = Agent("B", handoffs=["A"])
    result = await Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "A again")
    # A was called back by name, so nobody waits any more: its answer is the end.
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "A"]


async def test_callers_wait_in_a_stack() -> None:
    # T21
    c = Agent("C")
    b = Agent("B", handoffs=[handoff(c, return_to="caller")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), "A ends"], "B": [call("transfer_to_c"), "B sums up"], "C": ["C's finding"]}
    )
    result = await Runner(a, model=model).run("hi")
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "C", "B", "A"]
    assert result.output == "A ends"


async def test_a_caller_waits_through_a_further_transfer_of_its_target() -> None:
    # T21: B passes on to C; it is C who finishes, and A still waits.
    b = Agent("B", handoffs=[Agent("C")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    model = ScriptedModel({"A": [call("transfer_to_b"), "A ends"], "B": [call("transfer_to_c")], "C": ["C's finding"]})
    result = await Runner(a, model=model).run("hi")
    assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == ["A", "B", "C", "A"]


async def test_nobody_is_called_back_after_an_error() -> None:
    # T21
    @agent("B")
    async def b(ctx: AgentContext) -> None:
        raise OSError("disk full")

    model = ScriptedModel({"A": [call("transfer_to_b"), "never"]})
    live = Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).stream("hi")
    with pytest.raises(OSError, match="disk full"):
        await live._drive()
    assert (live.result.status, live.result.agent) == ("failed", "B")
    assert model.remaining == 1


async def test_the_caller_is_called_back_after_an_interrupt_is_answered() -> None:
    # T21
    model = ScriptedModel({"A": [call("transfer_to_b"), "A ends"], "B": [call("ask", question="?"), "B's finding"]})
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B", tools=[ask]), return_to="caller")]), model=model)
    suspended = await runner.run("hi")
    assert suspended.agent == "B"
    assert (await runner.resume(suspended.run_id, "yes")).output == "A ends"


async def test_exit_does_not_call_back() -> None:
    # T21, T8
    @agent("B")
    async def b(ctx: AgentContext) -> Exit:
        return Exit("over")

    model = ScriptedModel({"A": [call("transfer_to_b"), "never"]})
    result = await Runner(Agent("A", handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert result.output == "over"


async def test_of_several_edges_to_one_agent_the_one_that_was_called_counts() -> None:
    # T21: where control goes afterwards belongs to the edge.
    b = Agent("B")
    edges = [handoff(b, tool_name_override="consult", return_to="caller"), handoff(b, tool_name_override="hand_over")]
    for tool_name, starts in (("consult", ["A", "B", "A"]), ("hand_over", ["A", "B"])):
        model = ScriptedModel({"A": [call(tool_name), "A sums up"], "B": ["B's finding"]})
        result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
        assert [event.agent for event in result.events if isinstance(event, AgentStarted)] == starts


async def test_a_function_that_returns_an_agent_goes_by_no_edges_rules() -> None:
    # T13, T21
    b = Agent("B")

    def to_b() -> Agent:
        return b

    model = ScriptedModel({"A": [call("to_b"), "never"], "B": ["B's finding"]})
    result = await Runner(Agent("A", tools=[to_b], handoffs=[handoff(b, return_to="caller")]), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "B's finding")


async def test_how_the_target_reads_belongs_to_the_edge_that_was_called() -> None:
    # T25
    b = Agent("B")
    edges = [handoff(b, tool_name_override="afresh", history="none"), handoff(b, tool_name_override="on", history=None)]
    for tool_name, count in (("afresh", 1), ("on", 3)):
        model = ScriptedModel({"A": [call(tool_name)], "B": ["ok"]})
        await Runner(Agent("A", handoffs=edges), model=model).run("hi")
        assert len(model.requests[1].messages) == count


# --- T22: run paths


async def test_the_run_path_grows_with_every_transfer() -> None:
    # T22
    model = ScriptedModel({"A": [transfer_to("B"), "done"], "B": [transfer_to("A")]})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    started = [event for event in result.events if isinstance(event, AgentStarted)]
    assert [event.path for event in started] == [("A",), ("A", "B"), ("A", "B", "A")]
    # Every event of an activation is stamped by it, and events of the run as a whole by nobody.
    assert {(event.agent, event.path) for event in result.events} == {
        ("", ()),
        ("A", ("A",)),
        ("B", ("A", "B")),
        ("A", ("A", "B", "A")),
    }


async def test_the_path_is_known_to_agents_and_tools() -> None:
    # T22
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


async def test_control_that_goes_back_or_on_grows_the_path_like_any_transfer() -> None:
    # T21, T22
    model = ScriptedModel({"A": [call("transfer_to_b"), "done"], "B": ["finding"]})
    result = await Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]), model=model).run("hi")
    assert result.events[-2].path == ("A", "B", "A")


# --- T15: one agent in many places


async def test_an_agent_may_have_several_parents_and_goes_back_to_any() -> None:
    # T15
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


async def test_an_agent_may_be_in_several_teams_at_once() -> None:
    # T15
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


# --- functions that return agents nobody knew


async def test_a_function_may_return_an_agent_that_is_made_on_the_spot() -> None:
    # T13, swarm.md S1
    def make(name: str) -> Agent:
        """Make an expert."""
        return Agent(f"Expert {name}", handoffs=[Agent(f"Helper of {name}")])

    model = ScriptedModel(
        {"A": [call("make", name="x")], "Expert x": [call("transfer_to_helper_of_x")], "Helper of x": ["hello"]}
    )
    result = await Runner(Agent("A", tools=[make]), model=model).run("hi")
    assert result.events[-2].path == ("A", "Expert x", "Helper of x")


async def test_a_guest_of_one_run_is_unknown_to_the_next() -> None:
    # T13: the team is immutable.
    def make() -> Agent:
        return Agent("Guest")

    model = ScriptedModel({"A": [call("make")], "Guest": ["hello"]})
    runner = Runner(Agent("A", tools=[make]), model=model)
    await runner.run("hi")
    assert list(runner.team.members) == ["A"]


async def test_a_guest_is_still_there_after_resume() -> None:
    # T13, DESIGN §6
    def make() -> Agent:
        return Agent("Guest", tools=[ask])

    model = ScriptedModel({"A": [call("make")], "Guest": [call("ask", question="?"), "hello"]})
    runner = Runner(Agent("A", tools=[make]), model=model)
    suspended = await runner.run("hi")
    assert suspended.agent == "Guest"
    assert (await runner.resume(suspended.run_id, "yes")).output == "hello"


# --- F12: agents that go on without the answer


async def test_an_agent_that_swallows_its_suspension_fails() -> None:
    # F12: the run completed over an open question.
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        try:
            await ctx.say(await ctx.interrupt("sure?"))
        except BaseException:  # noqa: BLE001 - the mistake under test
            await ctx.say("assumed")

    live = Runner(a).stream("hi")
    with pytest.raises(
        OpenInterruptError, match=r"`A` went on while its question `1/ask1` is open; .*except Exception"
    ):
        await live._drive()
    assert live.result.status == "failed"
    assert not any(isinstance(event, AgentFinished) for event in live.result.events)


async def test_an_agent_that_swallows_the_suspension_of_an_inner_agent_fails() -> None:
    # F12
    inner = Agent("Inner", model=ScriptedModel([call("ask", question="?"), "asked"]), tools=[ask])

    class Careless(BaseAgent):
        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (inner,)

        async def run(self, ctx: AgentContext) -> None:
            await asyncio.gather(ctx.run_agent(inner, "one"), return_exceptions=True)

    with pytest.raises(OpenInterruptError, match=r"`A` went on while its question `1/one/1/m1.0/ask1` is open"):
        await Runner(Careless("A")).run("hi")


async def test_an_agent_that_transfers_over_its_open_question_fails() -> None:
    # F12
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        try:
            await ctx.interrupt("sure?")
        except BaseException:  # noqa: BLE001 - the mistake under test
            return Transfer("B")
        return Transfer("B")

    with pytest.raises(OpenInterruptError, match="`A` went on"):
        await Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["done"]))]).run("hi")


# --- F23: the output of a run whose last agent says nothing


async def test_the_output_is_the_last_answer_given() -> None:
    # F23: it was None.
    ends: list[tuple[str, Any]] = []

    class Ends(RunHooks):
        def on_agent_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
            ends.append((agent.name, output))

        def on_run_end(self, ctx: RunContext, agent: Any, output: Any) -> None:
            ends.append(("run", output))

    @agent("Desk", handoffs=[handoff("Clerk", return_to="caller")])
    async def desk(ctx: AgentContext) -> Transfer | None:
        return Transfer("Clerk") if len(ctx.messages()) == 1 else None

    clerk = Agent("Clerk", output_type=int, model=ScriptedModel(["42"]))
    result = await Runner(desk, extra_agents=[clerk], hooks=Ends()).run("hi")
    assert (result.agent, result.output) == ("Desk", 42)
    # An agent's own output is still what it said itself.
    assert ends == [("Desk", None), ("Clerk", None), ("Desk", None), ("run", 42)]


async def test_an_exit_without_result_keeps_the_last_answer() -> None:
    # F23
    @agent("Closer")
    async def closer(ctx: AgentContext) -> Exit:
        return Exit()

    writer = Agent("Writer", model=ScriptedModel(["a text"]))
    result = await Runner(SequentialAgent("Both", sub_agents=[writer, closer])).run("hi")
    assert result.output == "a text"


async def test_a_run_in_which_no_agent_says_anything_has_no_output() -> None:
    # F23
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        return None

    assert (await Runner(silent).run("hi")).output is None
