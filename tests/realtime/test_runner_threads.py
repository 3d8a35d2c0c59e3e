"""Threads of text runs and realtime sessions; resuming and replaying sessions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.realtime.backends import Backend, WebSocketBackend
from tests.realtime.recorder import make_runner, record_session, unplayed

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import ModelError, SessionLostError
from batonkit.log import AgentResponded, InterruptRaised, ResponseTruncated, ToolReturned, UserMessageAdded
from batonkit.log.fold import history_from_log
from batonkit.messages import AssistantMessage, Image, SystemMessage, Text, ToolCall, ToolMessage, UserMessage, text_of
from batonkit.realtime import AudioDelta, RealtimeAgent, RealtimeSettings
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc33"
    "0000000049454e44ae426082"
)


async def test_a_thread_continues_with_text_runs_and_realtime_sessions(backend: Backend) -> None:
    # With calls in both.

    @tool
    async def look_up(what: str) -> str:
        """Look it up."""
        return f"found {what}"

    store = MemoryStore()
    text_model = ScriptedModel([call("look_up", what="a"), "I found a.", "You are welcome."])
    text_runner = Runner(Agent("Desk", tools=[look_up], model=text_model), store=store)
    await text_runner.run("Find a", thread="t")
    model = await backend.start([call("look_up", what="b"), "I found b."])
    realtime_runner = make_runner(RealtimeAgent("Desk", tools=[look_up]), model, store=store)
    async with record_session(realtime_runner.connect(thread="t")) as recorder:
        assert [role for role, _ in backend.items()] == ["user", "call", "result", "assistant"]
        assert "respond" not in backend.commands()
        await recorder.session.send_text("Find b")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I found b.")
    result = await text_runner.run("Thanks", thread="t")
    assert result.output == "You are welcome."
    texts = [text_of(message.content) for message in text_model.requests[-1].messages if text_of(message.content)]
    assert texts == ["Find a", "found a", "I found a.", "Find b", "found b", "I found b.", "Thanks"]
    assert [text_of(message.content) for message in await realtime_runner.thread("t").messages()][
        -1
    ] == "You are welcome."
    assert backend.complaints == []


async def test_a_thread_remembers_the_active_agent_and_the_heard_text(backend: Backend) -> None:
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    steps = {"Desk": [call("transfer_to_billing")], "Billing": ["One two three four", "Back again."]}
    model = await backend.start(steps)
    runner = make_runner(desk, model, store=MemoryStore(), settings=RealtimeSettings())
    async with record_session(runner.connect(thread="t", playback=unplayed())) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for(AgentResponded, where=lambda response: response.agent == "Billing")
        recorder.session.playback.played(recorder.of_type(AudioDelta)[0].item_id, 400)
        await recorder.session.interrupt()
        await recorder.wait_for(ResponseTruncated)
    async with record_session(runner.connect(thread="t")) as recorder:
        assert recorder.session.active_agent == "Billing"
        assert backend.settings()[0] == "Billing: be kind."
        assert backend.items()[-1] == ("assistant", "One two")
        await recorder.session.send_text("Hello?")
        await recorder.wait_for_response()
    assert backend.complaints == []


async def test_a_session_can_start_with_a_history_and_answers_its_last_message(backend: Backend) -> None:
    model = await backend.start(["It is 42."])
    history = [
        SystemMessage("The user is Ada."),
        UserMessage("Hi"),
        AssistantMessage("One moment.", (ToolCall("c1", "look_up", '{"what": "it"}'),)),
        ToolMessage("c1", "look_up", "42"),
        AssistantMessage("Found."),
        UserMessage("What is it?"),
    ]
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect(history)) as recorder:
        await recorder.wait_for_response()
    assert backend.items() == [
        ("system", "The user is Ada."),
        ("user", "Hi"),
        ("assistant", "One moment."),
        ("call", "c1"),
        ("result", "c1"),
        ("assistant", "Found."),
        ("user", "What is it?"),
        ("assistant", "It is 42."),
    ]
    assert backend.commands()[-1] == "respond"
    assert backend.complaints == []


async def test_images_can_be_sent(backend: Backend) -> None:
    model = await backend.start(["A pixel."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text((Text("What is this?"), Image(data=PIXEL, media_type="image/png")))
        await recorder.wait_for_response()
    if isinstance(backend, WebSocketBackend):
        kinds = [
            part["type"] for part in backend.connection().encoder.encode_item(backend.connection().items[0])["content"]
        ]
        assert kinds == ["input_text", "input_image"]
    assert backend.complaints == []


async def test_unsupported_content_raises_an_error_at_the_sender(websocket_backend: WebSocketBackend) -> None:
    # Nothing is recorded, and the session continues.
    model = await websocket_backend.start(["Hello."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        with pytest.raises(ModelError, match="an image by its address"):
            await recorder.session.send_text((Image(url="https://example.org/cat.png"),))
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
    assert [event.text for event in recorder.of_type(UserMessageAdded)] == ["Hi"]
    assert [text_of(message.content) for message in recorder.session.result.messages] == ["Hi", "Hello."]
    assert recorder.failure is None
    assert websocket_backend.complaints == []


async def test_a_session_can_be_replayed(backend: Backend) -> None:
    # With the same result and without effects.
    calls = 0

    @tool
    async def look_up() -> str:
        """Look it up."""
        nonlocal calls
        calls += 1
        return "found"

    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing], tools=[look_up])
    model = await backend.start(
        {"Desk": [[call("look_up"), call("transfer_to_billing")]], "Billing": ["Hello.", "Yes."]}
    )
    runner = make_runner(desk, model)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
        await recorder.session.send_text("Are you Billing?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Yes.")
    replayed = await runner.text_runner.runs.replay(recorder.session.log.events)
    assert calls == 1
    assert replayed.messages == recorder.session.result.messages
    assert [entry.message for entry in history_from_log(recorder.session.log.events)] == list(replayed.messages)
    assert (replayed.agent, replayed.output) == ("Billing", "Yes.")


async def test_a_lost_session_is_resumed_from_a_store_by_another_runner(backend: Backend, tmp_path: Path) -> None:
    # A tool that was running is run again.
    is_running, calls = asyncio.Event(), 0

    @tool
    async def look_up(ctx: RunContext) -> str:
        """Look it up."""
        nonlocal calls
        calls += 1
        if calls == 1:
            is_running.set()
            await asyncio.Event().wait()
        return "found"

    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.", tools=[look_up])
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.start({"Desk": [call("transfer_to_billing")], "Billing": [call("look_up"), "I found it."]})
    store = tmp_path / "runs.db"
    first = make_runner(desk, model, store=store, max_reconnects=0)
    async with record_session(first.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await is_running.wait()
        await backend.cut()
        await recorder.wait_until_ended()
    await first.close()
    assert isinstance(recorder.failure, SessionLostError)
    second = make_runner(desk, model, store=store)
    async with record_session(second.resume(recorder.session.run_id)) as resumed:
        await resumed.wait_for(AgentResponded, where=lambda response: response.text == "I found it.")
        assert resumed.session.active_agent == "Billing"
    await second.close()
    assert backend.settings()[0] == "Billing: be kind."
    assert [(each.tool_name, each.content) for each in resumed.of_type(ToolReturned)] == [("look_up", "found")]
    assert [role for role, _ in backend.items()] == ["user", "call", "result", "call", "result", "assistant"]
    assert backend.complaints == []


async def test_an_unfinished_call_with_effect_once_raises_an_interrupt(backend: Backend) -> None:
    is_running, calls = asyncio.Event(), 0

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        is_running.set()
        await asyncio.Event().wait()
        return "never"

    desk = RealtimeAgent("Desk", tools=[pay])
    model = await backend.start([call("pay"), "It was probably paid."])
    store: Any = MemoryStore()
    runner = make_runner(desk, model, store=store, max_reconnects=0)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Pay")
        await is_running.wait()
        await backend.cut()
        await recorder.wait_until_ended()
    async with record_session(runner.resume(recorder.session.run_id)) as resumed:
        interrupt = await resumed.wait_for(InterruptRaised)
        await resumed.session.answer(interrupt.key, {"result": "the bank says it is paid"})
        await resumed.wait_for(AgentResponded)
    assert calls == 1
    assert resumed.failure is None
