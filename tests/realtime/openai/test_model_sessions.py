"""Whole sessions over the wire: handoffs, tools, barge-in and lost connections, and no objection to any of it."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.realtime.openai.support import model_of
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import CutConnection, Fault, ServedSession, speech

from baton import tool
from baton.events import AgentResponded, ControlTransferred, ToolReturned, UserMessageAdded
from baton.realtime import (
    PlaybackInterrupted,
    RealtimeAgent,
    RealtimeRunner,
    RealtimeSession,
    RealtimeSettings,
    SessionReconnected,
    TurnDetection,
)
from baton.testing import ScriptedStream, call


@tool
def balance(account: str) -> str:
    """The balance of an account."""
    return f"{account}: 12 €"


def desk() -> RealtimeAgent:
    billing = RealtimeAgent("Billing", description="Bills.", instructions="You do bills.", tools=[balance])
    return RealtimeAgent("Triage", description="Routes.", instructions="You route.", handoffs=[billing])


def who(session: ServedSession) -> str:
    return "Billing" if "You do bills." in session.settings["instructions"] else "Triage"


STEPS: dict[str, list[Any]] = {
    "Triage": [call("transfer_to_billing")],
    "Billing": [call("balance", account="A1"), "You have 12 euros."],
}


def runner_of(server: OpenAIRealtimeServer, **options: Any) -> RealtimeRunner[Any]:
    given: dict[str, Any] = {"reconnect_delay": 0.01, **options}
    return RealtimeRunner(desk(), model=model_of(server), **given)


async def until_said(session: RealtimeSession, words: str, seen: list[Any]) -> None:
    """Read events until an agent has said this."""
    async with asyncio.timeout(60):
        async for event in session:
            seen.append(event)
            if isinstance(event, AgentResponded) and event.message.content == words:
                return


def facts(events: Iterable[Any]) -> list[str]:
    """What happened, in short."""
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


WHOLE = [
    "heard What do I owe?",
    "Triage calls transfer_to_billing",
    "to Billing",
    "Billing calls balance",
    "returned A1: 12 €",
    "Billing says You have 12 euros.",
]


async def test_a_handoff_and_a_tool_over_the_wire() -> None:  # R4, R6
    async with OpenAIRealtimeServer(STEPS, by=who) as server:
        seen: list[Any] = []
        async with runner_of(server).connect() as session:
            await session.send_text("What do I owe?")
            await until_said(session, "You have 12 euros.", seen)
            assert session.active_agent == "Billing"
        server.assert_done()
    assert [line for line in facts(seen) if not line.startswith("returned {")] == WHOLE
    assert server.complaints == []
    (served,) = server.sessions
    assert [update["instructions"].partition(" You can")[0][:14] for update in served.updates][-1] == "You do bills."[
        :14
    ]


async def test_the_same_by_voice() -> None:  # R2, R7
    detection = RealtimeSettings(turn_detection=TurnDetection(silence_ms=300))
    async with OpenAIRealtimeServer(STEPS, by=who, hears=["What do I owe?"]) as server:
        seen: list[Any] = []
        async with runner_of(server, settings=detection).connect() as session:
            sound = speech("What do I owe?", pause_ms=400)
            for start in range(0, len(sound), 1920):
                await session.send_audio(sound[start : start + 1920])
            await until_said(session, "You have 12 euros.", seen)
        server.assert_done()
    lines = facts(seen)
    assert set(WHOLE) <= set(lines)
    assert bytes(server.sessions[0].audio) == sound
    assert server.complaints == []


async def test_the_user_interrupts_over_the_wire() -> None:  # R7
    steps = [ScriptedStream("One two three four five ", asyncio.Event()), "Yes?"]
    async with OpenAIRealtimeServer(steps, hears=["Stop"]) as server:
        seen: list[Any] = []
        async with runner_of(server).connect() as session:
            await session.send_text("Count.")
            served = await server.session()
            await served.until_sent("response.output_audio.delta", 5)
            await session.send_audio(speech("Stop", pause_ms=600))
            await until_said(session, "Yes?", seen)
            await served.until_sent("conversation.item.truncated")
    assert any(isinstance(event, PlaybackInterrupted) for event in seen)
    assert server.complaints == []


POINTS: list[Fault] = [
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


@pytest.mark.parametrize("cut", POINTS, ids=str)
async def test_a_cut_anywhere_costs_nothing_but_time(cut: Fault) -> None:  # R8, R9
    def triage(request: Any) -> Any:
        return call("transfer_to_billing")

    def bills(request: Any) -> Any:
        results = [message for message in request.messages if getattr(message, "content", "") == "A1: 12 €"]
        return "You have 12 euros." if results else call("balance", account="A1")

    async with OpenAIRealtimeServer({"Triage": [triage], "Billing": [bills]}, by=who, cycle=True) as server:
        seen: list[Any] = []
        async with runner_of(server).connect() as session:
            server.plan(cut)
            await session.send_text("What do I owe?")
            await until_said(session, "You have 12 euros.", seen)
        assert server.faults_left == []
    assert any(isinstance(event, SessionReconnected) for event in seen)
    assert server.complaints == []
    lines = facts(seen)
    assert lines.count("to Billing") == lines.count("returned A1: 12 €") == 1
