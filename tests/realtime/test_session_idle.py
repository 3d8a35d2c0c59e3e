"""`session.settled()`: when nothing more comes by itself."""

import asyncio

import pytest
from tests.realtime.listener import listening_to

from baton import Limits, tool
from baton.errors import LimitError, ModelError, RunError
from baton.events import AgentResponded, UserMessageAdded
from baton.messages import AssistantMessage
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, SessionReconnected, SessionReconnecting
from baton.realtime.protocol import (
    AudioCommitted,
    CreateResponse,
    ResponseEnded,
    ResponseStarted,
    TranscriptionCompleted,
    UserSpeechEnded,
    UserSpeechStarted,
)
from baton.testing import ScriptedRealtimeModel, ScriptedStream, call, say, speech

WRITTEN = RealtimeSettings(modality="text")


async def test_it_waits_for_transfers_tools_and_the_last_answer() -> None:
    """R4, R6."""
    running = asyncio.Event()
    may_end = asyncio.Event()

    @tool
    async def look_up() -> str:
        """Look it up."""
        running.set()
        await may_end.wait()
        return "found"

    billing = RealtimeAgent("Billing", description="Settles invoices.", tools=[look_up])
    desk = RealtimeAgent("Desk", handoffs=[billing])
    model = ScriptedRealtimeModel(
        {"Desk": [call("transfer_to_billing")], "Billing": [say("One moment.", call("look_up")), "Here it is."]}
    )
    async with RealtimeRunner(desk, model=model, settings=WRITTEN).connect() as session:
        await session.send_text("Hello")
        settling = asyncio.create_task(session.wait_until_idle())
        await running.wait()
        await model.connections[0].wait_until_read(ResponseEnded, count=2)
        assert not settling.done()
        may_end.set()
        await settling
        assert session.active_agent == "Billing"
        assert [said.text for said in session.log.events if isinstance(said, AgentResponded)][-1] == "Here it is."
    assert model.complaints == []


async def test_it_does_not_wait_for_an_answer_that_is_yours_to_give() -> None:
    @tool(needs_approval=True)
    async def refund() -> str:
        """Pay back."""
        return "paid"

    model = ScriptedRealtimeModel([call("refund"), "Done."])
    runner = RealtimeRunner(RealtimeAgent("Desk", tools=[refund]), model=model, settings=WRITTEN)
    async with runner.connect() as session:
        await session.send_text("My money back!")
        await session.wait_until_idle()
        (question,) = session.interrupts
        await session.answer(question.id, True)
        await session.wait_until_idle()
        assert session.interrupts == ()
        assert [said.text for said in session.log.events if isinstance(said, AgentResponded)][-1] == "Done."


async def test_it_waits_for_the_transcription() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    waits = RealtimeSettings(modality="text", turn_detection=None)
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=waits).connect() as session:
        await session.send_audio(speech("Hello"), commit=True)
        await session.wait_until_idle()
        texts = [event.text for event in session.log.events if isinstance(event, UserMessageAdded | AgentResponded)]
        assert texts == ["Hello", "Good day."]


async def test_a_manual_commit_is_answered_with_turn_detection() -> None:
    model = ScriptedRealtimeModel(["Good day."], hears=["Hello"])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect() as session:
        await session.send_audio(speech("Hello"), commit=True)
        async with asyncio.timeout(60):
            await session.wait_until_idle()
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)] == ["Good day."]
    assert (model.complaints, len(model.requests)) == ([], 1)


async def test_an_answer_that_fails_or_says_nothing_settles_it_too() -> None:
    model = ScriptedRealtimeModel([ModelError("overloaded"), ""])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect() as session:
        for _ in range(2):
            await session.send_text("Hello")
            async with asyncio.timeout(60):
                await session.wait_until_idle()
    assert len(model.requests) == 2


async def test_a_provider_that_will_not_answer_settles_it_too() -> None:
    model = ScriptedRealtimeModel([])
    for _ in range(3):
        model.refuse(CreateResponse, code="server_error", message="not now")
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect() as session:
        await session.send_text("Hello")
        async with asyncio.timeout(60):
            await session.wait_until_idle()
    assert len(model.connections[0].sent_of(CreateResponse)) == 3


async def test_it_returns_when_the_conversation_is_over() -> None:
    model = ScriptedRealtimeModel([ScriptedStream("Well", asyncio.Event())])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect() as session:
        await session.send_text("Hello")
        settling = asyncio.create_task(session.wait_until_idle())
        await model.connections[0].wait_until_read(ResponseStarted)
        assert not settling.done()
        await session.close()
        await settling


async def test_an_answer_that_the_provider_is_about_to_give_is_waited_for() -> None:
    model = ScriptedRealtimeModel(["Good day."])
    async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect() as session:
        connection = model.connections[0]
        connection.emit(UserSpeechStarted("said"), UserSpeechEnded("said"), AudioCommitted("said"))
        await connection.wait_until_read(AudioCommitted)
        settling = asyncio.create_task(session.wait_until_idle())
        connection.emit(TranscriptionCompleted("said", "Hello"))
        await connection.wait_until_read(TranscriptionCompleted)
        # Whatever is to be done about it is done before the floor is quiet again.
        await session.send_text("Are you there?", respond=False)
        assert not settling.done()
        connection.emit(ResponseStarted("r"), ResponseEnded("r", "completed", AssistantMessage("Good day.")))
        await settling
        assert [event.text for event in session.log.events if isinstance(event, AgentResponded)] == ["Good day."]


async def test_sending_into_a_failed_session_raises_its_error() -> None:
    model = ScriptedRealtimeModel(["One.", "Two."])
    runner = RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN, limits=Limits(model_calls=1))

    async def hold() -> None:
        async with runner.connect() as session:
            for _ in range(3):
                await session.send_text("Hello")
                await session.wait_until_idle()

    with pytest.raises(RunError, match=r"has failed: the run reached its limit of 1 model_calls") as raised:
        await hold()
    assert isinstance(raised.value.__cause__, LimitError)


async def test_it_ends_when_there_is_a_connection_again_and_nothing_is_owed() -> None:
    """R9."""
    model = ScriptedRealtimeModel(["Hello."])
    runner = RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN, reconnect_delay=0.05)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.session.wait_until_idle()
        model.connections[0].cut()
        await heard.until(SessionReconnecting)
        assert heard.all(SessionReconnected) == []
        await asyncio.wait_for(heard.session.wait_until_idle(), 60)
        assert len(heard.all(SessionReconnected)) == 1
