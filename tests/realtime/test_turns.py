"""Calls are executed while the session continues, each of them once."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend, speak
from tests.realtime.recorder import make_runner, record_session
from tests.servers.realtime import RepeatEvent

from batonkit import RunContext, tool
from batonkit.errors import UnknownToolError
from batonkit.log import AgentResponded, InterruptRaised, ToolReturned, UserMessageAdded
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.realtime import RealtimeAgent, RealtimeSettings, SessionErrorReported, TurnDetection
from batonkit.realtime.protocol import ResponseEnded
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedStream, call, say


class GatedTool:
    """A tool that ends when the test allows it, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_running, self.may_end = asyncio.Event(), asyncio.Event()

    def as_tool(self) -> Any:
        @tool
        async def look_up(what: str = "it") -> str:
            """Look it up."""
            self.calls += 1
            self.is_running.set()
            await self.may_end.wait()
            return f"found {what}"

        return look_up


async def test_the_session_continues_while_a_tool_runs(backend: Backend) -> None:
    gated = GatedTool()
    model = await backend.start([say("One moment.", call("look_up")), "It will not be long.", "I found it."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        await speak(backend, recorder.session, "How long will it take?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It will not be long.")
        assert recorder.of_type(ToolReturned) == []
        gated.may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I found it.")
        await recorder.session.wait_until_idle()
    assert gated.calls == 1
    assert backend.commands()[:2] == ["user", "respond"]
    assert backend.commands()[-2:] == ["result", "respond"]
    assert backend.complaints == []


async def test_the_session_can_wait_for_tools(backend: Backend) -> None:
    # `async_tool_calls=False`.
    gated = GatedTool()
    model = await backend.start([call("look_up"), "I found it.", "Yes."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model, async_tool_calls=False)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        text_task = asyncio.create_task(recorder.session.send_text("Are you there?"))
        await asyncio.sleep(0)
        assert backend.commands() == ["user", "respond"]
        gated.may_end.set()
        await text_task
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I found it.")
        await recorder.session.wait_until_idle()
    kinds = [type(event) for event in recorder.events if isinstance(event, ToolReturned | UserMessageAdded)]
    assert kinds == [UserMessageAdded, ToolReturned, UserMessageAdded]
    assert backend.complaints == []


async def test_one_response_is_requested_for_all_results_of_a_response(backend: Backend) -> None:

    @tool
    async def look_up(what: str) -> str:
        """Look it up."""
        return f"found {what}"

    calls = [call("look_up", what=what) for what in ("a", "b", "c")]
    model = await backend.start([calls, "All found."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[look_up]), model).connect()) as recorder:
        await recorder.session.send_text("Find them")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "All found.")
    assert [content for _, content in recorder.tool_results] == ["found a", "found b", "found c"]
    assert backend.commands() == ["user", "respond", "result", "result", "result", "respond"]
    assert backend.complaints == []


async def test_no_response_is_requested_while_one_is_in_progress(backend: Backend) -> None:
    # Two results arrive during a response; one request follows when it has ended.
    gated, may_end = GatedTool(), asyncio.Event()

    @tool
    async def calculate() -> str:
        """Calculate."""
        await gated.may_end.wait()
        return "42"

    desk = RealtimeAgent("Desk", tools=[gated.as_tool(), calculate])
    model = await backend.start(
        [call("look_up"), call("calculate"), ScriptedStream("Meanwhile", may_end), "Both are done."]
    )
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        await recorder.session.send_text("And calculate")
        await recorder.wait_for_response(2)
        await recorder.session.send_text("And tell me a story")
        await backend.wait_for_command("respond", 3)
        gated.may_end.set()
        await backend.wait_for_command("result", 2)
        assert backend.commands().count("respond") == 3
        may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Both are done.")
        await recorder.session.wait_until_idle()
    assert backend.commands().count("respond") == 4
    assert backend.complaints == []


async def test_no_response_is_requested_while_the_user_speaks(backend: Backend) -> None:
    # The response to the user's speech is the response to the result as well.
    gated = GatedTool()
    model = await backend.start([call("look_up"), "I found it, and yes."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        await backend.start_speaking(recorder.session)
        gated.may_end.set()
        await backend.wait_for_command("result")
        assert backend.commands() == ["user", "respond", "result"]
        await backend.finish_speaking(recorder.session, "Are you there?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I found it, and yes.")
        await recorder.session.wait_until_idle()
    assert backend.commands() == ["user", "respond", "result"]
    assert backend.complaints == []


async def test_without_create_response_a_response_is_requested_when_the_user_stops(
    backend: Backend,
) -> None:
    gated = GatedTool()
    settings = RealtimeSettings(turn_detection=TurnDetection(create_response=False))
    model = await backend.start([call("look_up"), "I found it.", "I am here."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model, settings=settings)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        await backend.start_speaking(recorder.session)
        gated.may_end.set()
        await backend.wait_for_command("result")
        await backend.finish_speaking(recorder.session, "Are you there?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I found it.")
        await recorder.wait_for(UserMessageAdded, 2)
        await recorder.session.respond()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I am here.")
    assert backend.commands() == ["user", "respond", "result", "respond", "respond"]
    assert backend.complaints == []


async def test_a_repeated_call_is_not_executed_again(backend: Backend) -> None:
    # In another response, and twice in the same one.
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    repeated = ToolCall("call_1", "pay", "{}")
    model = await backend.start([repeated, repeated, "It is paid."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
        await recorder.session.wait_until_idle()
    assert calls == 1
    assert recorder.tool_results == [("pay", "paid")]
    assert backend.commands() == ["user", "respond", "result", "respond", "respond"]
    assert recorder.of_type(SessionErrorReported) == []
    assert backend.complaints == []


async def test_a_call_that_is_repeated_in_one_response_is_executed_once(scripted_backend: ScriptedBackend) -> None:
    gated = GatedTool()
    gated.may_end.set()
    repeated = ToolCall("call_1", "look_up", "{}")
    model = await scripted_backend.start([AssistantMessage("", (repeated, repeated)), "Found."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model).connect()) as recorder:
        await recorder.session.send_text("Find it")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Found.")
    assert gated.calls == 1
    assert len(recorder.of_type(ToolReturned)) == 1
    assert scripted_backend.complaints == []


async def test_a_call_id_that_is_reused_for_another_call_is_reported(backend: Backend) -> None:
    seen: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        seen.append(amount)
        return f"paid {amount}"

    steps = [ToolCall("call_1", "pay", '{"amount": 1}'), ToolCall("call_1", "pay", '{"amount": 2}'), "It is paid."]
    model = await backend.start(steps)
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[pay]), model).connect()) as recorder:
        await recorder.session.send_text("Pay!")
        error = await recorder.wait_for(SessionErrorReported)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
    assert error.code == "call_id_reused"
    assert "the id `call_1` of a call of `pay` was used before by another call" in error.message
    assert seen == [1]
    assert backend.complaints == []


async def test_a_call_that_is_repeated_while_it_runs_is_executed_once(backend: Backend) -> None:
    gated = GatedTool()
    repeated = ToolCall("call_1", "look_up", "{}")
    model = await backend.start([repeated, repeated, "Found."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model).connect()) as recorder:
        await recorder.session.send_text("Find it")
        await gated.is_running.wait()
        await recorder.session.send_text("Well?")
        await backend.wait_for_command("respond", 2)
        gated.may_end.set()
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Found.")
    assert gated.calls == 1
    assert backend.commands().count("result") == 1
    assert backend.complaints == []


@pytest.mark.parametrize("has_new_id", [False, True])
async def test_a_repeated_response_counts_once(websocket_backend: WebSocketBackend, has_new_id: bool) -> None:
    gated = GatedTool()
    gated.may_end.set()
    model = await websocket_backend.start([call("look_up"), "Found."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model).connect()) as recorder:
        websocket_backend.server.plan(
            RepeatEvent("response.done", new_id=has_new_id), RepeatEvent("response.created", new_id=has_new_id)
        )
        await recorder.session.send_text("Find it")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Found.")
        await recorder.session.wait_until_idle()
    assert gated.calls == 1
    assert websocket_backend.commands() == ["user", "respond", "result", "respond"]
    assert websocket_backend.complaints == []


async def test_call_ids_from_before_a_resume_are_known(scripted_backend: ScriptedBackend) -> None:
    # The recorded result is used.
    gated = GatedTool()
    gated.may_end.set()
    repeated = ToolCall("call_1", "look_up", "{}")
    model = await scripted_backend.start([repeated, "Found.", repeated, "As I said."])
    desk = RealtimeAgent("Desk", tools=[gated.as_tool()])
    runner = make_runner(desk, model, max_reconnects=0)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Found.")
        await scripted_backend.cut()
        await recorder.wait_until_ended()
    async with record_session(runner.resume(recorder.session.run_id)) as recorder:
        await recorder.session.send_text("Well?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "As I said.")
    assert gated.calls == 1
    assert scripted_backend.complaints == []


async def test_too_many_unknown_tools_fail_the_session(backend: Backend) -> None:
    # As in text runs.
    model = await backend.start([call("nothing"), call("nothing"), call("nothing"), "Never."])
    async with record_session(
        make_runner(RealtimeAgent("Desk"), model, handoff_rules=HandoffRules(max_corrections=2)).connect()
    ) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, UnknownToolError)
    assert [result.is_unknown_tool for result in recorder.of_type(ToolReturned)] == [True, True, True]


async def test_a_tool_can_interrupt_and_is_answered_while_it_waits(backend: Backend) -> None:
    # `InterruptRaised`, `answer`, and the session continues meanwhile.

    @tool
    async def book(ctx: RunContext) -> str:
        """Book a seat."""
        seat = await ctx.interrupt({"kind": "seat"})
        return f"booked {seat}"

    model = await backend.start([call("book"), "Which seat?", "It is booked."])
    async with record_session(make_runner(RealtimeAgent("Desk", tools=[book]), model).connect()) as recorder:
        await recorder.session.send_text("A seat, please")
        interrupt = await recorder.wait_for(InterruptRaised)
        await recorder.session.send_text("What now?")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Which seat?")
        assert [question.id for question in recorder.session.interrupts] == [interrupt.key]
        await recorder.session.answer(interrupt.key, "12A")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is booked.")
        assert recorder.session.interrupts == ()
    assert recorder.tool_results == [("book", "booked 12A")]
    assert backend.complaints == []


async def test_complete_calls_of_a_response_that_the_provider_stopped_are_executed(
    scripted_backend: ScriptedBackend,
) -> None:
    # They are complete, so they are executed.
    gated = GatedTool()
    gated.may_end.set()
    model = await scripted_backend.start([ScriptedStream(ToolCall("", "look_up", "{}"), asyncio.Event()), "Found."])
    runner = make_runner(RealtimeAgent("Desk", tools=[gated.as_tool()]), model, settings=RealtimeSettings())
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Find it")
        await scripted_backend.wait_for_command("respond")
        await speak(scripted_backend, recorder.session, "Please")
        await recorder.wait_for(ToolReturned)
        await recorder.session.wait_until_idle()
    assert gated.calls == 1
    assert scripted_backend.connection().told(ResponseEnded)[0].status == "cancelled"
