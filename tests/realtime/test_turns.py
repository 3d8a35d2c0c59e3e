"""R6, R8: calls are carried out while speech goes on, and each of them once."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, InMemory, OverTheWire, says
from tests.realtime.listener import listening_to, make_runner
from tests.servers.realtime import RepeatEvent

from baton import RunContext, tool
from baton.errors import UnknownToolError
from baton.events import AgentResponded, InterruptRaised, ToolReturned, UserMessageAdded
from baton.messages import AssistantMessage, ToolCall
from baton.realtime import RealtimeAgent, RealtimeSettings, SessionErrorReported, TurnDetection
from baton.realtime.protocol import ResponseEnded
from baton.testing import ScriptedStream, call, say


class Gate:
    """A tool that ends when a test lets it, and knows how often it ran."""

    def __init__(self) -> None:
        self.calls = 0
        self.runs, self.may_end = asyncio.Event(), asyncio.Event()

    def as_tool(self) -> Any:
        @tool
        async def look_up(what: str = "it") -> str:
            """Look it up."""
            self.calls += 1
            self.runs.set()
            await self.may_end.wait()
            return f"found {what}"

        return look_up


async def test_speech_goes_on_while_a_tool_runs(backend: Backend) -> None:
    """R6."""
    gate = Gate()
    model = await backend.plays([say("One moment.", call("look_up")), "It will not be long.", "I found it."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        await says(backend, heard.session, "How long will it take?")
        await heard.until(AgentResponded, where=lambda said: said.text == "It will not be long.")
        assert heard.all(ToolReturned) == []
        gate.may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "I found it.")
        await heard.session.wait_until_idle()
    assert gate.calls == 1
    assert backend.commands()[:2] == ["user", "respond"]
    assert backend.commands()[-2:] == ["result", "respond"]
    assert backend.complaints == []


async def test_the_conversation_can_wait_for_tools(backend: Backend) -> None:
    """R6: `async_tool_calls=False`."""
    gate = Gate()
    model = await backend.plays([call("look_up"), "I found it.", "Yes."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model, async_tool_calls=False)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        writing = asyncio.create_task(heard.session.send_text("Are you there?"))
        await asyncio.sleep(0)
        assert backend.commands() == ["user", "respond"]
        gate.may_end.set()
        await writing
        await heard.until(AgentResponded, where=lambda said: said.text == "I found it.")
        await heard.session.wait_until_idle()
    kinds = [type(event) for event in heard.events if isinstance(event, ToolReturned | UserMessageAdded)]
    assert kinds == [UserMessageAdded, ToolReturned, UserMessageAdded]
    assert backend.complaints == []


async def test_the_results_of_one_response_are_one_request(backend: Backend) -> None:
    """R6."""

    @tool
    async def look_up(what: str) -> str:
        """Look it up."""
        return f"found {what}"

    calls = [call("look_up", what=what) for what in ("a", "b", "c")]
    model = await backend.plays([calls, "All found."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[look_up]), model).connect()) as heard:
        await heard.session.send_text("Find them")
        await heard.until(AgentResponded, where=lambda said: said.text == "All found.")
    assert [content for _, content in heard.results] == ["found a", "found b", "found c"]
    assert backend.commands() == ["user", "respond", "result", "result", "result", "respond"]
    assert backend.complaints == []


async def test_no_response_is_asked_for_while_one_is_under_way(backend: Backend) -> None:
    """R6: two results come while the model speaks; it is asked once, when it has ended."""
    gate, may_end = Gate(), asyncio.Event()

    @tool
    async def calculate() -> str:
        """Calculate."""
        await gate.may_end.wait()
        return "42"

    desk = RealtimeAgent("Desk", tools=[gate.as_tool(), calculate])
    model = await backend.plays(
        [call("look_up"), call("calculate"), ScriptedStream("Meanwhile", may_end), "Both are done."]
    )
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        await heard.session.send_text("And calculate")
        await heard.said(2)
        await heard.session.send_text("And tell me a story")
        await backend.until("respond", 3)
        gate.may_end.set()
        await backend.until("result", 2)
        assert backend.commands().count("respond") == 3
        may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "Both are done.")
        await heard.session.wait_until_idle()
    assert backend.commands().count("respond") == 4
    assert backend.complaints == []


async def test_no_response_is_asked_for_while_the_user_speaks(backend: Backend) -> None:
    """R6: the answer to what the user says is the answer to the result as well."""
    gate = Gate()
    model = await backend.plays([call("look_up"), "I found it, and yes."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        await backend.begins_to_speak(heard.session)
        gate.may_end.set()
        await backend.until("result")
        assert backend.commands() == ["user", "respond", "result"]
        await backend.has_said(heard.session, "Are you there?")
        await heard.until(AgentResponded, where=lambda said: said.text == "I found it, and yes.")
        await heard.session.wait_until_idle()
    assert backend.commands() == ["user", "respond", "result"]
    assert backend.complaints == []


async def test_where_the_provider_does_not_answer_by_itself_it_is_asked_when_the_user_is_quiet(
    backend: Backend,
) -> None:
    """R6."""
    gate = Gate()
    settings = RealtimeSettings(turn_detection=TurnDetection(create_response=False))
    model = await backend.plays([call("look_up"), "I found it.", "I am here."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model, settings=settings)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        await backend.begins_to_speak(heard.session)
        gate.may_end.set()
        await backend.until("result")
        await backend.has_said(heard.session, "Are you there?")
        await heard.until(AgentResponded, where=lambda said: said.text == "I found it.")
        await heard.until(UserMessageAdded, 2)
        await heard.session.respond()
        await heard.until(AgentResponded, where=lambda said: said.text == "I am here.")
    assert backend.commands() == ["user", "respond", "result", "respond", "respond"]
    assert backend.complaints == []


async def test_a_call_that_is_made_again_is_not_carried_out_again(backend: Backend) -> None:
    """R8: in another response, and twice in the same one."""
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    same = ToolCall("call_1", "pay", "{}")
    model = await backend.plays([same, same, "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
        await heard.session.wait_until_idle()
    assert calls == 1
    assert heard.results == [("pay", "paid")]
    assert backend.commands() == ["user", "respond", "result", "respond", "respond"]
    assert heard.all(SessionErrorReported) == []
    assert backend.complaints == []


async def test_a_call_that_comes_twice_in_one_response_is_carried_out_once(scripted: InMemory) -> None:
    """R8."""
    gate = Gate()
    gate.may_end.set()
    same = ToolCall("call_1", "look_up", "{}")
    model = await scripted.plays([AssistantMessage("", (same, same)), "Found."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model).connect()) as heard:
        await heard.session.send_text("Find it")
        await heard.until(AgentResponded, where=lambda said: said.text == "Found.")
    assert gate.calls == 1
    assert len(heard.all(ToolReturned)) == 1
    assert scripted.complaints == []


async def test_the_same_id_for_something_else_is_an_error_that_is_told(backend: Backend) -> None:
    """R8."""
    seen: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        seen.append(amount)
        return f"paid {amount}"

    steps = [ToolCall("call_1", "pay", '{"amount": 1}'), ToolCall("call_1", "pay", '{"amount": 2}'), "It is paid."]
    model = await backend.plays(steps)
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as heard:
        await heard.session.send_text("Pay!")
        trouble = await heard.until(SessionErrorReported)
        await heard.until(AgentResponded, where=lambda said: said.text == "It is paid.")
    assert trouble.code == "call_id_reused"
    assert "the id `call_1` of a call of `pay` was used before by another call" in trouble.message
    assert seen == [1]
    assert backend.complaints == []


async def test_a_call_that_is_made_again_while_it_runs_is_waited_for(backend: Backend) -> None:
    """R8."""
    gate = Gate()
    same = ToolCall("call_1", "look_up", "{}")
    model = await backend.plays([same, same, "Found."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model).connect()) as heard:
        await heard.session.send_text("Find it")
        await gate.runs.wait()
        await heard.session.send_text("Well?")
        await backend.until("respond", 2)
        gate.may_end.set()
        await heard.until(AgentResponded, where=lambda said: said.text == "Found.")
    assert gate.calls == 1
    assert backend.commands().count("result") == 1
    assert backend.complaints == []


@pytest.mark.parametrize("is_another", [False, True])
async def test_a_response_that_is_told_twice_counts_once(wire: OverTheWire, is_another: bool) -> None:
    """R8."""
    gate = Gate()
    gate.may_end.set()
    model = await wire.plays([call("look_up"), "Found."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model).connect()) as heard:
        wire.server.plan(
            RepeatEvent("response.done", new_id=is_another), RepeatEvent("response.created", new_id=is_another)
        )
        await heard.session.send_text("Find it")
        await heard.until(AgentResponded, where=lambda said: said.text == "Found.")
        await heard.session.wait_until_idle()
    assert gate.calls == 1
    assert wire.commands() == ["user", "respond", "result", "respond"]
    assert wire.complaints == []


async def test_an_id_of_before_a_resume_is_known(scripted: InMemory) -> None:
    """R8, R9: what is on record is answered from there."""
    gate = Gate()
    gate.may_end.set()
    same = ToolCall("call_1", "look_up", "{}")
    model = await scripted.plays([same, "Found.", same, "As I said."])
    desk = RealtimeAgent("Desk", tools=[gate.as_tool()])
    runner = make_runner(desk, model, max_reconnects=0)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await heard.until(AgentResponded, where=lambda said: said.text == "Found.")
        await scripted.cut()
        await heard.until_over()
    async with listening_to(runner.resume(heard.session.run_id)) as heard:
        await heard.session.send_text("Well?")
        await heard.until(AgentResponded, where=lambda said: said.text == "As I said.")
    assert gate.calls == 1
    assert scripted.complaints == []


async def test_unknown_tools_are_told_and_after_some_tries_end_the_conversation(backend: Backend) -> None:
    """R2: a live model may correct itself as often as one in writing."""
    model = await backend.plays([call("nothing"), call("nothing"), call("nothing"), "Never."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, max_corrections=2).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until_over()
    assert isinstance(heard.failure, UnknownToolError)
    assert [result.is_unknown_tool for result in heard.all(ToolReturned)] == [True, True, True]


async def test_a_tool_may_ask_and_is_answered_while_it_waits(backend: Backend) -> None:
    """R2: `InterruptRaised`, `answer`, and the conversation goes on meanwhile."""

    @tool
    async def book(ctx: RunContext) -> str:
        """Book a seat."""
        seat = await ctx.interrupt({"kind": "seat"})
        return f"booked {seat}"

    model = await backend.plays([call("book"), "Which seat?", "It is booked."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[book]), model).connect()) as heard:
        await heard.session.send_text("A seat, please")
        asked = await heard.until(InterruptRaised)
        await heard.session.send_text("What now?")
        await heard.until(AgentResponded, where=lambda said: said.text == "Which seat?")
        assert [question.id for question in heard.session.interrupts] == [asked.key]
        await heard.session.answer(asked.key, "12A")
        await heard.until(AgentResponded, where=lambda said: said.text == "It is booked.")
        assert heard.session.interrupts == ()
    assert heard.results == [("book", "booked 12A")]
    assert backend.complaints == []


async def test_a_response_that_was_stopped_by_the_provider_may_have_made_whole_calls(scripted: InMemory) -> None:
    """R6: they were made, so they are carried out."""
    gate = Gate()
    gate.may_end.set()
    model = await scripted.plays([ScriptedStream(ToolCall("", "look_up", "{}"), asyncio.Event()), "Found."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gate.as_tool()]), model, settings=RealtimeSettings())
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Find it")
        await scripted.until("respond")
        await says(scripted, heard.session, "Please")
        await heard.until(ToolReturned)
        await heard.session.wait_until_idle()
    assert gate.calls == 1
    assert scripted.at().told(ResponseEnded)[0].status == "cancelled"
