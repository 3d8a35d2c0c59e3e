"""Lost connections, and what is sent again on the next one."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend, speak, unfinished_tasks
from tests.realtime.recorder import SessionRecorder, make_runner, record_session
from tests.servers import HttpFault
from tests.servers.realtime import CutConnection

from batonkit import tool
from batonkit.errors import ModelConnectionError, RunError, SessionLostError
from batonkit.log import AgentResponded, InterruptRaised, ToolReturned, UserMessageAdded
from batonkit.messages import AssistantMessage, UserMessage
from batonkit.realtime import (
    RealtimeAgent,
    RealtimeSession,
    RealtimeSettings,
    SessionReconnected,
    SessionReconnecting,
    TranscriptDelta,
    realtime_handoff,
)
from batonkit.realtime.protocol import (
    AddItem,
    AudioCommitted,
    ConfigureSession,
    CreateResponse,
    UserSpeechEnded,
    UserSpeechStarted,
)
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedStream, call


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_response_is_requested_again_if_the_connection_was_lost_before_it(
    websocket_backend: WebSocketBackend, is_before: bool
) -> None:
    model = await websocket_backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk", instructions="Be kind."), model).connect()) as recorder:
        websocket_backend.server.plan(CutConnection("response.created", before=is_before))
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
    assert websocket_backend.commands(1) == ["user", "respond"]
    assert websocket_backend.items(1) == [("user", "Hi"), ("assistant", "Hello.")]
    assert websocket_backend.settings(1)[0] == "Be kind."
    assert [
        type(event) for event in recorder.events if isinstance(event, SessionReconnecting | SessionReconnected)
    ] == [
        SessionReconnecting,
        SessionReconnected,
    ]
    assert websocket_backend.complaints == []


@pytest.mark.parametrize("at", ["response.output_text.delta", "response.content_part.done"])
async def test_the_text_of_a_response_is_kept_if_the_connection_is_lost(
    websocket_backend: WebSocketBackend, at: str
) -> None:
    model = await websocket_backend.start(["Your invoice is paid.", "As I said: it is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        websocket_backend.server.plan(CutConnection(at))
        await recorder.session.send_text("My invoice?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text.startswith("As I said"))
    assert [event.attempt for event in recorder.of_type(SessionReconnecting)] == [1]
    assert recorder.response_texts[0] == {"response.output_text.delta": "Your "}.get(at, "Your invoice is paid.")
    assert websocket_backend.items(1) == [
        ("user", "My invoice?"),
        ("assistant", recorder.response_texts[0]),
        ("assistant", "As I said: it is paid."),
    ]
    assert websocket_backend.complaints == []


async def test_the_transcript_of_speech_is_kept_if_the_connection_is_lost(backend: Backend) -> None:
    never_set = asyncio.Event()
    model = await backend.start([ScriptedStream("One two three", never_set), "Again."])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for(UserMessageAdded)
        await backend.wait_for_command("respond")
        await _wait_for_word(recorder, "three")
        await backend.cut()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Again.")
    assert recorder.response_texts == ["One two three", "Again."]
    assert recorder.of_type(AgentResponded)[0].stop_reason == "connection_lost"
    assert backend.items(1)[:2] == [("user", "Count"), ("assistant", "One two three")]
    assert backend.commands(1) == ["user", "assistant", "respond"]
    assert backend.complaints == []


async def _wait_for_word(recorder: SessionRecorder, word: str) -> None:
    await recorder.wait_for(TranscriptDelta, where=lambda delta: word in delta.text)


async def test_a_call_of_an_incomplete_response_is_not_executed(websocket_backend: WebSocketBackend) -> None:
    # The arguments are complete, but the response is not.
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    model = await websocket_backend.start([call("pay"), "I did nothing yet."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        websocket_backend.server.plan(CutConnection("response.function_call_arguments.done"))
        await recorder.session.send_text("Pay!")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I did nothing yet.")
    assert calls == 0
    assert websocket_backend.items(1) == [("user", "Pay!"), ("assistant", "I did nothing yet.")]
    assert websocket_backend.complaints == []


async def test_a_running_tool_is_not_run_again_after_a_lost_connection(backend: Backend) -> None:
    calls = 0
    is_running, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        is_running.set()
        await may_end.wait()
        return "paid"

    model = await backend.start([call("pay"), "It is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        await is_running.wait()
        await backend.cut()
        await recorder.wait_for(SessionReconnected)
        may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert calls == 1
    assert [role for role, _ in backend.items(1)] == ["user", "call", "result", "assistant"]
    assert backend.commands(1)[-2:] == ["result", "respond"]
    assert backend.complaints == []


async def test_a_result_lost_while_sending_is_sent_on_the_next_connection(scripted_backend: ScriptedBackend) -> None:
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        scripted_backend.model.cut_at(AddItem)
        return "paid"

    model = await scripted_backend.start([call("pay"), "It is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert calls == 1
    assert [role for role, _ in scripted_backend.items(1)] == ["user", "call", "result", "assistant"]
    assert scripted_backend.complaints == []


@pytest.mark.parametrize("kind", [AddItem, ConfigureSession, CreateResponse])
async def test_a_connection_lost_during_a_transfer_keeps_the_new_agent_active(
    scripted_backend: ScriptedBackend, kind: Any
) -> None:
    # For all commands that can be in transit.
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")

    def cut_now(ctx: Any) -> None:
        scripted_backend.model.cut_at(kind)

    desk = RealtimeAgent(
        "Desk", instructions="Desk: be kind.", handoffs=[realtime_handoff(billing, on_handoff=cut_now)]
    )
    model = await scripted_backend.start({"Desk": [call("transfer_to_billing")], "Billing": ["Billing here."]})
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
    assert recorder.transfers == [("Desk", "Billing")]
    assert scripted_backend.settings(1)[0] == "Billing: be kind."
    assert [role for role, _ in scripted_backend.items(1)] == ["user", "call", "result", "assistant"]
    assert scripted_backend.commands(1).count("respond") == 1
    assert scripted_backend.complaints == []


async def test_an_interrupt_stays_open_if_the_connection_is_lost(backend: Backend) -> None:

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = await backend.start([call("pay"), "It is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        interrupt = await recorder.wait_for(InterruptRaised)
        await backend.cut()
        await recorder.wait_for(SessionReconnected)
        await recorder.session.answer(interrupt.key, True)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert recorder.tool_results == [("pay", "paid")]
    assert backend.complaints == []


async def test_audio_and_text_sent_while_reconnecting_arrive_once(backend: Backend) -> None:
    model = await backend.start(["Both of you!"])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings(turn_detection=None))
    async with record_session(runner.connect()) as recorder:
        await backend.cut()
        await recorder.wait_for(SessionReconnecting)
        frames = [bytes([number]) * 960 for number in range(20)]
        audio_task = asyncio.gather(*[recorder.session.send_audio(frame) for frame in frames])
        await recorder.session.send_text("Hello", respond=False)
        await audio_task
        await recorder.session.send_text("Hello again")
        await recorder.wait_for_response()
    if isinstance(backend, WebSocketBackend):
        assert bytes(backend.connection(1).audio) == b"".join(frames)
    else:
        assert isinstance(backend, ScriptedBackend)
        assert backend.connection(1).heard == b"".join(frames)
    assert backend.items(1) == [("user", "Hello"), ("user", "Hello again"), ("assistant", "Both of you!")]
    assert backend.complaints == []


async def test_an_unanswered_user_message_is_answered_after_reconnecting(scripted_backend: ScriptedBackend) -> None:
    # Also if its transcript is lost with the connection.
    model = await scripted_backend.start(["Pardon?"])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        scripted_backend.connection().emit(UserSpeechStarted("a"), UserSpeechEnded("a"), AudioCommitted("a"))
        await scripted_backend.connection().wait_until_read(AudioCommitted)
        await scripted_backend.cut()
        await recorder.wait_for_response()
        await recorder.session.wait_until_idle()
    assert scripted_backend.items(1) == [("user", "(something that could not be understood)"), ("assistant", "Pardon?")]
    assert [event.text for event in recorder.of_type(UserMessageAdded)] == ["(something that could not be understood)"]


async def test_a_session_fails_after_max_reconnects_and_can_be_resumed(backend: Backend) -> None:
    store = MemoryStore()
    model = await backend.start(["Hello.", "Where were we?"])
    desk = RealtimeAgent("Desk")
    async with record_session(make_runner(desk, model, store=store, max_reconnects=2).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
        await _refuse_to_connect(backend, 2)
        await backend.cut()
        run_id = recorder.session.run_id
        await recorder.wait_for(SessionReconnecting, 2)
        with pytest.raises((RunError, SessionLostError)):
            await _send_until_ended(recorder.session)
    assert isinstance(recorder.failure, SessionLostError)
    assert recorder.failure.attempts == 2
    assert recorder.session.result.status == "failed"
    runner = make_runner(desk, model, store=store)
    async with record_session(runner.resume(run_id)) as recorder:
        await recorder.session.send_text("Are you there?")
        await recorder.wait_for_response()
    assert backend.items() == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Are you there?"),
        ("assistant", "Where were we?"),
    ]
    assert backend.complaints == []


async def _refuse_to_connect(backend: Backend, times: int) -> None:
    errors = [ModelConnectionError("no route to host", retryable=True) for _ in range(times)]
    if isinstance(backend, WebSocketBackend):
        backend.server.refuse(*[HttpFault(503) for _ in range(times)])
    else:
        assert isinstance(backend, ScriptedBackend)
        backend.model.fail_to_connect(*errors)


async def _send_until_ended(session: RealtimeSession) -> None:
    while True:
        await session.send_audio(b"\0\0" * 480)
        await asyncio.sleep(0)


async def test_connections_that_do_not_last_count_as_attempts(websocket_backend: WebSocketBackend) -> None:
    # Every connection can be opened, and none lasts.
    model = await websocket_backend.start(["Hello."] * 20)
    async with record_session(make_runner(RealtimeAgent("Desk"), model, max_reconnects=3).connect()) as recorder:
        websocket_backend.server.plan(
            *[CutConnection("response.created", before=True, nth=number) for number in range(1, 20)]
        )
        await recorder.session.send_text("Hi")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, SessionLostError)
    assert websocket_backend.connection_count == 4


async def test_a_normal_closure_by_the_provider_ends_the_session(backend: Backend) -> None:
    model = await backend.start([ScriptedStream("One two three", asyncio.Event())])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text("Count")
        await _wait_for_word(recorder, "three")
        await backend.close_normally()
        await recorder.wait_until_ended()
        with pytest.raises(RunError, match="has ended"):
            await recorder.session.send_text("Hello?")
    assert recorder.failure is None
    assert recorder.response_texts == ["One two three"]
    assert recorder.session.result.status == "completed"
    assert backend.connection_count == 1


async def test_a_session_that_cannot_be_opened_raises_and_leaves_no_task(scripted_backend: ScriptedBackend) -> None:
    # Also if the connection is lost while the history is sent.
    model = await scripted_backend.start(["Hello."])
    model.fail_to_connect(ModelConnectionError("no route to host"))
    with pytest.raises(ModelConnectionError, match="no route to host"):
        async with make_runner(RealtimeAgent("Desk"), model).connect():
            raise AssertionError("the session was opened")
    model.cut_at(AddItem)
    history = [UserMessage("Hi"), AssistantMessage("Hello.")]
    with pytest.raises(ModelConnectionError, match="cut while sending"):
        async with make_runner(RealtimeAgent("Desk"), model).connect(history):
            raise AssertionError("the session was opened")
    assert [connection.is_open for connection in model.connections] == [False]
    assert await unfinished_tasks() == set()


async def test_a_connection_lost_while_reconnecting_is_another_attempt(scripted_backend: ScriptedBackend) -> None:
    model = await scripted_backend.start(["Hello.", "Again."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
        scripted_backend.model.cut_at(AddItem)
        await scripted_backend.cut()
        await recorder.wait_for(SessionReconnected)
        await recorder.session.send_text("Still there?")
        await recorder.wait_for_response(2)
    assert [event.attempt for event in recorder.of_type(SessionReconnecting)] == [1, 2]
    assert scripted_backend.items() == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Still there?"),
        ("assistant", "Again."),
    ]
    assert recorder.of_type(ToolReturned) == []
    assert scripted_backend.complaints == []


async def test_speech_on_the_next_connection_is_transcribed(backend: Backend) -> None:
    model = await backend.start(["Good morning."])
    runner = make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        await backend.cut()
        await recorder.wait_for(SessionReconnected)
        await speak(backend, recorder.session, "Hello")
        await recorder.wait_for_response()
        await recorder.wait_for(UserMessageAdded)
        await recorder.session.wait_until_idle()
    assert [event.text for event in recorder.of_type(UserMessageAdded)] == ["Hello"]
    assert backend.complaints == []
