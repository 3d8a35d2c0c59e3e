"""`wait_until_idle` of sessions."""

import asyncio

import pytest
from tests.loop_clock import LoopClock
from tests.realtime.recorder import record_session
from tests.waiting import until

from batonkit import Limits, tool
from batonkit.errors import LimitError, ModelError, RunError
from batonkit.log import AgentResponded, UserMessageAdded
from batonkit.messages import AssistantMessage
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, SessionReconnected, SessionReconnecting
from batonkit.realtime.protocol import (
    AudioCommitted,
    CreateResponse,
    ResponseEnded,
    ResponseStarted,
    TranscriptionCompleted,
    UserSpeechEnded,
    UserSpeechStarted,
)
from batonkit.testing import ScriptedRealtimeModel, ScriptedStream, call, say, speech

TEXT_ONLY = RealtimeSettings(modality="text")


async def test_it_waits_for_transfers_tools_and_the_last_response() -> None:
    is_running = asyncio.Event()
    may_end = asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look it up."""
        is_running.set()
        await may_end.wait()
        return "found"

    billing = RealtimeAgent("Billing", description="Settles invoices.", tools=[look_up])
    desk = RealtimeAgent("Desk", handoffs=[billing])
    model = ScriptedRealtimeModel(
        {"Desk": [call("transfer_to_billing")], "Billing": [say("One moment.", call("look_up")), "Here it is."]}
    )
    async with RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect() as session:
        await session.send_text("Hello")
        idle_task = asyncio.create_task(session.wait_until_idle())
        await is_running.wait()
        await model.connections[0].wait_until_read(ResponseEnded, count=2)
        assert not idle_task.done()
        may_end.set()
        await idle_task
        assert session.active_agent == "Billing"
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)][-1] == "Here it is."
    assert model.complaints == []


async def test_it_does_not_wait_for_answers_to_interrupts() -> None:
    @tool(needs_approval=True)
    async def refund() -> str:
        """Pay back."""
        return "paid"

    model = ScriptedRealtimeModel([call("refund"), "Done."])
    runner = RealtimeRunner(RealtimeAgent("Desk", tools=[refund]), model=model, settings=TEXT_ONLY)
    async with runner.connect() as session:
        await session.send_text("My money back!")
        await session.wait_until_idle()
        (question,) = session.interrupts
        await session.answer(question.id, True)
        await session.wait_until_idle()
        assert session.interrupts == ()
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)][-1] == "Done."


async def test_it_waits_for_the_transcription() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    settings = RealtimeSettings(modality="text", turn_detection=None)
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=settings).connect() as session:
        await session.send_audio(speech("Hello"), commit=True)
        await session.wait_until_idle()
        texts = [event.text for event in session.log.events if isinstance(event, UserMessageAdded | AgentResponded)]
        assert texts == ["Hello", "Good day."]


async def test_a_manual_commit_is_answered_with_turn_detection() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect() as session:
        await session.send_audio(speech("Hello"), commit=True)
        await session.wait_until_idle()
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)] == ["Good day."]
    assert (model.complaints, len(model.requests)) == ([], 1)


async def test_it_returns_after_a_failed_or_empty_response() -> None:
    model = ScriptedRealtimeModel([ModelError("overloaded"), ""])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect() as session:
        for _ in range(2):
            await session.send_text("Hello")
            await session.wait_until_idle()
    assert len(model.requests) == 2


async def test_it_returns_if_the_provider_refuses_to_respond() -> None:
    model = ScriptedRealtimeModel([])
    for _ in range(3):
        model.refuse(CreateResponse, code="server_error", message="not now")
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect() as session:
        await session.send_text("Hello")
        await session.wait_until_idle()
    assert len(model.connections[0].sent_of(CreateResponse)) == 3


async def test_it_returns_when_the_session_has_ended() -> None:
    model = ScriptedRealtimeModel([ScriptedStream("Well", asyncio.Event())])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect() as session:
        await session.send_text("Hello")
        idle_task = asyncio.create_task(session.wait_until_idle())
        await model.connections[0].wait_until_read(ResponseStarted)
        assert not idle_task.done()
        await session.close()
        await idle_task


async def test_it_waits_for_a_response_that_the_provider_is_expected_to_start() -> None:
    model = ScriptedRealtimeModel(["Good day."])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect() as session:
        connection = model.connections[0]
        connection.emit(UserSpeechStarted("a"), UserSpeechEnded("a"), AudioCommitted("a"))
        await connection.wait_until_read(AudioCommitted)
        idle_task = asyncio.create_task(session.wait_until_idle())
        connection.emit(TranscriptionCompleted("a", "Hello"))
        await connection.wait_until_read(TranscriptionCompleted)
        # This returns when the session has processed the transcription.
        await session.send_text("Are you there?", respond=False)
        assert not idle_task.done()
        connection.emit(ResponseStarted("r"), ResponseEnded("r", "completed", AssistantMessage("Good day.")))
        await idle_task
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)] == ["Good day."]


async def test_sending_into_a_failed_session_raises_its_error() -> None:
    model = ScriptedRealtimeModel(["One.", "Two."])
    runner = RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY, limits=Limits(model_calls=1))

    async def run_session() -> None:
        async with runner.connect() as session:
            for _ in range(3):
                await session.send_text("Hello")
                await session.wait_until_idle()

    with pytest.raises(RunError, match=r"has failed: the run reached its limit of 1 model_calls") as raised:
        await run_session()
    assert isinstance(raised.value.__cause__, LimitError)


async def test_it_returns_after_reconnecting_if_nothing_is_pending() -> None:
    clock = LoopClock()
    model = ScriptedRealtimeModel(["Hello."])
    runner = RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY, reconnect_delay=600)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.session.wait_until_idle()
        model.connections[0].cut()
        await recorder.wait_for(SessionReconnecting)
        assert recorder.of_type(SessionReconnected) == []
        idle_task = asyncio.create_task(recorder.session.wait_until_idle())

        def pass_time() -> bool:
            clock.advance(600)
            return idle_task.done()

        await until(pass_time)
        assert len(recorder.of_type(SessionReconnected)) == 1
