"""R4, R6: which response is under way, and what becomes of one that nobody was to give."""

import asyncio
from typing import Any

from tests.realtime.backends import InMemory, OverTheWire
from tests.realtime.listener import listening_to, make_runner
from tests.servers.realtime import IgnoreCommand

from baton import RunHooks
from baton.events import AgentResponded
from baton.realtime import AudioDelta, RealtimeAgent, RealtimeSettings, TranscriptDelta
from baton.realtime.protocol import ResponseEnded, ResponseStarted
from baton.testing import ScriptedStream, call


class AtTheHandoff(RunHooks):
    """Lets something happen just before the model is told that the floor has changed."""

    def __init__(self, backend: InMemory) -> None:
        self._stage = backend

    def on_handoff(self, ctx: Any, from_agent: Any, to_agent: Any) -> None:
        self._stage.at().user_speaks("Wait a moment")


async def test_stale_responses_are_not_delivered(scripted: InMemory) -> None:
    """R4: the user speaks while the floor changes, and the provider answers as whom it was told to be before."""
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    steps = {
        "Desk": [call("transfer_to_billing"), ScriptedStream("Desk again", asyncio.Event())],
        "Billing": ["Billing here."],
    }
    model = await scripted.plays(steps)
    runner = make_runner(desk, model, settings=RealtimeSettings(), hooks=AtTheHandoff(scripted))
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
        await heard.session.wait_until_idle()
    assert heard.words == ["Billing here."]
    assert "Desk again" not in "".join(delta.text for delta in heard.all(TranscriptDelta))
    assert {delta.agent for delta in heard.all(AudioDelta)} == {"Billing"}
    started = [signal.response_id for signal in scripted.at().told(ResponseStarted)]
    assert len(started) == 3
    assert scripted.at().told(ResponseEnded)[1].status == "cancelled"
    assert scripted.commands().count("cancel") == 1
    assert scripted.complaints == []


async def test_one_that_crossed_with_ours_is_waited_for(scripted: InMemory) -> None:
    """R6: the user was faster; the request is made again when that answer has been given."""
    model = await scripted.plays(["To what was said.", "To what was written."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()) as heard:
        scripted.at().user_speaks("Hello")
        await heard.session.send_text("And this?")
        await heard.said(2)
        await heard.session.wait_until_idle()
    assert heard.words == ["To what was said.", "To what was written."]
    assert scripted.complaints == []


async def test_a_transfer_happens_although_the_provider_does_not_stop(wire: OverTheWire) -> None:
    """R4: whoever has the floor waits for a while, and no longer."""
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    may_end = asyncio.Event()
    model = await wire.plays(
        {"Desk": [ScriptedStream("One two three", may_end, " four")], "Billing": ["Billing here."]}
    )
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.until(TranscriptDelta, where=lambda delta: "three" in delta.text)
        wire.server.plan(IgnoreCommand("response.cancel"))
        await heard.session.handoff_to("Billing")
        await wire.until("configure")
        assert heard.session.active_agent == "Billing"
        may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
        await heard.session.wait_until_idle()
    assert heard.transfers == [("Desk", "Billing")]
    assert heard.failure is None
