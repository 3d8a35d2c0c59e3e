"""R3: conversations in writing go on live, and live ones in writing; what was done is replayed and resumed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.realtime.backends import Backend, OverTheWire
from tests.realtime.listener import listening_to, make_runner

from baton import Agent, RunContext, Runner, tool
from baton.errors import ModelError, SessionLostError
from baton.events import AgentResponded, InterruptRaised, ResponseTruncated, ToolReturned, UserMessageAdded
from baton.flow.log_history import history_from_log
from baton.messages import AssistantMessage, Image, SystemMessage, Text, ToolCall, ToolMessage, UserMessage, text_of
from baton.realtime import AudioDelta, RealtimeAgent, RealtimeSettings
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, call

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc33"
    "0000000049454e44ae426082"
)


async def test_a_thread_in_writing_goes_on_live_and_back_in_writing(backend: Backend) -> None:
    """R3: the same store, and calls of both."""

    @tool
    async def look_up(what: str) -> str:
        """Look it up."""
        return f"found {what}"

    store = MemoryStore()
    written = ScriptedModel([call("look_up", what="a"), "I found a.", "You are welcome."])
    text = Runner(Agent("Desk", tools=[look_up], model=written), store=store)
    await text.run("Find a", thread="t")
    model = await backend.plays([call("look_up", what="b"), "I found b."])
    live = make_runner(RealtimeAgent("Desk", tools=[look_up]), model, store=store)
    async with listening_to(live.connect(thread="t")) as heard:
        assert [role for role, _ in backend.told()] == ["user", "call", "result", "assistant"]
        assert "respond" not in backend.commands()
        await heard.session.send_text("Find b")
        await heard.until(AgentResponded, where=lambda said: said.text == "I found b.")
    result = await text.run("Thanks", thread="t")
    assert result.output == "You are welcome."
    said = [text_of(message.content) for message in written.requests[-1].messages if text_of(message.content)]
    assert said == ["Find a", "found a", "I found a.", "Find b", "found b", "I found b.", "Thanks"]
    assert [text_of(message.content) for message in await live.thread("t").messages()][-1] == "You are welcome."
    assert backend.complaints == []


async def test_a_thread_remembers_the_active_agent_and_the_heard_text(backend: Backend) -> None:
    """R3, R7."""
    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    steps = {"Desk": [call("transfer_to_billing")], "Billing": ["One two three four", "Back again."]}
    model = await backend.plays(steps)
    runner = make_runner(desk, model, store=MemoryStore(), settings=RealtimeSettings())
    async with listening_to(runner.connect(thread="t")) as heard:
        await heard.session.send_text("Count")
        await heard.until(AgentResponded, where=lambda said: said.agent == "Billing")
        heard.session.playback.played(heard.all(AudioDelta)[0].item_id, 400)
        await heard.session.interrupt()
        await heard.until(ResponseTruncated)
    async with listening_to(runner.connect(thread="t")) as heard:
        assert heard.session.active_agent == "Billing"
        assert backend.settings()[0] == "Billing: be kind."
        assert backend.told()[-1] == ("assistant", "One two")
        await heard.session.send_text("Hello?")
        await heard.said()
    assert backend.complaints == []


async def test_history_can_be_given_and_an_open_question_in_it_is_answered(backend: Backend) -> None:
    """R3."""
    model = await backend.plays(["It is 42."])
    history = [
        SystemMessage("The user is Ada."),
        UserMessage("Hi"),
        AssistantMessage("One moment.", (ToolCall("c1", "look_up", '{"what": "it"}'),)),
        ToolMessage("c1", "look_up", "42"),
        AssistantMessage("Found."),
        UserMessage("What is it?"),
    ]
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect(history)) as heard:
        await heard.said()
    assert backend.told() == [
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


async def test_images_can_be_shown(backend: Backend) -> None:
    """R3."""
    model = await backend.plays(["A pixel."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await heard.session.send_text((Text("What is this?"), Image(data=PIXEL, media_type="image/png")))
        await heard.said()
    if isinstance(backend, OverTheWire):
        kinds = [part["type"] for part in backend.at().encoder.encode_item(backend.at().items[0])["content"]]
        assert kinds == ["input_text", "input_image"]
    assert backend.complaints == []


async def test_unsupported_content_raises_an_error_at_the_sender(wire: OverTheWire) -> None:
    """R3: nothing of it is on record, and the conversation goes on."""
    model = await wire.plays(["Hello."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        with pytest.raises(ModelError, match="an image by its address"):
            await heard.session.send_text((Image(url="https://example.org/cat.png"),))
        await heard.session.send_text("Hi")
        await heard.said()
    assert [event.text for event in heard.all(UserMessageAdded)] == ["Hi"]
    assert [text_of(message.content) for message in heard.session.result.messages] == ["Hi", "Hello."]
    assert heard.failure is None
    assert wire.complaints == []


async def test_a_conversation_can_be_replayed(backend: Backend) -> None:
    """R2: the same code over the same log comes to the same end, and does nothing."""
    calls = 0

    @tool
    async def look_up() -> str:
        """Look it up."""
        nonlocal calls
        calls += 1
        return "found"

    billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing], tools=[look_up])
    model = await backend.plays(
        {"Desk": [[call("look_up"), call("transfer_to_billing")]], "Billing": ["Hello.", "Yes."]}
    )
    runner = make_runner(desk, model)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
        await heard.session.send_text("Are you Billing?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Yes.")
    replayed = await runner.text_runner.replay(heard.session.log.events)
    assert calls == 1
    assert replayed.messages == heard.session.result.messages
    assert [entry.message for entry in history_from_log(heard.session.log.events)] == list(replayed.messages)
    assert (replayed.agent, replayed.output) == ("Billing", "Yes.")


async def test_a_lost_conversation_is_resumed_from_a_file_by_another_runner(backend: Backend, tmp_path: Path) -> None:
    """R9: a tool of `once` that was running is not run again without being asked for."""
    runs, calls = asyncio.Event(), 0

    @tool
    async def look_up(ctx: RunContext) -> str:
        """Look it up."""
        nonlocal calls
        calls += 1
        if calls == 1:
            runs.set()
            await asyncio.Event().wait()
        return "found"

    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.", tools=[look_up])
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.plays({"Desk": [call("transfer_to_billing")], "Billing": [call("look_up"), "I found it."]})
    store = tmp_path / "runs.db"
    first = make_runner(desk, model, store=store, max_reconnects=0)
    async with listening_to(first.connect()) as heard:
        await heard.session.send_text("Find it")
        await runs.wait()
        await backend.cut()
        await heard.until_over()
    await first.close()
    assert isinstance(heard.failure, SessionLostError)
    second = make_runner(desk, model, store=store)
    async with listening_to(second.resume(heard.session.run_id)) as again:
        await again.until(AgentResponded, where=lambda said: said.text == "I found it.")
        assert again.session.active_agent == "Billing"
    await second.close()
    assert backend.settings()[0] == "Billing: be kind."
    assert [(each.tool_name, each.content) for each in again.all(ToolReturned)] == [("look_up", "found")]
    assert [role for role, _ in backend.told()] == ["user", "call", "result", "call", "result", "assistant"]
    assert backend.complaints == []


async def test_an_unfinished_call_with_effect_once_raises_an_interrupt(backend: Backend) -> None:
    """R9."""
    runs, calls = asyncio.Event(), 0

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        runs.set()
        await asyncio.Event().wait()
        return "never"

    desk = RealtimeAgent("Desk", tools=[pay])
    model = await backend.plays([call("pay"), "It was paid, as it seems."])
    store: Any = MemoryStore()
    runner = make_runner(desk, model, store=store, max_reconnects=0)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Pay")
        await runs.wait()
        await backend.cut()
        await heard.until_over()
    async with listening_to(runner.resume(heard.session.run_id)) as again:
        asked = await again.until(InterruptRaised)
        await again.session.answer(asked.key, {"result": "paid, by the bank's word"})
        await again.until(AgentResponded)
    assert calls == 1
    assert again.failure is None
