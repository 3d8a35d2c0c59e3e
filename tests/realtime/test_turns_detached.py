"""Calls that continue after their agent has transferred control."""

import asyncio
from typing import Any

import pytest
from tests.realtime.recorder import record_session

from batonkit import RunContext, RunHooks, tool
from batonkit.log import AgentResponded, ControlTransferred, ToolReturned
from batonkit.log.fold import history_from_log
from batonkit.messages import ToolMessage
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from batonkit.testing import ScriptedRealtimeModel, call

TEXT_ONLY = RealtimeSettings(modality="text")


async def test_a_tool_of_an_earlier_response_does_not_delay_a_transfer() -> None:
    # The result belongs to the calling agent, and the model gets it whichever agent is active.
    is_running, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look something up, slowly."""
        is_running.set()
        await may_end.wait()
        return "found"

    model = ScriptedRealtimeModel(
        {
            "Triage": [call("look_up"), call("transfer_to_billing")],
            "Billing": ["I am here.", "It is found."],
        }
    )
    billing = RealtimeAgent("Billing", description="Bills.")
    runner = RealtimeRunner(
        RealtimeAgent("Triage", tools=[look_up], handoffs=[billing]), model=model, settings=TEXT_ONLY
    )
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Look it up")
        await is_running.wait()
        await recorder.session.send_text("To billing, please")
        await recorder.wait_for(ControlTransferred)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I am here.")
        may_end.set()
        (returned,) = [await recorder.wait_for(ToolReturned, where=lambda result: result.tool_name == "look_up")]
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is found.")
    assert (returned.agent, returned.content) == ("Triage", "found")
    messages = recorder.session.result.messages
    assert [m.content for m in messages if isinstance(m, ToolMessage)] == ["found", '{"assistant":"Billing"}']
    events = recorder.session.result.events
    assert [entry.message for entry in history_from_log(events)] == list(messages)
    assert (await runner.text_runner.runs.replay(events)).messages == messages
    assert model.complaints == []


async def test_a_function_that_returns_an_agent_too_late_does_not_transfer() -> None:
    # Only the active agent can transfer control.
    is_running, may_end = asyncio.Event(), asyncio.Event()
    sales = RealtimeAgent("Sales", description="Sells.")

    @tool
    async def to_sales() -> RealtimeAgent:
        """Go to sales, slowly."""
        is_running.set()
        await may_end.wait()
        return sales

    model = ScriptedRealtimeModel(
        {"Triage": [call("to_sales"), call("transfer_to_billing")], "Billing": ["Yes?", "No."]}
    )
    billing = RealtimeAgent("Billing", description="Bills.")
    runner = RealtimeRunner(
        RealtimeAgent("Triage", tools=[to_sales], handoffs=[billing]), model=model, settings=TEXT_ONLY
    )
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("To sales")
        await is_running.wait()
        await recorder.session.send_text("No, to billing")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
        may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "No.")
        assert recorder.session.active_agent == "Billing"
    refused = next(
        event for event in recorder.session.result.events if isinstance(event, ToolReturned) and event.is_error
    )
    assert refused.content == "Not transferred to [Sales]: [Triage] is no longer the active agent."
    messages = recorder.session.result.messages
    assert (await runner.text_runner.runs.replay(recorder.session.result.events)).messages == messages
    assert model.complaints == []


async def test_closing_stops_detached_turns_and_keeps_their_interrupts() -> None:
    paid: list[str] = []

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        paid.append("once")
        return "paid"

    billing = RealtimeAgent("Billing", description="Bills.")
    triage = RealtimeAgent("Triage", tools=[pay], handoffs=[billing])
    model = ScriptedRealtimeModel({"Triage": [call("pay"), call("transfer_to_billing")], "Billing": ["Yes?", "Paid."]})
    runner = RealtimeRunner(triage, model=model, settings=TEXT_ONLY)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Pay")
        await recorder.session.wait_until_idle()
        (question,) = recorder.session.interrupts
        await recorder.session.send_text("To billing")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes?")
    assert (recorder.session.result.status, paid) == ("suspended", [])
    async with record_session(runner.resume(recorder.session.run_id, {question.id: True})) as resumed:
        await resumed.wait_for(AgentResponded, where=lambda response: response.text == "Paid.")
    assert (resumed.session.result.status, resumed.session.result.agent, paid) == ("completed", "Billing", ["once"])


async def test_detached_turns_stop_when_the_run_fails_between_two_agents() -> None:
    # No agent is active then.
    is_running = asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look something up, without end."""
        is_running.set()
        await asyncio.Event().wait()
        return "never"

    class FailingHooks(RunHooks):
        """Raises an error during a transfer."""

        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            raise ValueError("not now")

    model = ScriptedRealtimeModel({"Triage": [call("look_up"), call("transfer_to_billing")]})
    triage = RealtimeAgent("Triage", tools=[look_up], handoffs=[RealtimeAgent("Billing", description="Bills.")])

    async def run_session() -> None:
        runner = RealtimeRunner(triage, model=model, settings=TEXT_ONLY, hooks=FailingHooks())
        async with record_session(runner.connect()) as recorder:
            await recorder.session.send_text("Look it up")
            await is_running.wait()
            await recorder.session.send_text("To billing, please")
            await recorder.wait_until_ended()

    before = asyncio.all_tasks()
    with pytest.raises(ValueError, match="not now"):
        await run_session()
    assert asyncio.all_tasks() == before
