"""R1: agents of live conversations are definitions like any other, but for what a live conversation cannot do."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from tests.realtime.backends import Backend, InMemory
from tests.realtime.listener import listening_to, make_runner

from baton import Agent, RunContext, Runner, handoff, tool
from baton.errors import SetupError
from baton.events import AgentResponded, ControlTransferred, InterruptRaised
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from baton.testing import ScriptedModel, ScriptedRealtimeModel, call, transfer_to


def test_they_are_frozen_and_can_be_cloned() -> None:
    desk = RealtimeAgent("Desk", instructions="Be kind.", voice="alloy")
    with pytest.raises(FrozenInstanceError):
        desk.voice = "echo"  # pyright: ignore[reportAttributeAccessIssue]
    other = desk.clone(voice="echo")
    assert (desk.voice, other.voice, other.instructions) == ("alloy", "echo", "Be kind.")


def test_a_realtime_handoff_is_a_handoff() -> None:
    assert realtime_handoff is handoff


@pytest.mark.parametrize(
    "options",
    [{"input_filter": lambda data: data}, {"history": "none"}, {"return_to": "to_caller"}],  # pyright: ignore
    ids=["input_filter", "history", "return_to"],
)
def test_handoffs_with_history_or_return_options_are_rejected(options: Any) -> None:
    billing = RealtimeAgent("Billing")
    (what,) = options
    edge = handoff(billing, **options)
    with pytest.raises(
        SetupError, match=f"`Desk` has a handoff to `Billing` with {what}=…, which realtime sessions do not support"
    ):
        RealtimeAgent("Desk", handoffs=[edge])


def test_invalid_names_tools_and_guardrails_are_rejected() -> None:
    with pytest.raises(SetupError, match="name"):
        RealtimeAgent("")
    with pytest.raises(SetupError, match="give a list"):
        RealtimeAgent("Desk", tools="look_up")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="give a list of guardrails"):
        RealtimeAgent("Desk", output_guardrails=_takes_one)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="must take two arguments"):
        RealtimeAgent("Desk", output_guardrails=[_takes_one])  # pyright: ignore[reportArgumentType]


def _takes_one(text: str) -> bool:
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


async def test_in_writing_they_say_where_they_belong() -> None:
    with pytest.raises(SetupError, match=r"use RealtimeRunner\(…\)\.connect\(\)"):
        await Runner(RealtimeAgent("Desk")).run("Hi")


async def test_a_text_agent_as_a_tool_transfers_within_its_own_flow(backend: Backend) -> None:
    """R1: what it transfers stays inside; who has the live floor keeps it."""
    writer = Agent("Writer", description="Writes.", model=ScriptedModel(["Dear customer"]))
    editor = Agent("Editor", description="Edits.", model=ScriptedModel([call("transfer_to_writer")]), handoffs=[writer])
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", tools=[editor.as_tool()])
    model = await backend.plays([call("editor", request="a letter"), "Here is your letter."])
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("A letter, please")
        await heard.until(AgentResponded, where=lambda said: said.text == "Here is your letter.")
        assert heard.session.active_agent == "Desk"
    assert [(each.agent, each.target) for each in heard.all(ControlTransferred)] == [("Editor", "Writer")]
    assert heard.results[-1] == ("editor", "Dear customer")
    assert backend.commands() == ["user", "respond", "result", "respond"]
    assert backend.settings()[0] == "Desk: be kind."
    assert backend.complaints == []


async def test_a_tool_cannot_run_a_realtime_agent(scripted: InMemory) -> None:
    """R1: a text agent behind a tool cannot hand over to an agent that speaks."""
    speaker = RealtimeAgent("Speaker", description="Speaks.")
    writer = Agent("Writer", handoffs=[speaker], model=ScriptedModel([call("transfer_to_speaker")]))
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", tools=[writer.as_tool()])
    model = await scripted.plays([call("writer", request="a letter")])
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("A letter, please")
        await heard.until_over()
    assert isinstance(heard.failure, SetupError)
    assert "`Speaker` is a RealtimeAgent" in str(heard.failure)
    assert scripted.settings()[0] == "Desk: be kind."


async def test_an_interrupt_of_a_text_agent_as_a_tool_is_answered_in_the_session(backend: Backend) -> None:
    """R1."""

    @tool(needs_approval=True)
    async def send() -> str:
        """Send it."""
        return "sent"

    writer = Agent("Writer", tools=[send], model=ScriptedModel([call("send"), "I sent it."]))
    desk = RealtimeAgent("Desk", tools=[writer.as_tool()])
    model = await backend.plays([call("writer", request="a letter"), "It is on its way."])
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("A letter, please")
        asked = await heard.until(InterruptRaised)
        assert heard.session.interrupts[0].id == asked.key
        await heard.session.answer(asked.key, True)
        await heard.until(AgentResponded, where=lambda said: said.text == "It is on its way.")
    assert heard.results[-1] == ("writer", "I sent it.")
    assert backend.complaints == []


async def test_an_approval_comes_before_the_transfer(backend: Backend) -> None:
    """R1, R4: and a no leaves it where it is."""
    called: list[str] = []

    async def note(ctx: RunContext) -> None:
        called.append(ctx.agent)

    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    edge = realtime_handoff(billing, needs_approval=True, on_handoff=note)
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[edge])
    steps = [call("transfer_to_billing"), "They are busy.", call("transfer_to_billing")]
    model = await backend.plays({"Desk": steps, "Billing": ["Billing here."]})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Billing!")
        asked = await heard.until(InterruptRaised)
        await heard.session.answer(asked.key, False)
        await heard.until(AgentResponded, where=lambda said: said.text == "They are busy.")
        assert (heard.session.active_agent, called) == ("Desk", [])
        await heard.session.send_text("Now?")
        asked = await heard.until(InterruptRaised, 2)
        await heard.session.answer(asked.key, True)
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
    assert called == ["Desk"]
    assert heard.transfers == [("Desk", "Billing")]
    assert backend.complaints == []


async def test_the_target_of_a_transfer_may_decline(backend: Backend) -> None:
    """R1: `accepts`."""
    billing = RealtimeAgent(
        "Billing", description="Settles invoices.", accepts=lambda ctx, payload: "we are closed on Mondays"
    )
    model = await backend.plays([call("transfer_to_billing"), "They are closed."])
    async with listening_to(make_runner(RealtimeAgent("Desk", handoffs=[billing]), model).connect()) as heard:
        await heard.session.send_text("Billing!")
        await heard.until(AgentResponded, where=lambda said: said.text == "They are closed.")
        assert heard.session.active_agent == "Desk"
    assert "we are closed on Mondays" in heard.results[0][1]
    assert backend.complaints == []


async def test_sub_agents_are_reached_and_find_back(backend: Backend) -> None:
    """R1: the door of trees, too."""
    weather = RealtimeAgent("Weather", description="Knows the weather.", instructions="Weather: be brief.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", sub_agents=[weather])
    model = await backend.plays({"Desk": [transfer_to("Weather"), "Anything else?"], "Weather": [transfer_to("Desk")]})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Will it rain?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Anything else?")
    assert heard.transfers == [("Desk", "Weather"), ("Weather", "Desk")]
    assert backend.commands().count("configure") == 2
    assert backend.complaints == []


async def test_instructions_may_be_a_function_and_follow_the_values(backend: Backend) -> None:
    """R1: what the model is told is renewed when it may have changed."""

    def instructions(ctx: Any) -> str:
        return f"Desk: call the user {ctx.values.get('name', 'friend')}."

    @tool
    async def introduce(ctx: RunContext, name: str) -> str:
        """Take note of the user's name."""
        ctx.values.set("name", name)
        return "noted"

    desk = RealtimeAgent("Desk", instructions=instructions, tools=[introduce])
    model = await backend.plays({"Desk": [call("introduce", name="Ada"), "Hello Ada."]})
    async with listening_to(make_runner(desk, model, settings=RealtimeSettings(modality="text")).connect()) as heard:
        assert backend.settings()[0] == "Desk: call the user friend."
        await heard.session.send_text("I am Ada")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello Ada.")
    assert backend.settings()[0] == "Desk: call the user Ada."
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert heard.session.result.values["name"] == "Ada"
    assert backend.complaints == []
