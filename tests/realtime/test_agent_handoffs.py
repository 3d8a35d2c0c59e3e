"""R4, R5: how the floor changes, on a provider in memory and over a websocket."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.realtime.backends import Backend
from tests.realtime.listener import listening_to

from baton import RunContext, RunHooks, tool
from baton.errors import SetupError
from baton.events import AgentResponded, AgentStarted, ControlTransferred, StepCompleted, ToolReturned
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from baton.testing import call, say

WRITTEN = RealtimeSettings(modality="text")


class Reason(BaseModel):
    """Why somebody is passed on."""

    topic: str


def agent(name: str, **options: Any) -> RealtimeAgent:
    return RealtimeAgent(name, description=f"Does {name.lower()}.", instructions=f"{name}: be kind.", **options)


async def test_the_order_on_the_wire_is_settings_then_result_then_the_request(backend: Backend) -> None:
    """R4."""
    billing = agent("Billing")
    desk = agent("Desk", handoffs=[billing])
    model = await backend.plays({"Desk": [call("transfer_to_billing")], "Billing": ["Your invoice is paid."]})
    runner = RealtimeRunner(desk, model=model, settings=WRITTEN)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("My invoice?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Your invoice is paid.")
        assert heard.session.active_agent == "Billing"
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.settings()[0] == "Billing: be kind."
    assert heard.transfers == [("Desk", "Billing")]
    assert backend.complaints == []


async def test_tools_of_the_same_response_run_before_the_transfer(backend: Backend) -> None:
    """R5."""
    seen: list[str] = []

    @tool
    async def look_up(ctx: RunContext) -> str:
        """Look it up."""
        seen.append(ctx.agent)
        return "found"

    billing = agent("Billing")
    desk = agent("Desk", handoffs=[billing], tools=[look_up])
    calls = [call("transfer_to_billing"), call("look_up")]
    model = await backend.plays({"Desk": [calls], "Billing": ["Hello."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    assert seen == ["Desk"]
    kinds = [type(event) for event in heard.events if isinstance(event, ToolReturned | ControlTransferred)]
    assert kinds == [ToolReturned, ToolReturned, ControlTransferred]
    assert heard.all(ToolReturned)[0].tool_name == "look_up"
    assert backend.commands() == ["user", "respond", "configure", "result", "result", "respond"]
    assert backend.complaints == []


@pytest.mark.parametrize(("policy", "winner"), [("first", "Billing"), ("last", "Repairs")])
async def test_of_two_handoffs_one_is_followed_and_the_other_answered(
    backend: Backend, policy: Any, winner: str
) -> None:
    """R5."""
    desk = agent("Desk", handoffs=[agent("Billing"), agent("Repairs")])
    calls = [call("transfer_to_billing"), call("transfer_to_repairs")]
    model = await backend.plays({"Desk": [calls], "Billing": ["Here I am."], "Repairs": ["Here I am."]})
    runner = RealtimeRunner(desk, model=model, settings=WRITTEN, multiple_transfers=policy)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Here I am.")
    assert heard.transfers == [("Desk", winner)]
    lost = [result for result in heard.all(ToolReturned) if result.is_transfer_refused]
    assert [result.requested_agent for result in lost] == [{"Billing": "Repairs", "Repairs": "Billing"}[winner]]
    assert len([each for each in backend.told() if each[0] == "result"]) == 2
    assert backend.complaints == []


async def test_several_handoffs_can_be_an_error(backend: Backend) -> None:
    """R5."""
    desk = agent("Desk", handoffs=[agent("Billing"), agent("Repairs")])
    model = await backend.plays([[call("transfer_to_billing"), call("transfer_to_repairs")]])
    runner = RealtimeRunner(desk, model=model, settings=WRITTEN, multiple_transfers="error")
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(ToolReturned, 2)
        await heard.session.wait_until_idle()
    assert heard.failure is not None
    assert "several transfers" in str(heard.failure)
    assert heard.transfers == []


async def test_a_function_that_returns_an_agent_transfers_control(backend: Backend) -> None:
    """R5."""
    billing = agent("Billing")

    def to_billing() -> RealtimeAgent:
        """Ask billing."""
        return billing

    desk = agent("Desk", tools=[to_billing])
    model = await backend.plays({"Desk": [call("to_billing")], "Billing": ["Hello."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    assert heard.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.complaints == []


async def test_whether_a_handoff_is_enabled_is_asked_again_when_it_is_called(backend: Backend) -> None:
    """R4: it was offered when the conversation was opened, and has been switched off since."""
    is_open = True

    def opening_hours(ctx: Any, agent: Any) -> bool:
        return is_open

    desk = agent("Desk", handoffs=[realtime_handoff(agent("Billing"), is_enabled=opening_hours)])
    model = await backend.plays([call("transfer_to_billing"), "They are closed."])
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        assert backend.settings()[1] == ["transfer_to_billing"]
        is_open = False
        await heard.session.send_text("Billing, please")
        await heard.until(AgentResponded, where=lambda said: said.text == "They are closed.")
        assert heard.session.active_agent == "Desk"
    assert "[Billing] is not available now" in heard.results[0][1]
    assert heard.transfers == []
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.settings()[1] == []
    assert backend.complaints == []


async def test_the_callback_is_called_once_and_the_payload_goes_along(backend: Backend) -> None:
    """R4."""
    called: list[Reason] = []

    async def note(ctx: RunContext, reason: Reason) -> None:
        called.append(reason)

    desk = agent("Desk", handoffs=[realtime_handoff(agent("Billing"), input_type=Reason, on_handoff=note)])
    model = await backend.plays({"Desk": [call("transfer_to_billing", topic="invoice")], "Billing": ["Hello."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    assert called == [Reason(topic="invoice")]
    assert heard.all(ControlTransferred)[0].payload == {"topic": "invoice"}
    assert [step.name for step in heard.all(StepCompleted)] == ["on_handoff"]
    assert backend.complaints == []


async def test_input_that_does_not_fit_is_told_to_the_model_which_may_try_again(backend: Backend) -> None:
    """R4."""
    called: list[Reason] = []
    desk = agent(
        "Desk",
        handoffs=[
            realtime_handoff(agent("Billing"), input_type=Reason, on_handoff=lambda ctx, reason: called.append(reason))
        ],
    )
    tries = [call("transfer_to_billing", subject="?"), call("transfer_to_billing", topic="invoice")]
    model = await backend.plays({"Desk": tries, "Billing": ["Hello."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    assert called == [Reason(topic="invoice")]
    assert heard.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "result", "respond", "configure", "result", "respond"]
    assert backend.complaints == []


@pytest.mark.parametrize("what", ["instructions", "voice"])
async def test_if_the_target_cannot_be_set_up_the_old_agent_stays_and_the_model_is_told(
    backend: Backend, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R4: its instructions fail, or the model would refuse its settings."""

    def broken(ctx: Any) -> str:
        raise LookupError("no such customer")

    billing = agent("Billing", voice="nobody's") if what == "voice" else RealtimeAgent("Billing", instructions=broken)
    model = await backend.plays([call("transfer_to_billing"), "I shall see to it myself.", "Still me."])
    if what == "voice" and hasattr(model, "_voices"):
        model._voices = ("alloy",)  # pyright: ignore[reportAttributeAccessIssue]
    desk = agent("Desk", handoffs=[billing])
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "I shall see to it myself.")
        assert heard.session.active_agent == "Desk"
        await heard.session.send_text("Are you there?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Still me.")
    (result,) = heard.all(ToolReturned)
    assert result.is_error
    assert str(result.content).startswith("Not transferred to [Billing]: it could not be set up: ")
    assert ("nobody's" if what == "voice" else "no such customer") in str(result.content)
    assert heard.transfers == []
    assert "configure" not in backend.commands()
    assert backend.complaints == []
    assert "could not set up `Billing` for a transfer" in caplog.text


