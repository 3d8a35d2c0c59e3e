"""Definitions of realtime agents, and the options that they do not support."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest
from tests.realtime.backends import Backend, ScriptedBackend
from tests.realtime.recorder import make_runner, record_session

from batonkit import Agent, RunContext, Runner, handoff, tool
from batonkit.context import Default
from batonkit.errors import SetupError
from batonkit.log import AgentResponded, ControlTransferred, InterruptRaised
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, call, transfer_to


def test_realtime_agents_are_frozen_and_can_be_cloned() -> None:
    desk = RealtimeAgent("Desk", instructions="Be kind.", voice="alloy")
    with pytest.raises(FrozenInstanceError, match=r"^RealtimeAgent cannot be changed; .* clone\(voice=…\)$"):
        desk.voice = "echo"  # pyright: ignore[reportAttributeAccessIssue]
    clone = desk.clone(voice="echo")
    assert (desk.voice, clone.voice, clone.instructions) == ("alloy", "echo", "Be kind.")


def test_a_realtime_handoff_is_a_handoff() -> None:
    assert realtime_handoff is handoff


@pytest.mark.parametrize(
    "options",
    [{"input_filter": lambda data: data}, {"history": "none"}, {"return_to": "to_caller"}],  # pyright: ignore
    ids=["input_filter", "history", "return_to"],
)
def test_handoffs_with_history_or_return_options_are_rejected(options: Any) -> None:
    billing = RealtimeAgent("Billing")
    (option,) = options
    edge = handoff(billing, **options)
    with pytest.raises(
        SetupError, match=f"`Desk` has a handoff to `Billing` with {option}=…, which realtime sessions do not support"
    ):
        RealtimeAgent("Desk", handoffs=[edge])


def test_invalid_names_tools_and_guardrails_are_rejected() -> None:
    with pytest.raises(SetupError, match="name"):
        RealtimeAgent("")
    with pytest.raises(SetupError, match="give a list"):
        RealtimeAgent("Desk", tools="look_up")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="give a list of guardrails"):
        RealtimeAgent("Desk", output_guardrails=_take_one_argument)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="must take two arguments"):
        RealtimeAgent("Desk", output_guardrails=[_take_one_argument])  # pyright: ignore[reportArgumentType]


def _take_one_argument(text: str) -> bool:
    return True


def test_only_realtime_agents_can_be_in_the_team() -> None:
    model = ScriptedRealtimeModel([])
    with pytest.raises(SetupError, match=r"`Writer` is an Agent and cannot be active in a realtime session"):
        RealtimeRunner(RealtimeAgent("Desk", handoffs=[Agent("Writer")]), model=model)
    with pytest.raises(SetupError, match="`Writer` is an Agent"):
        RealtimeRunner(Agent("Writer"), model=model)
    with pytest.raises(SetupError):
        RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedModel([]))  # pyright: ignore[reportArgumentType]


def test_a_realtime_agent_cannot_be_a_tool() -> None:
    with pytest.raises(SetupError, match="`Billing` is a RealtimeAgent and cannot be a tool"):
        RealtimeAgent("Billing").as_tool()


async def test_a_text_runner_refuses_realtime_agents() -> None:
    with pytest.raises(SetupError, match=r"use RealtimeRunner\(…\)\.connect\(\)"):
        await Runner(RealtimeAgent("Desk")).run("Hi")


async def test_a_text_agent_as_a_tool_transfers_within_its_own_flow(backend: Backend) -> None:
    # Its transfers do not change the active agent of the session.
    writer = Agent("Writer", description="Writes.", model=ScriptedModel(["Dear customer"]))
    editor = Agent("Editor", description="Edits.", model=ScriptedModel([call("transfer_to_writer")]), handoffs=[writer])
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", tools=[editor.as_tool()])
    model = await backend.start([call("editor", request="a letter"), "Here is your letter."])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("A letter, please")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Here is your letter.")
        assert recorder.session.active_agent == "Desk"
    assert [(each.agent, each.target) for each in recorder.of_type(ControlTransferred)] == [("Editor", "Writer")]
    assert recorder.tool_results[-1] == ("editor", "Dear customer")
    assert backend.commands() == ["user", "respond", "result", "respond"]
    assert backend.settings()[0] == "Desk: be kind."
    assert backend.complaints == []


async def test_a_tool_cannot_run_a_realtime_agent(scripted_backend: ScriptedBackend) -> None:
    # A text agent in a tool cannot hand off to a realtime agent.
    speaker = RealtimeAgent("Speaker", description="Speaks.")
    writer = Agent("Writer", handoffs=[speaker], model=ScriptedModel([call("transfer_to_speaker")]))
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", tools=[writer.as_tool()])
    model = await scripted_backend.start([call("writer", request="a letter")])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("A letter, please")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, SetupError)
    assert "`Speaker` is a RealtimeAgent" in str(recorder.failure)
    assert scripted_backend.settings()[0] == "Desk: be kind."


async def test_an_interrupt_of_a_text_agent_as_a_tool_is_answered_in_the_session(backend: Backend) -> None:

    @tool(needs_approval=True)
    async def send() -> str:
        """Send it."""
        return "sent"

    writer = Agent("Writer", tools=[send], model=ScriptedModel([call("send"), "I sent it."]))
    desk = RealtimeAgent("Desk", tools=[writer.as_tool()])
    model = await backend.start([call("writer", request="a letter"), "It is on its way."])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("A letter, please")
        interrupt = await recorder.wait_for(InterruptRaised)
        assert recorder.session.interrupts[0].id == interrupt.key
        await recorder.session.answer(interrupt.key, True)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is on its way.")
    assert recorder.tool_results[-1] == ("writer", "I sent it.")
    assert backend.complaints == []


async def test_an_interrupt_expires_while_the_session_is_open(scripted_backend: ScriptedBackend) -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("Really?", deadline=timedelta(seconds=0.01), on_expiry=Default("no one knows")))

    desk = RealtimeAgent("Desk", tools=[ask])
    model = await scripted_backend.start([call("ask"), "Then not."])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Ask!")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Then not.")
    assert recorder.tool_results[-1] == ("ask", "no one knows")


async def test_a_transfer_waits_for_its_approval(backend: Backend) -> None:
    # A rejection leaves the active agent unchanged.
    called: list[str] = []

    async def record(ctx: RunContext) -> None:
        called.append(ctx.agent)

    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    edge = realtime_handoff(billing, needs_approval=True, on_handoff=record)
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[edge])
    steps = [call("transfer_to_billing"), "They are busy.", call("transfer_to_billing")]
    model = await backend.start({"Desk": steps, "Billing": ["Billing here."]})
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Billing!")
        interrupt = await recorder.wait_for(InterruptRaised)
        await recorder.session.answer(interrupt.key, False)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "They are busy.")
        assert (recorder.session.active_agent, called) == ("Desk", [])
        await recorder.session.send_text("Now?")
        interrupt = await recorder.wait_for(InterruptRaised, 2)
        await recorder.session.answer(interrupt.key, True)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
    assert called == ["Desk"]
    assert recorder.transfers == [("Desk", "Billing")]
    assert backend.complaints == []


async def test_the_target_of_a_transfer_can_decline(backend: Backend) -> None:
    # `accepts`.
    billing = RealtimeAgent(
        "Billing", description="Settles invoices.", accepts=lambda ctx, payload: "we are closed on Mondays"
    )
    model = await backend.start([call("transfer_to_billing"), "They are closed."])
    async with record_session(make_runner(RealtimeAgent("Desk", handoffs=[billing]), model).connect()) as recorder:
        await recorder.session.send_text("Billing!")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "They are closed.")
        assert recorder.session.active_agent == "Desk"
    assert "we are closed on Mondays" in recorder.tool_results[0][1]
    assert backend.complaints == []


async def test_control_is_transferred_to_a_sub_agent_and_back(backend: Backend) -> None:
    weather = RealtimeAgent("Weather", description="Knows the weather.", instructions="Weather: be brief.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", sub_agents=[weather])
    model = await backend.start({"Desk": [transfer_to("Weather"), "Anything else?"], "Weather": [transfer_to("Desk")]})
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Will it rain?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Anything else?")
    assert recorder.transfers == [("Desk", "Weather"), ("Weather", "Desk")]
    assert backend.commands().count("configure") == 2
    assert backend.complaints == []


async def test_instructions_can_be_a_function_of_the_values(backend: Backend) -> None:
    # The settings are sent again if they may have changed.

    def instructions(ctx: Any) -> str:
        return f"Desk: call the user {ctx.values.get('name', 'friend')}."

    @tool
    async def introduce(ctx: RunContext, name: str) -> str:
        """Store the user's name."""
        ctx.values.set("name", name)
        return "stored"

    desk = RealtimeAgent("Desk", instructions=instructions, tools=[introduce])
    model = await backend.start({"Desk": [call("introduce", name="Ada"), "Hello Ada."]})
    async with record_session(
        make_runner(desk, model, settings=RealtimeSettings(modality="text")).connect()
    ) as recorder:
        assert backend.settings()[0] == "Desk: call the user friend."
        await recorder.session.send_text("I am Ada")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello Ada.")
    assert backend.settings()[0] == "Desk: call the user Ada."
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert recorder.session.result.values["name"] == "Ada"
    assert backend.complaints == []
