"""Whole sessions over a websocket: handoffs, tools, interruptions and lost connections."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.realtime.openai.connections import make_model
from tests.realtime.recorder import unplayed
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import CutConnection, Fault, ServedSession, speech

from batonkit import tool
from batonkit.log import AgentResponded, ControlTransferred, ToolReturned, UserMessageAdded
from batonkit.realtime import (
    PlaybackInterrupted,
    RealtimeAgent,
    RealtimeRunner,
    RealtimeSession,
    RealtimeSettings,
    SessionReconnected,
    TurnDetection,
)
from batonkit.testing import ScriptedStream, call


@tool
def balance(account: str) -> str:
    """Return the balance of an account."""
    return f"{account}: 12 €"


def make_team() -> RealtimeAgent:
    billing = RealtimeAgent("Billing", description="Bills.", instructions="You do bills.", tools=[balance])
    return RealtimeAgent("Triage", description="Routes.", instructions="You route.", handoffs=[billing])


def agent_name(session: ServedSession) -> str:
    return "Billing" if "You do bills." in session.settings["instructions"] else "Triage"


STEPS: dict[str, list[Any]] = {
    "Triage": [call("transfer_to_billing")],
    "Billing": [call("balance", account="A1"), "You have 12 euros."],
}


def make_runner(server: OpenAIRealtimeServer, **options: Any) -> RealtimeRunner[Any]:
    arguments: dict[str, Any] = {"reconnect_delay": 0.01, **options}
    return RealtimeRunner(make_team(), model=make_model(server), **arguments)


async def read_until_response(session: RealtimeSession, text: str, seen: list[Any]) -> None:
    """Read events until an agent has responded with this text."""
    async for event in session:
        seen.append(event)
        if isinstance(event, AgentResponded) and event.message.content == text:
            return
    raise AssertionError(f"no agent said {text!r}")


def format_events(events: Iterable[Any]) -> list[str]:
    """Format events as short lines."""
    lines: list[str] = []
    for event in events:
        match event:
            case UserMessageAdded(message=message):
                lines.append(f"heard {message.content}")
            case AgentResponded(message=message):
                calls = ", ".join(each.name for each in message.tool_calls)
                lines.append(f"{event.agent} calls {calls}" if calls else f"{event.agent} says {message.content}")
            case ToolReturned(message=message):
                lines.append(f"returned {message.content}")
            case ControlTransferred(target=target):
                lines.append(f"to {target}")
            case _:
                pass
    return lines


EXPECTED = [
    "heard What do I owe?",
    "Triage calls transfer_to_billing",
    "to Billing",
    "Billing calls balance",
    "returned A1: 12 €",
    "Billing says You have 12 euros.",
]


async def test_a_handoff_and_a_tool_in_a_text_session() -> None:
    async with OpenAIRealtimeServer(STEPS, by=agent_name) as server:
        seen: list[Any] = []
        async with make_runner(server).connect() as session:
            await session.send_text("What do I owe?")
            await read_until_response(session, "You have 12 euros.", seen)
            assert session.active_agent == "Billing"
        server.assert_done()
    assert [line for line in format_events(seen) if not line.startswith("returned {")] == EXPECTED
    assert server.complaints == []
    (served,) = server.sessions
    assert [update["instructions"].partition(" You can")[0][:14] for update in served.updates][-1] == "You do bills."[
        :14
    ]


async def test_a_handoff_and_a_tool_in_an_audio_session() -> None:
    detection = RealtimeSettings(turn_detection=TurnDetection(silence_ms=300))
    async with OpenAIRealtimeServer(STEPS, by=agent_name, hears=["What do I owe?"]) as server:
        seen: list[Any] = []
        async with make_runner(server, settings=detection).connect() as session:
            audio = speech("What do I owe?", pause_ms=400)
            for start in range(0, len(audio), 1920):
                await session.send_audio(audio[start : start + 1920])
            await read_until_response(session, "You have 12 euros.", seen)
        server.assert_done()
    lines = format_events(seen)
    assert set(EXPECTED) <= set(lines)
    assert bytes(server.sessions[0].audio) == audio
    assert server.complaints == []


async def test_the_user_interrupts_a_response() -> None:
    steps = [ScriptedStream("One two three four five ", asyncio.Event()), "Yes?"]
    async with OpenAIRealtimeServer(steps, hears=["Stop"]) as server:
        seen: list[Any] = []
        async with make_runner(server).connect(playback=unplayed()) as session:
            await session.send_text("Count.")
            served = await server.session()
            await served.until_sent("response.output_audio.delta", 5)
            await session.send_audio(speech("Stop", pause_ms=600))
            await read_until_response(session, "Yes?", seen)
            await served.until_sent("conversation.item.truncated")
    assert any(isinstance(event, PlaybackInterrupted) for event in seen)
    assert server.complaints == []


FAULTS: list[Fault] = [
    CutConnection("response.created", before=True),
    CutConnection("response.created"),
    CutConnection("response.function_call_arguments.delta"),
    CutConnection("response.function_call_arguments.done"),
    CutConnection("response.done", before=True),
    CutConnection("response.done"),
    CutConnection("session.updated"),
    CutConnection("response.created", nth=2),
    CutConnection("response.function_call_arguments.done", nth=2),
    CutConnection("response.done", nth=2),
    CutConnection("conversation.item.added", nth=3, code=1011),
    CutConnection("response.output_audio.delta", nth=2),
]


@pytest.mark.parametrize("cut", FAULTS, ids=str)
async def test_a_session_survives_a_lost_connection_at_any_event(cut: Fault) -> None:
    def triage(request: Any) -> Any:
        return call("transfer_to_billing")

    def billing(request: Any) -> Any:
        results = [message for message in request.messages if getattr(message, "content", "") == "A1: 12 €"]
        return "You have 12 euros." if results else call("balance", account="A1")

    async with OpenAIRealtimeServer({"Triage": [triage], "Billing": [billing]}, by=agent_name, cycle=True) as server:
        seen: list[Any] = []
        async with make_runner(server).connect() as session:
            server.plan(cut)
            await session.send_text("What do I owe?")
            await read_until_response(session, "You have 12 euros.", seen)
        assert server.faults_left == []
    assert any(isinstance(event, SessionReconnected) for event in seen)
    assert server.complaints == []
    lines = format_events(seen)
    assert lines.count("to Billing") == lines.count("returned A1: 12 €") == 1
