"""Responses in progress, requested responses and stale responses."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import ScriptedBackend, WebSocketBackend
from tests.realtime.recorder import make_runner, record_session
from tests.servers.realtime import IgnoreCommand

from batonkit import RunHooks
from batonkit.log import AgentResponded
from batonkit.realtime import AudioDelta, RealtimeAgent, RealtimeSettings, TranscriptDelta
from batonkit.realtime import realtime_agent as agent
from batonkit.realtime.protocol import ResponseEnded, ResponseStarted
from batonkit.testing import ScriptedStream, call


class SpeakDuringTransfer(RunHooks):
    """Lets the user speak just before the model is configured for the new agent."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    def on_handoff(self, ctx: Any, from_agent: Any, to_agent: Any) -> None:
        self._backend.connection().user_speaks("Wait a moment")


async def test_stale_responses_are_not_delivered(scripted_backend: ScriptedBackend) -> None:
    # The user speaks during a transfer, and the provider responds with the settings of the previous agent.
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    steps = {
        "Desk": [call("transfer_to_billing"), ScriptedStream("Desk again", asyncio.Event())],
        "Billing": ["Billing here."],
    }
    model = await scripted_backend.start(steps)
    runner = make_runner(desk, model, settings=RealtimeSettings(), hooks=SpeakDuringTransfer(scripted_backend))
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
        await recorder.session.wait_until_idle()
    assert recorder.response_texts == ["Billing here."]
    assert "Desk again" not in "".join(delta.text for delta in recorder.of_type(TranscriptDelta))
    assert {delta.agent for delta in recorder.of_type(AudioDelta)} == {"Billing"}
    started = [signal.response_id for signal in scripted_backend.connection().told(ResponseStarted)]
    assert len(started) == 3
    assert scripted_backend.connection().told(ResponseEnded)[1].status == "cancelled"
    assert scripted_backend.commands().count("cancel") == 1
    assert scripted_backend.complaints == []


async def test_a_request_waits_for_a_response_that_the_provider_started(scripted_backend: ScriptedBackend) -> None:
    # The request is sent again after the response to the user's speech.
    model = await scripted_backend.start(["To the speech.", "To the text."])
    async with record_session(
        make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()
    ) as recorder:
        scripted_backend.connection().user_speaks("Hello")
        await recorder.session.send_text("And this?")
        await recorder.wait_for_response(2)
        await recorder.session.wait_until_idle()
    assert recorder.response_texts == ["To the speech.", "To the text."]
    assert scripted_backend.complaints == []


async def test_a_transfer_happens_even_if_the_provider_does_not_stop_the_response(
    websocket_backend: WebSocketBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The transfer waits for the end of the response only for a limited time.
    monkeypatch.setattr(agent, "_LEAVE_TIMEOUT", 0.01)
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    may_end = asyncio.Event()
    model = await websocket_backend.start(
        {"Desk": [ScriptedStream("One two three", may_end, " four")], "Billing": ["Billing here."]}
    )
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for(TranscriptDelta, where=lambda delta: "three" in delta.text)
        websocket_backend.server.plan(IgnoreCommand("response.cancel"))
        await recorder.session.handoff_to("Billing")
        await websocket_backend.wait_for_command("configure")
        assert recorder.session.active_agent == "Billing"
        may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
        await recorder.session.wait_until_idle()
    assert recorder.transfers == [("Desk", "Billing")]
    assert recorder.failure is None
