"""R8, R9: connections that are lost, wherever that happens, and what is sent again."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, InMemory, OverTheWire, nothing_left, says
from tests.realtime.listener import Listener, listening_to, make_runner
from tests.servers import HttpFault
from tests.servers.realtime import CutConnection

from baton import tool
from baton.errors import ModelConnectionError, RunError, SessionLostError
from baton.events import AgentResponded, InterruptRaised, ToolReturned, UserMessageAdded
from baton.messages import AssistantMessage, UserMessage
from baton.realtime import (
    RealtimeAgent,
    RealtimeSession,
    RealtimeSettings,
    SessionReconnected,
    SessionReconnecting,
    TranscriptDelta,
    realtime_handoff,
)
from baton.realtime.protocol import (
    AddItem,
    AudioCommitted,
    ConfigureSession,
    CreateResponse,
    UserSpeechEnded,
    UserSpeechStarted,
)
from baton.stores import MemoryStore
from baton.testing import ScriptedStream, call


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_cut_before_anything_was_said_has_the_response_asked_for_again(
    wire: OverTheWire, is_before: bool
) -> None:
    """R9."""
    model = await wire.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk", instructions="Be kind."), model).connect()) as heard:
        wire.server.plan(CutConnection("response.created", before=is_before))
        await heard.session.send_text("Hi")
        await heard.said()
    assert wire.commands(1) == ["user", "respond"]
    assert wire.told(1) == [("user", "Hi"), ("assistant", "Hello.")]
    assert wire.settings(1)[0] == "Be kind."
    assert [type(event) for event in heard.events if isinstance(event, SessionReconnecting | SessionReconnected)] == [
        SessionReconnecting,
        SessionReconnected,
    ]
    assert wire.complaints == []


@pytest.mark.parametrize("at", ["response.output_text.delta", "response.content_part.done"])
async def test_a_cut_in_the_middle_of_an_answer_keeps_what_was_said(wire: OverTheWire, at: str) -> None:
    """R9."""
    model = await wire.plays(["Your invoice is paid.", "As I said: it is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        wire.server.plan(CutConnection(at))
        await heard.session.send_text("My invoice?")
        await heard.until(AgentResponded, where=lambda said: said.text.startswith("As I said"))
    assert [event.attempt for event in heard.all(SessionReconnecting)] == [1]
    assert heard.words[0] == {"response.output_text.delta": "Your "}.get(at, "Your invoice is paid.")
    assert wire.told(1) == [
        ("user", "My invoice?"),
        ("assistant", heard.words[0]),
        ("assistant", "As I said: it is paid."),
    ]
    assert wire.complaints == []


async def test_a_cut_in_the_middle_of_speech_keeps_what_was_said(backend: Backend) -> None:
    """R9."""
    never = asyncio.Event()
    model = await backend.plays([ScriptedStream("One two three", never), "Again."])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Count")
        await heard.until(UserMessageAdded)
        await backend.until("respond")
        await _words(heard, "three")
        await backend.cut()
        await heard.until(AgentResponded, where=lambda said: said.text == "Again.")
    assert heard.words == ["One two three", "Again."]
    assert heard.all(AgentResponded)[0].stop_reason == "connection_lost"
    assert backend.told(1)[:2] == [("user", "Count"), ("assistant", "One two three")]
    assert backend.commands(1) == ["user", "assistant", "respond"]
    assert backend.complaints == []


async def _words(heard: Listener, word: str) -> None:
    await heard.until(TranscriptDelta, where=lambda delta: word in delta.text)


async def test_a_call_whose_response_was_cut_off_is_not_carried_out(wire: OverTheWire) -> None:
    """R9: its arguments are complete, but whether the model meant it is not known."""
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    model = await wire.plays([call("pay"), "I did nothing yet."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        wire.server.plan(CutConnection("response.function_call_arguments.done"))
        await heard.session.send_text("Pay!")
        await heard.until(AgentResponded, where=lambda said: said.text == "I did nothing yet.")
    assert calls == 0
    assert wire.told(1) == [("user", "Pay!"), ("assistant", "I did nothing yet.")]
    assert wire.complaints == []


async def test_a_cut_while_a_tool_runs_does_not_run_it_again(backend: Backend) -> None:
    """R9."""
    calls = 0
    runs, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        runs.set()
        await may_end.wait()
        return "paid"

    model = await backend.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        await runs.wait()
        await backend.cut()
        await heard.until(SessionReconnected)
        may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert calls == 1
    assert [role for role, _ in backend.told(1)] == ["user", "call", "result", "assistant"]
    assert backend.commands(1)[-2:] == ["result", "respond"]
    assert backend.complaints == []


async def test_a_result_whose_sending_was_cut_is_sent_on_the_next_connection(scripted: InMemory) -> None:
    """R8, R9."""
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        scripted.model.cut_at(AddItem)
        return "paid"

    model = await scripted.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert calls == 1
    assert [role for role, _ in scripted.told(1)] == ["user", "call", "result", "assistant"]
    assert scripted.complaints == []


@pytest.mark.parametrize("kind", [AddItem, ConfigureSession, CreateResponse])
async def test_a_cut_during_a_transfer_keeps_the_new_agent_active(scripted: InMemory, kind: Any) -> None:
    """R9: whatever is being sent when the connection goes."""
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")

    def cut_now(ctx: Any) -> None:
        scripted.model.cut_at(kind)

    desk = RealtimeAgent(
        "Desk", instructions="Desk: be kind.", handoffs=[realtime_handoff(billing, on_handoff=cut_now)]
    )
    model = await scripted.plays({"Desk": [call("transfer_to_billing")], "Billing": ["Billing here."]})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
    assert heard.transfers == [("Desk", "Billing")]
    assert scripted.settings(1)[0] == "Billing: be kind."
    assert [role for role, _ in scripted.told(1)] == ["user", "call", "result", "assistant"]
    assert scripted.commands(1).count("respond") == 1
    assert scripted.complaints == []


async def test_a_cut_while_a_question_is_open_leaves_it_open(backend: Backend) -> None:
    """R9."""

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = await backend.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        asked = await heard.until(InterruptRaised)
        await backend.cut()
        await heard.until(SessionReconnected)
        await heard.session.answer(asked.key, True)
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert heard.results == [("pay", "paid")]
    assert backend.complaints == []


async def test_audio_and_words_that_are_sent_meanwhile_arrive_once(backend: Backend) -> None:
    """R9."""
    model = await backend.plays(["Both of you!"])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings(turn_detection=None))
    async with listening_to(runner.connect()) as heard:
        await backend.cut()
        await heard.until(SessionReconnecting)
        frames = [bytes([number]) * 960 for number in range(20)]
        sending = asyncio.gather(*[heard.session.send_audio(frame) for frame in frames])
        await heard.session.send_text("Hello", respond=False)
        await sending
        await heard.session.send_text("Hello again")
        await heard.said()
    if isinstance(backend, OverTheWire):
        assert bytes(backend.at(1).audio) == b"".join(frames)
    else:
        assert isinstance(backend, InMemory)
        assert backend.at(1).heard == b"".join(frames)
    assert backend.told(1) == [("user", "Hello"), ("user", "Hello again"), ("assistant", "Both of you!")]
    assert backend.complaints == []


async def test_an_unanswered_user_message_is_answered_after_a_cut(scripted: InMemory) -> None:
    """R9: also if its transcript is lost with the connection."""
    model = await scripted.plays(["Pardon?"])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        scripted.at().emit(UserSpeechStarted("a"), UserSpeechEnded("a"), AudioCommitted("a"))
        await scripted.at().wait_until_read(AudioCommitted)
        await scripted.cut()
        await heard.said()
        await heard.session.wait_until_idle()
    assert scripted.told(1) == [("user", "(something that could not be understood)"), ("assistant", "Pardon?")]
    assert [event.text for event in heard.all(UserMessageAdded)] == ["(something that could not be understood)"]


async def test_after_so_many_attempts_the_conversation_ends_with_an_error_and_can_be_resumed(backend: Backend) -> None:
    """R9."""
    store = MemoryStore()
    model = await backend.plays(["Hello.", "Where were we?"])
    desk = RealtimeAgent("Desk")
    async with listening_to(make_runner(desk, model, store=store, max_reconnects=2).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.said()
        await _refuse_to_connect(backend, 2)
        await backend.cut()
        run_id = heard.session.run_id
        await heard.until(SessionReconnecting, 2)
        with pytest.raises((RunError, SessionLostError)):
            await _send_until_over(heard.session)
    assert isinstance(heard.failure, SessionLostError)
    assert heard.failure.attempts == 2
    assert heard.session.result.status == "failed"
    again = make_runner(desk, model, store=store)
    async with listening_to(again.resume(run_id)) as heard:
        await heard.session.send_text("Are you there?")
        await heard.said()
    assert backend.told() == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Are you there?"),
        ("assistant", "Where were we?"),
    ]
    assert backend.complaints == []


async def _refuse_to_connect(backend: Backend, times: int) -> None:
    gone = [ModelConnectionError("no route to host", retryable=True) for _ in range(times)]
    if isinstance(backend, OverTheWire):
        backend.server.refuse(*[HttpFault(503) for _ in range(times)])
    else:
        assert isinstance(backend, InMemory)
        backend.model.fail_to_connect(*gone)


async def _send_until_over(session: RealtimeSession) -> None:
    async with asyncio.timeout(60):
        while True:
            await session.send_audio(b"\0\0" * 480)
            await asyncio.sleep(0)


async def test_a_provider_that_always_hangs_up_is_not_called_for_ever(wire: OverTheWire) -> None:
    """R9: every connection comes about, and none is good for anything."""
    model = await wire.plays(["Hello."] * 20)
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, max_reconnects=3).connect()) as heard:
        wire.server.plan(*[CutConnection("response.created", before=True, nth=number) for number in range(1, 20)])
        await heard.session.send_text("Hi")
        await heard.until_over()
    assert isinstance(heard.failure, SessionLostError)
    assert wire.connections == 4


async def test_a_normal_closure_by_the_provider_ends_the_session(backend: Backend) -> None:
    """R9."""
    model = await backend.plays([ScriptedStream("One two three", asyncio.Event())])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await heard.session.send_text("Count")
        await _words(heard, "three")
        await backend.hang_up()
        await heard.until_over()
        with pytest.raises(RunError, match="has ended"):
            await heard.session.send_text("Hello?")
    assert heard.failure is None
    assert heard.words == ["One two three"]
    assert heard.session.result.status == "completed"
    assert backend.connections == 1


async def test_if_it_cannot_be_opened_that_is_raised_and_nothing_is_left(scripted: InMemory) -> None:
    """R2, R11: also if it is cut while the history is being told."""
    model = await scripted.plays(["Hello."])
    model.fail_to_connect(ModelConnectionError("no route to host"))
    with pytest.raises(ModelConnectionError, match="no route to host"):
        async with make_runner(RealtimeAgent("Desk"), model).connect():
            raise AssertionError("it was opened")
    model.cut_at(AddItem)
    history = [UserMessage("Hi"), AssistantMessage("Hello.")]
    with pytest.raises(ModelConnectionError, match="cut while sending"):
        async with make_runner(RealtimeAgent("Desk"), model).connect(history):
            raise AssertionError("it was opened")
    assert [connection.is_open for connection in model.connections] == [False]
    assert await nothing_left() == set()


async def test_a_second_cut_while_everything_is_told_again(scripted: InMemory) -> None:
    """R9."""
    model = await scripted.plays(["Hello.", "Again."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.said()
        scripted.model.cut_at(AddItem)
        await scripted.cut()
        await heard.until(SessionReconnected)
        await heard.session.send_text("Still there?")
        await heard.said(2)
    assert [event.attempt for event in heard.all(SessionReconnecting)] == [1, 2]
    assert scripted.told() == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Still there?"),
        ("assistant", "Again."),
    ]
    assert heard.all(ToolReturned) == []
    assert scripted.complaints == []


async def test_speech_is_heard_on_the_next_connection(backend: Backend) -> None:
    """R9."""
    model = await backend.plays(["Good morning."])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        await backend.cut()
        await heard.until(SessionReconnected)
        await says(backend, heard.session, "Hello")
        await heard.said()
        await heard.until(UserMessageAdded)
        await heard.session.wait_until_idle()
    assert [event.text for event in heard.all(UserMessageAdded)] == ["Hello"]
    assert backend.complaints == []
