"""R11: closing stops everything and waits for it; nothing is sent afterwards."""

import asyncio
import time
from typing import Any

import pytest
from tests.realtime.backends import Backend, InMemory, OverTheWire, nothing_left
from tests.realtime.listener import Listener, listening_to, make_runner

from baton import tool
from baton.errors import RunError
from baton.events import AgentResponded, InterruptRaised, ToolReturned
from baton.flow.log_history import history_from_log
from baton.messages import text_of
from baton.realtime import RealtimeAgent, RealtimeSession, RealtimeSettings, SessionReconnecting, TranscriptDelta
from baton.stores import MemoryStore
from baton.testing import ScriptedStream, call


class Slow:
    """A tool that never ends by itself."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()
        self.was_stopped = False

    async def call(self) -> str:
        self.runs.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        return "never"

    def as_tool(self) -> Any:
        @tool
        async def wait_for_it() -> str:
            """Wait for it."""
            return await self.call()

        return wait_for_it


async def closed_in_time(session: RealtimeSession, backend: Backend) -> None:
    """Close it; nothing comes after that."""
    async with asyncio.timeout(60):
        await session.close()
    if isinstance(backend, OverTheWire):
        at, now = backend.at(), time.monotonic()
        await at.until_closed()
        assert [each.type for each in at.received if each.at > now] == []
    else:
        assert isinstance(backend, InMemory)
        assert not backend.at().is_open
    with pytest.raises(RunError, match="has ended"):
        await session.send_audio(b"\0\0")
    with pytest.raises(RunError, match="has ended"):
        await session.send_text("Hello?")


async def words(heard: Listener, word: str) -> None:
    await heard.until(TranscriptDelta, where=lambda delta: word in delta.text)


@pytest.mark.parametrize("is_async", [True, False])
async def test_closing_while_a_tool_runs(backend: Backend, is_async: bool) -> None:
    """R11: also where the conversation waits for tools."""
    slow = Slow()
    model = await backend.plays([call("wait_for_it")])
    desk = RealtimeAgent("Desk", tools=[slow.as_tool()])
    async with listening_to(make_runner(desk, model, async_tool_calls=is_async).connect()) as heard:
        await heard.session.send_text("Wait")
        await slow.runs.wait()
        await closed_in_time(heard.session, backend)
    assert slow.was_stopped
    assert heard.session.result.status == "completed"
    assert heard.all(ToolReturned) == []
    assert await nothing_left() == set()
    assert backend.complaints == []


async def test_closing_while_the_agent_speaks_keeps_its_text(backend: Backend) -> None:
    """R9, R11."""
    model = await backend.plays([ScriptedStream("Goodbye and thank you", asyncio.Event())])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()) as heard:
        await heard.session.send_text("Bye")
        await words(heard, "you")
        await closed_in_time(heard.session, backend)
    assert heard.words == ["Goodbye and thank you"]
    assert heard.session.result.status == "completed"
    assert heard.session.result.output == "Goodbye and thank you"
    assert backend.complaints == []


async def test_closing_with_an_open_interrupt_keeps_it_open(backend: Backend) -> None:
    """R11: with a store, the run is suspended, and another runner goes on with it."""
    store, calls = MemoryStore(), 0

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    desk = RealtimeAgent("Desk", tools=[pay])
    model = await backend.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(desk, model, store=store).connect()) as heard:
        await heard.session.send_text("Pay!")
        asked = await heard.until(InterruptRaised)
        await closed_in_time(heard.session, backend)
    assert heard.session.result.status == "suspended"
    assert [question.id for question in heard.session.result.interrupts] == [asked.key]
    run_id = heard.session.run_id
    async with listening_to(make_runner(desk, model, store=store).resume(run_id, {asked.key: True})) as heard:
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert calls == 1
    assert heard.results == [("pay", "paid")]
    assert [role for role, _ in backend.told()] == ["user", "call", "result", "assistant"]
    assert heard.session.result.status == "completed"
    assert backend.complaints == []


async def test_a_question_can_be_answered_live_after_a_resume(scripted: InMemory) -> None:
    """R11."""

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    desk, store = RealtimeAgent("Desk", tools=[pay]), MemoryStore()
    model = await scripted.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(desk, model, store=store).connect()) as heard:
        await heard.session.send_text("Pay!")
        asked = await heard.until(InterruptRaised)
    async with listening_to(make_runner(desk, model, store=store).resume(heard.session.run_id)) as again:
        assert [question.id for question in again.session.interrupts] == [asked.key]
        await again.session.answer(asked.key, True)
        await again.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert scripted.complaints == []


async def test_closing_while_reconnecting(backend: Backend) -> None:
    """R11: it does not wait for a connection that nobody needs any more."""
    model = await backend.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, reconnect_delay=60).connect()) as heard:
        await backend.cut()
        await heard.until(SessionReconnecting)
        sending = asyncio.create_task(heard.session.send_audio(b"\0\0"))
        writing = asyncio.create_task(heard.session.send_text("Hello?"))
        async with asyncio.timeout(60):
            await heard.session.close()
        for task in (sending, writing):
            with pytest.raises(RunError, match="has ended"):
                await task
    assert heard.session.result.status == "completed"
    assert backend.connections == 1


async def test_closing_during_a_transfer_without_a_connection(scripted: InMemory) -> None:
    """R11."""
    billing = RealtimeAgent("Billing", description="Settles invoices.")
    model = await scripted.plays(["Hello."])
    desk = RealtimeAgent("Desk", handoffs=[billing])
    async with listening_to(make_runner(desk, model, reconnect_delay=60).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.said()
        await scripted.cut()
        await heard.until(SessionReconnecting)
        await heard.session.handoff_to("Billing")
        async with asyncio.timeout(60):
            await heard.session.close()
    assert heard.session.result.status == "completed"


async def test_just_when_a_tool_has_ended(scripted: InMemory) -> None:
    """R11: its result cannot be sent any more, and that is no failure."""
    sessions: list[RealtimeSession] = []

    @tool
    async def bye() -> str:
        """Say goodbye."""
        asyncio.get_running_loop().call_soon(sessions[0]._controller.shut_down)
        return "bye"

    model = await scripted.plays([call("bye")])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[bye]), model).connect()) as heard:
        sessions.append(heard.session)
        await heard.session.send_text("Bye")
        await heard.until_over()
    assert heard.failure is None
    assert heard.results == [("bye", "bye")]
    assert heard.session.result.status == "completed"
    assert scripted.complaints == []


async def test_a_guardrail_that_does_not_end_does_not_hold_it_up(scripted: InMemory) -> None:
    """R11."""
    asked = asyncio.Event()

    async def slow(ctx: Any, text: str) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    model = await scripted.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk", output_guardrails=[slow]), model).connect()) as heard:
        await heard.session.send_text("Hi")
        await asked.wait()
        async with asyncio.timeout(60):
            await heard.session.close()
    assert heard.session.result.status == "completed"
    assert await nothing_left() == set()


async def test_twice_and_from_two_tasks(backend: Backend) -> None:
    """R11."""
    model = await backend.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await asyncio.gather(heard.session.close(), heard.session.close())
        await heard.session.close()
    assert heard.session.result.status == "completed"
    assert backend.complaints == []


async def test_leaving_by_an_error_closes_as_well(backend: Backend) -> None:
    """R11."""
    slow = Slow()
    model = await backend.plays([call("wait_for_it")])

    async def hold() -> None:
        async with make_runner(RealtimeAgent("Desk", tools=[slow.as_tool()]), model).connect() as session:
            await session.send_text("Wait")
            await slow.runs.wait()
            raise LookupError

    with pytest.raises(LookupError):
        await hold()
    assert slow.was_stopped
    assert await nothing_left() == set()
    assert backend.complaints == []


async def test_a_cancelled_task_closes_the_session(backend: Backend) -> None:
    """R11."""
    slow = Slow()
    model = await backend.plays([call("wait_for_it")])

    async def hold() -> None:
        async with make_runner(RealtimeAgent("Desk", tools=[slow.as_tool()]), model).connect() as session:
            await session.send_text("Wait")
            async for _ in session:
                pass

    holding = asyncio.create_task(hold())
    await slow.runs.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(holding, 60)
    assert slow.was_stopped
    if isinstance(backend, OverTheWire):
        await backend.at().until_closed()
    assert backend.complaints == []


async def test_the_result_of_one_call_is_kept_if_another_did_not_end(backend: Backend) -> None:
    """R11: the history says what the log says."""
    slow = Slow()

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    model = await backend.plays([[call("wait_for_it"), call("look_up")]])
    desk = RealtimeAgent("Desk", tools=[slow.as_tool(), look_up])
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Both")
        await slow.runs.wait()
        await heard.until(ToolReturned)
    history = [text_of(message.content) for message in heard.session.result.messages]
    assert history == ["Both", "", "This call did not finish.", "found"]
    assert [text_of(entry.message.content) for entry in history_from_log(heard.session.log.events)] == history
    assert backend.complaints == []
