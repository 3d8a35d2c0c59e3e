"""Handoffs in realtime sessions."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.realtime.backends import Backend
from tests.realtime.recorder import record_session

from batonkit import RunContext, RunHooks, tool
from batonkit.errors import SetupError
from batonkit.log import AgentResponded, AgentStarted, ControlTransferred, StepCompleted, ToolReturned
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from batonkit.runs import HandoffRules
from batonkit.testing import call, say

TEXT_ONLY = RealtimeSettings(modality="text")


class Reason(BaseModel):
    """The reason for a transfer."""

    topic: str


def agent(name: str, **options: Any) -> RealtimeAgent:
    return RealtimeAgent(name, description=f"Does {name.lower()}.", instructions=f"{name}: be kind.", **options)


async def test_a_transfer_sends_settings_then_the_result_then_a_request(backend: Backend) -> None:
    billing = agent("Billing")
    desk = agent("Desk", handoffs=[billing])
    model = await backend.start({"Desk": [call("transfer_to_billing")], "Billing": ["Your invoice is paid."]})
    runner = RealtimeRunner(desk, model=model, settings=TEXT_ONLY)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("My invoice?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Your invoice is paid.")
        assert recorder.session.active_agent == "Billing"
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.settings()[0] == "Billing: be kind."
    assert recorder.transfers == [("Desk", "Billing")]
    assert backend.complaints == []


async def test_tools_of_the_same_response_run_before_the_transfer(backend: Backend) -> None:
    seen: list[str] = []

    @tool
    async def look_up(ctx: RunContext) -> str:
        """Look it up."""
        seen.append(ctx.agent)
        return "found"

    billing = agent("Billing")
    desk = agent("Desk", handoffs=[billing], tools=[look_up])
    calls = [call("transfer_to_billing"), call("look_up")]
    model = await backend.start({"Desk": [calls], "Billing": ["Hello."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    assert seen == ["Desk"]
    kinds = [type(event) for event in recorder.events if isinstance(event, ToolReturned | ControlTransferred)]
    assert kinds == [ToolReturned, ToolReturned, ControlTransferred]
    assert recorder.of_type(ToolReturned)[0].tool_name == "look_up"
    assert backend.commands() == ["user", "respond", "configure", "result", "result", "respond"]
    assert backend.complaints == []


@pytest.mark.parametrize(("policy", "winner"), [("first", "Billing"), ("last", "Repairs")])
async def test_of_two_handoff_calls_one_is_followed(backend: Backend, policy: Any, winner: str) -> None:
    desk = agent("Desk", handoffs=[agent("Billing"), agent("Repairs")])
    calls = [call("transfer_to_billing"), call("transfer_to_repairs")]
    model = await backend.start({"Desk": [calls], "Billing": ["Here I am."], "Repairs": ["Here I am."]})
    runner = RealtimeRunner(
        desk, model=model, settings=TEXT_ONLY, handoff_rules=HandoffRules(multiple_transfers=policy)
    )
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Here I am.")
    assert recorder.transfers == [("Desk", winner)]
    refused = [result for result in recorder.of_type(ToolReturned) if result.is_transfer_refused]
    assert [result.requested_agent for result in refused] == [{"Billing": "Repairs", "Repairs": "Billing"}[winner]]
    assert len([each for each in backend.items() if each[0] == "result"]) == 2
    assert backend.complaints == []


async def test_the_policy_error_refuses_several_handoffs(backend: Backend) -> None:
    desk = agent("Desk", handoffs=[agent("Billing"), agent("Repairs")])
    model = await backend.start([[call("transfer_to_billing"), call("transfer_to_repairs")]])
    runner = RealtimeRunner(
        desk, model=model, settings=TEXT_ONLY, handoff_rules=HandoffRules(multiple_transfers="error")
    )
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(ToolReturned, 2)
        await recorder.session.wait_until_idle()
    assert recorder.failure is not None
    assert "several transfers" in str(recorder.failure)
    assert recorder.transfers == []


async def test_a_function_that_returns_an_agent_transfers_control(backend: Backend) -> None:
    billing = agent("Billing")

    def to_billing() -> RealtimeAgent:
        """Ask billing."""
        return billing

    desk = agent("Desk", tools=[to_billing])
    model = await backend.start({"Desk": [call("to_billing")], "Billing": ["Hello."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    assert recorder.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.complaints == []


async def test_is_enabled_is_evaluated_again_when_a_handoff_is_called(backend: Backend) -> None:
    # It was enabled when the session was opened, and has been disabled since.
    is_open = True

    def opening_hours(ctx: Any, agent: Any) -> bool:
        return is_open

    desk = agent("Desk", handoffs=[realtime_handoff(agent("Billing"), is_enabled=opening_hours)])
    model = await backend.start([call("transfer_to_billing"), "They are closed."])
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        assert backend.settings()[1] == ["transfer_to_billing"]
        is_open = False
        await recorder.session.send_text("Billing, please")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "They are closed.")
        assert recorder.session.active_agent == "Desk"
    assert "[Billing] is not available now" in recorder.tool_results[0][1]
    assert recorder.transfers == []
    assert backend.commands() == ["user", "respond", "configure", "result", "respond"]
    assert backend.settings()[1] == []
    assert backend.complaints == []


async def test_on_handoff_is_called_once_with_the_input(backend: Backend) -> None:
    called: list[Reason] = []

    async def record(ctx: RunContext, reason: Reason) -> None:
        called.append(reason)

    desk = agent("Desk", handoffs=[realtime_handoff(agent("Billing"), input_type=Reason, on_handoff=record)])
    model = await backend.start({"Desk": [call("transfer_to_billing", topic="invoice")], "Billing": ["Hello."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    assert called == [Reason(topic="invoice")]
    assert recorder.of_type(ControlTransferred)[0].payload == {"topic": "invoice"}
    assert [step.name for step in recorder.of_type(StepCompleted)] == ["on_handoff"]
    assert backend.complaints == []


async def test_the_model_can_correct_invalid_handoff_input(backend: Backend) -> None:
    called: list[Reason] = []
    desk = agent(
        "Desk",
        handoffs=[
            realtime_handoff(agent("Billing"), input_type=Reason, on_handoff=lambda ctx, reason: called.append(reason))
        ],
    )
    attempts = [call("transfer_to_billing", subject="?"), call("transfer_to_billing", topic="invoice")]
    model = await backend.start({"Desk": attempts, "Billing": ["Hello."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    assert called == [Reason(topic="invoice")]
    assert recorder.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "result", "respond", "configure", "result", "respond"]
    assert backend.complaints == []


@pytest.mark.parametrize("kind", ["instructions", "voice"])
async def test_if_the_target_cannot_be_set_up_the_active_agent_does_not_change(
    backend: Backend, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Its instructions raise an error, or the model would refuse its settings.

    def fail(ctx: Any) -> str:
        raise LookupError("no such customer")

    billing = agent("Billing", voice="unknown") if kind == "voice" else RealtimeAgent("Billing", instructions=fail)
    model = await backend.start([call("transfer_to_billing"), "I will do it myself.", "Still me."])
    if kind == "voice" and hasattr(model, "_voices"):
        model._voices = ("alloy",)  # pyright: ignore[reportAttributeAccessIssue]
    desk = agent("Desk", handoffs=[billing])
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I will do it myself.")
        assert recorder.session.active_agent == "Desk"
        await recorder.session.send_text("Are you there?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Still me.")
    (result,) = recorder.of_type(ToolReturned)
    assert result.is_error
    assert str(result.content).startswith("Not transferred to [Billing]: it could not be set up: ")
    assert ("unknown" if kind == "voice" else "no such customer") in str(result.content)
    assert recorder.transfers == []
    assert "configure" not in backend.commands()
    assert backend.complaints == []
    assert "could not set up `Billing` for a transfer" in caplog.text


async def test_the_voice_changes_only_before_the_first_audio(backend: Backend) -> None:
    repairs = agent("Repairs", voice="echo")
    billing = agent("Billing", voice="coral", handoffs=[repairs])
    desk = agent("Desk", voice="alloy", handoffs=[billing])
    model = await backend.start(
        {
            "Desk": [call("transfer_to_billing")],
            "Billing": [say("I transfer you.", call("transfer_to_repairs"))],
            "Repairs": ["Here I am."],
        }
    )
    async with record_session(RealtimeRunner(desk, model=model).connect()) as recorder:
        assert backend.settings()[2] == "alloy"
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I transfer you.")
        assert backend.settings()[2] == "coral"
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Here I am.")
        assert backend.settings()[0] == "Repairs: be kind."
        assert backend.settings()[2] == "coral"
    assert backend.complaints == []


class RecordingHooks(RunHooks):
    """Records the calls of hooks."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_agent_start(self, ctx: Any, agent: Any) -> None:
        self.calls.append(f"start {agent.name}")

    async def on_agent_end(self, ctx: Any, agent: Any, output: Any) -> None:
        self.calls.append(f"end {agent.name}")

    async def on_handoff(self, ctx: Any, from_agent: Any, to_agent: Any) -> None:
        self.calls.append(f"{from_agent.name} to {to_agent.name}")

    async def on_tool_start(self, ctx: Any, agent: Any, call: Any) -> None:
        self.calls.append(f"call {call.name}")

    async def on_tool_end(self, ctx: Any, agent: Any, call: Any, result: Any) -> None:
        self.calls.append(f"result {call.name}")