async def test_a_voice_changes_while_none_was_heard_and_not_afterwards(backend: Backend) -> None:
    """R4."""
    repairs = agent("Repairs", voice="echo")
    billing = agent("Billing", voice="coral", handoffs=[repairs])
    desk = agent("Desk", voice="alloy", handoffs=[billing])
    model = await backend.plays(
        {
            "Desk": [call("transfer_to_billing")],
            "Billing": [say("I pass you on.", call("transfer_to_repairs"))],
            "Repairs": ["Here I am."],
        }
    )
    async with listening_to(RealtimeRunner(desk, model=model).connect()) as heard:
        assert backend.settings()[2] == "alloy"
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "I pass you on.")
        assert backend.settings()[2] == "coral"
        await heard.until(AgentResponded, where=lambda said: said.text == "Here I am.")
        assert backend.settings()[0] == "Repairs: be kind."
        assert backend.settings()[2] == "coral"
    assert backend.complaints == []


class Order(RunHooks):
    """Writes down who is told what."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_agent_start(self, ctx: Any, agent: Any) -> None:
        self.told.append(f"start {agent.name}")

    async def on_agent_end(self, ctx: Any, agent: Any, output: Any) -> None:
        self.told.append(f"end {agent.name}")

    async def on_handoff(self, ctx: Any, from_agent: Any, to_agent: Any) -> None:
        self.told.append(f"{from_agent.name} to {to_agent.name}")

    async def on_tool_start(self, ctx: Any, agent: Any, call: Any) -> None:
        self.told.append(f"call {call.name}")

    async def on_tool_end(self, ctx: Any, agent: Any, call: Any, result: Any) -> None:
        self.told.append(f"result {call.name}")


async def test_hooks_are_told_before_the_model_is(backend: Backend) -> None:
    """R4: `ControlTransferred`, hooks, and only then the session update."""
    order = Order()

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    desk = agent("Desk", handoffs=[agent("Billing")], tools=[look_up])
    model = await backend.plays({"Desk": [[call("look_up"), call("transfer_to_billing")]], "Billing": ["Hello."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN, hooks=order).connect()) as heard:
        await heard.session.send_text("Hi")
        await backend.until("configure")
        assert order.told == [
            "start Desk",
            "call look_up",
            "result look_up",
            "Desk to Billing",
            "end Desk",
            "start Billing",
        ]
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
        assert [event.agent for event in heard.all(AgentStarted)] == ["Desk", "Billing"]
    assert backend.complaints == []


async def test_the_application_can_transfer_to_any_agent_of_the_team(backend: Backend) -> None:
    """R2."""
    desk = agent("Desk", handoffs=[agent("Billing")])
    model = await backend.plays({"Desk": ["Hi!"], "Billing": ["Billing here."]})
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hello")
        await heard.said()
        await heard.session.handoff_to("Billing")
        await heard.said(2)
        assert heard.session.active_agent == "Billing"
    assert heard.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "configure", "respond"]
    assert backend.complaints == []


async def test_an_agent_of_the_team_can_be_changed_while_it_speaks(backend: Backend) -> None:
    """R2."""
    desk = agent("Desk")
    model = await backend.plays(["Hi!", "Good evening."])
    async with listening_to(RealtimeRunner(desk, model=model, settings=WRITTEN).connect()) as heard:
        await heard.session.send_text("Hello")
        await heard.said()
        await heard.session.update_agent(desk.clone(instructions="Night desk: whisper."))
        await heard.said(2)
        assert heard.words == ["Hi!", "Good evening."]
        with pytest.raises(SetupError, match="needs a RealtimeAgent"):
            await heard.session.update_agent("Desk")  # pyright: ignore[reportArgumentType]
    assert backend.settings()[0] == "Night desk: whisper."
    assert backend.complaints == []
