"""Closing stops everything and waits for it; nothing is sent afterwards."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend, unfinished_tasks
from tests.realtime.recorder import SessionRecorder, make_runner, record_session

from batonkit import tool
from batonkit.errors import RunError
from batonkit.log import AgentResponded, InterruptRaised, ToolReturned
from batonkit.log.fold import history_from_log
from batonkit.messages import text_of
from batonkit.realtime import (
    RealtimeAgent,
    RealtimeSession,
    RealtimeSettings,
    SessionReconnecting,
    TranscriptDelta,
    controller,
)
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedStream, call


class WaitingTool:
    """A tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.was_cancelled = False

    async def call(self) -> str:
        self.is_running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return "never"

    def as_tool(self) -> Any:
        @tool
        async def wait_without_end() -> str:
            """Wait without end."""
            return await self.call()

        return wait_without_end


async def close_session(session: RealtimeSession, backend: Backend) -> None:
    """Close the session and check that nothing is sent afterwards."""
    await session.close()
    if isinstance(backend, WebSocketBackend):
        connection = backend.connection()
        received = [each.type for each in connection.received]
        await connection.until_closed()
        assert [each.type for each in connection.received] == received
    else:
        assert isinstance(backend, ScriptedBackend)
        assert not backend.connection().is_open
    with pytest.raises(RunError, match="has ended"):
        await session.send_audio(b"\0\0")
    with pytest.raises(RunError, match="has ended"):
        await session.send_text("Hello?")


async def wait_for_word(recorder: SessionRecorder, word: str) -> None:
    await recorder.wait_for(TranscriptDelta, where=lambda delta: word in delta.text)


@pytest.mark.parametrize("is_async", [True, False])
async def test_closing_while_a_tool_runs(backend: Backend, is_async: bool) -> None:
    # Also if the session waits for tools.
    waiting = WaitingTool()
    model = await backend.start([call("wait_without_end")])
    desk = RealtimeAgent("Desk", tools=[waiting.as_tool()])
    async with record_session(make_runner(desk, model, async_tool_calls=is_async).connect()) as recorder:
        await recorder.session.send_text("Wait")
        await waiting.is_running.wait()
        await close_session(recorder.session, backend)
    assert waiting.was_cancelled
    assert recorder.session.result.status == "completed"
    assert recorder.of_type(ToolReturned) == []
    assert await unfinished_tasks() == set()
    assert backend.complaints == []


async def test_closing_while_the_agent_speaks_keeps_its_text(backend: Backend) -> None:
    model = await backend.start([ScriptedStream("Goodbye and thank you", asyncio.Event())])
    async with record_session(
        make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()
    ) as recorder:
        await recorder.session.send_text("Bye")
        await wait_for_word(recorder, "you")
        await close_session(recorder.session, backend)
    assert recorder.response_texts == ["Goodbye and thank you"]
    assert recorder.session.result.status == "completed"
    assert recorder.session.result.output == "Goodbye and thank you"
    assert backend.complaints == []


async def test_closing_with_an_open_interrupt_keeps_it_open(backend: Backend) -> None:
    # With a store, the run is suspended, and another runner can resume it.
    store, calls = MemoryStore(), 0

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    desk = RealtimeAgent("Desk", tools=[pay])
    model = await backend.start([call("pay"), "It is paid."])
    async with record_session(make_runner(desk, model, store=store).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        interrupt = await recorder.wait_for(InterruptRaised)
        await close_session(recorder.session, backend)
    assert recorder.session.result.status == "suspended"
    assert [question.id for question in recorder.session.result.interrupts] == [interrupt.key]
    run_id = recorder.session.run_id
    async with record_session(make_runner(desk, model, store=store).resume(run_id, {interrupt.key: True})) as recorder:
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert calls == 1
    assert recorder.tool_results == [("pay", "paid")]
    assert [role for role, _ in backend.items()] == ["user", "call", "result", "assistant"]
    assert recorder.session.result.status == "completed"
    assert backend.complaints == []


async def test_an_interrupt_can_be_answered_in_the_resumed_session(scripted_backend: ScriptedBackend) -> None:

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    desk, store = RealtimeAgent("Desk", tools=[pay]), MemoryStore()
    model = await scripted_backend.start([call("pay"), "It is paid."])
    async with record_session(make_runner(desk, model, store=store).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        interrupt = await recorder.wait_for(InterruptRaised)
    async with record_session(make_runner(desk, model, store=store).resume(recorder.session.run_id)) as resumed:
        assert [question.id for question in resumed.session.interrupts] == [interrupt.key]
        await resumed.session.answer(interrupt.key, True)
        await resumed.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert scripted_backend.complaints == []


async def test_closing_while_reconnecting(backend: Backend) -> None:
    # Close does not wait for the new connection.
    model = await backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model, reconnect_delay=60).connect()) as recorder:
        await backend.cut()
        await recorder.wait_for(SessionReconnecting)
        audio_task = asyncio.create_task(recorder.session.send_audio(b"\0\0"))
        text_task = asyncio.create_task(recorder.session.send_text("Hello?"))
        await recorder.session.close()
        for task in (audio_task, text_task):
            with pytest.raises(RunError, match="has ended"):
                await task
    assert recorder.session.result.status == "completed"
    assert backend.connection_count == 1