async def test_hooks_are_called_before_the_model_is_configured(backend: Backend) -> None:
    # `ControlTransferred`, hooks, and only then the session update.
    hooks = RecordingHooks()

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    desk = agent("Desk", handoffs=[agent("Billing")], tools=[look_up])
    model = await backend.start({"Desk": [[call("look_up"), call("transfer_to_billing")]], "Billing": ["Hello."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY, hooks=hooks).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await backend.wait_for_command("configure")
        assert hooks.calls == [
            "start Desk",
            "call look_up",
            "result look_up",
            "Desk to Billing",
            "end Desk",
            "start Billing",
        ]
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
        assert [event.agent for event in recorder.of_type(AgentStarted)] == ["Desk", "Billing"]
    assert backend.complaints == []


async def test_the_application_can_transfer_to_any_agent_of_the_team(backend: Backend) -> None:
    desk = agent("Desk", handoffs=[agent("Billing")])
    model = await backend.start({"Desk": ["Hi!"], "Billing": ["Billing here."]})
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hello")
        await recorder.wait_for_response()
        await recorder.session.handoff_to("Billing")
        await recorder.wait_for_response(2)
        assert recorder.session.active_agent == "Billing"
    assert recorder.transfers == [("Desk", "Billing")]
    assert backend.commands() == ["user", "respond", "configure", "respond"]
    assert backend.complaints == []


async def test_update_agent_changes_the_active_agent(backend: Backend) -> None:
    desk = agent("Desk")
    model = await backend.start(["Hi!", "Good evening."])
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("Hello")
        await recorder.wait_for_response()
        await recorder.session.update_agent(desk.clone(instructions="Night desk: whisper."))
        await recorder.wait_for_response(2)
        assert recorder.response_texts == ["Hi!", "Good evening."]
        with pytest.raises(SetupError, match="needs a RealtimeAgent"):
            await recorder.session.update_agent("Desk")  # pyright: ignore[reportArgumentType]
    assert backend.settings()[0] == "Night desk: whisper."
    assert backend.complaints == []
