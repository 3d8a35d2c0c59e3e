"""Calls that go on though who made them has given up the floor."""

import asyncio
from typing import Any

import pytest
from tests.realtime.listener import listening_to

from baton import RunContext, RunHooks, tool
from baton.events import AgentResponded, ControlTransferred, ToolReturned
from baton.flow.log_history import history_from_log
from baton.messages import ToolMessage
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from baton.testing import ScriptedRealtimeModel, call

WRITTEN = RealtimeSettings(modality="text")


async def test_a_tool_of_an_earlier_response_does_not_delay_a_transfer() -> None:
    """R5, R6: the tool belongs to who called it, and the model is told of it whoever has the floor then."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look something up, slowly."""
        begun.set()
        await may_end.wait()
        return "found"

    model = ScriptedRealtimeModel(
        {
            "Triage": [call("look_up"), call("transfer_to_billing")],
            "Billing": ["I am here.", "It is found."],
        }
    )
    billing = RealtimeAgent("Billing", description="Bills.")
    runner = RealtimeRunner(RealtimeAgent("Triage", tools=[look_up], handoffs=[billing]), model=model, settings=WRITTEN)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Look it up")
        await begun.wait()
        await heard.session.send_text("To billing, please")
        await heard.until(ControlTransferred)
        await heard.until(AgentResponded, where=lambda said: said.text == "I am here.")
        may_end.set()
        (returned,) = [await heard.until(ToolReturned, where=lambda result: result.tool_name == "look_up")]
        await heard.until(AgentResponded, where=lambda said: said.text == "It is found.")
    assert (returned.agent, returned.content) == ("Triage", "found")
    said = heard.session.result.messages
    assert [m.content for m in said if isinstance(m, ToolMessage)] == ["found", '{"assistant":"Billing"}']
    events = heard.session.result.events
    assert [entry.message for entry in history_from_log(events)] == list(said)
    assert (await runner.text_runner.replay(events)).messages == said
    assert model.complaints == []


async def test_a_function_that_returns_an_agent_too_late_does_not_transfer() -> None:
    """R5: only who has the floor can give it to somebody."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    sales = RealtimeAgent("Sales", description="Sells.")

    @tool
    async def to_sales() -> RealtimeAgent:
        """Go to sales, slowly."""
        begun.set()
        await may_end.wait()
        return sales

    model = ScriptedRealtimeModel(
        {"Triage": [call("to_sales"), call("transfer_to_billing")], "Billing": ["Yes?", "No."]}
    )
    billing = RealtimeAgent("Billing", description="Bills.")
    runner = RealtimeRunner(
        RealtimeAgent("Triage", tools=[to_sales], handoffs=[billing]), model=model, settings=WRITTEN
    )
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("To sales")
        await begun.wait()
        await heard.session.send_text("No, to billing")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
        may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "No.")
        assert heard.session.active_agent == "Billing"
    late = next(event for event in heard.session.result.events if isinstance(event, ToolReturned) and event.is_error)
    assert late.content == "Not transferred to [Sales]: [Triage] is no longer the active agent."
    said = heard.session.result.messages
    assert (await runner.text_runner.replay(heard.session.result.events)).messages == said
    assert model.complaints == []


async def test_closing_stops_detached_turns_and_keeps_their_interrupts() -> None:
    """R2, R11."""
    paid: list[str] = []

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        paid.append("once")
        return "paid"

    billing = RealtimeAgent("Billing", description="Bills.")
    triage = RealtimeAgent("Triage", tools=[pay], handoffs=[billing])
    model = ScriptedRealtimeModel({"Triage": [call("pay"), call("transfer_to_billing")], "Billing": ["Yes?", "Paid."]})
    runner = RealtimeRunner(triage, model=model, settings=WRITTEN)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Pay")
        await heard.session.wait_until_idle()
        (question,) = heard.session.interrupts
        await heard.session.send_text("To billing")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes?")
    assert (heard.session.result.status, paid) == ("suspended", [])
    async with listening_to(runner.resume(heard.session.run_id, {question.id: True})) as later:
        await later.until(AgentResponded, where=lambda said: said.text == "Paid.")
    assert (later.session.result.status, later.session.result.agent, paid) == ("completed", "Billing", ["once"])


async def test_detached_turns_stop_when_the_run_fails_between_two_agents() -> None:
    """R11: nobody has the floor then who could stop it."""
    begun = asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look something up, without end."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    class Fails(RunHooks):
        """Raises when the floor changes."""

        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            raise ValueError("not now")

    model = ScriptedRealtimeModel({"Triage": [call("look_up"), call("transfer_to_billing")]})
    triage = RealtimeAgent("Triage", tools=[look_up], handoffs=[RealtimeAgent("Billing", description="Bills.")])

    async def hold() -> None:
        runner = RealtimeRunner(triage, model=model, settings=WRITTEN, hooks=Fails())
        async with listening_to(runner.connect()) as heard:
            await heard.session.send_text("Look it up")
            await begun.wait()
            await heard.session.send_text("To billing, please")
            await heard.until_over()

    before = asyncio.all_tasks()
    with pytest.raises(ValueError, match="not now"):
        await hold()
    assert asyncio.all_tasks() == before