async def test_closing_during_a_transfer_without_a_connection(scripted_backend: ScriptedBackend) -> None:
    billing = RealtimeAgent("Billing", description="Settles invoices.")
    model = await scripted_backend.start(["Hello."])
    desk = RealtimeAgent("Desk", handoffs=[billing])
    async with record_session(make_runner(desk, model, reconnect_delay=60).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
        await scripted_backend.cut()
        await recorder.wait_for(SessionReconnecting)
        await recorder.session.handoff_to("Billing")
        await recorder.session.close()
    assert recorder.session.result.status == "completed"


async def test_closing_just_after_a_tool_has_ended(scripted_backend: ScriptedBackend) -> None:
    # The result cannot be sent any more, which is not an error.
    sessions: list[RealtimeSession] = []

    @tool
    async def bye() -> str:
        """Close the session."""
        asyncio.get_running_loop().call_soon(sessions[0]._controller.shut_down)
        return "bye"

    model = await scripted_backend.start([call("bye")])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[bye]), model).connect()) as recorder:
        sessions.append(recorder.session)
        await recorder.session.send_text("Bye")
        await recorder.wait_until_ended()
    assert recorder.failure is None
    assert recorder.tool_results == [("bye", "bye")]
    assert recorder.session.result.status == "completed"
    assert scripted_backend.complaints == []


async def test_closing_does_not_wait_for_a_guardrail(
    scripted_backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_CLOSE_GRACE", 0.01)
    is_called = asyncio.Event()

    async def wait_forever(ctx: Any, text: str) -> bool:
        is_called.set()
        await asyncio.Event().wait()
        return True

    model = await scripted_backend.start(["Hello."])
    async with record_session(
        make_runner(RealtimeAgent("Desk", output_guardrails=[wait_forever]), model).connect()
    ) as recorder:
        await recorder.session.send_text("Hi")
        await is_called.wait()
        await recorder.session.close()
    assert recorder.session.result.status == "completed"
    assert await unfinished_tasks() == set()


async def test_closing_twice_and_from_two_tasks(backend: Backend) -> None:
    model = await backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await asyncio.gather(recorder.session.close(), recorder.session.close())
        await recorder.session.close()
    assert recorder.session.result.status == "completed"
    assert backend.complaints == []


async def test_an_error_in_the_with_block_closes_the_session(backend: Backend) -> None:
    waiting = WaitingTool()
    model = await backend.start([call("wait_without_end")])

    async def run_session() -> None:
        async with make_runner(RealtimeAgent("Desk", tools=[waiting.as_tool()]), model).connect() as session:
            await session.send_text("Wait")
            await waiting.is_running.wait()
            raise LookupError

    with pytest.raises(LookupError):
        await run_session()
    assert waiting.was_cancelled
    assert await unfinished_tasks() == set()
    assert backend.complaints == []


async def test_a_cancelled_task_closes_the_session(backend: Backend) -> None:
    waiting = WaitingTool()
    model = await backend.start([call("wait_without_end")])

    async def run_session() -> None:
        async with make_runner(RealtimeAgent("Desk", tools=[waiting.as_tool()]), model).connect() as session:
            await session.send_text("Wait")
            async for _ in session:
                pass

    task = asyncio.create_task(run_session())
    await waiting.is_running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.was_cancelled
    if isinstance(backend, WebSocketBackend):
        await backend.connection().until_closed()
    assert backend.complaints == []


async def test_the_result_of_one_call_is_kept_if_another_one_did_not_end(backend: Backend) -> None:
    # The history agrees with the log.
    waiting = WaitingTool()

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    model = await backend.start([[call("wait_without_end"), call("look_up")]])
    desk = RealtimeAgent("Desk", tools=[waiting.as_tool(), look_up])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Both")
        await waiting.is_running.wait()
        await recorder.wait_for(ToolReturned)
    history = [text_of(message.content) for message in recorder.session.result.messages]
    assert history == ["Both", "", "This call did not finish.", "found"]
    assert [text_of(entry.message.content) for entry in history_from_log(recorder.session.log.events)] == history
    assert backend.complaints == []
