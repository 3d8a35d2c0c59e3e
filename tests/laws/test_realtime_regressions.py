"""Minimal examples of bugs that the property tests of realtime sessions have found."""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from tests.laws.clockless import rest, without_a_clock

from batonkit import tool
from batonkit.errors import BatonError, TransferError
from batonkit.log import AgentResponded, ControlTransferred, Event
from batonkit.log.fold import history_from_log
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, realtime_handoff
from batonkit.realtime.protocol import AddItem, ResponseEnded, ResponseStarted
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedRealtimeModel, call


def _make_runner(
    model: ScriptedRealtimeModel, *tools: Any, has_exit: bool = False, **options: Any
) -> RealtimeRunner[Any]:
    second_agent = RealtimeAgent("B", description="The other agent.", handoffs=[realtime_handoff("A")])
    first_agent = RealtimeAgent(
        "A", description="The first agent.", tools=tools, handoffs=[second_agent], exit_tool=has_exit
    )
    return RealtimeRunner(first_agent, model=model, **options)


def _response_texts(events: tuple[Event, ...]) -> list[tuple[str, object]]:
    return [(each.agent, each.message.content) for each in events if isinstance(each, AgentResponded)]


def test_results_recorded_before_an_error_are_in_the_history() -> None:
    """The policy `error` gives each of several transfers an error result and then fails the run."""

    async def run_session() -> RealtimeSession:
        model = ScriptedRealtimeModel([[call("transfer_to_b"), call("transfer_to_b")]])
        session = _make_runner(model, handoff_rules=HandoffRules(multiple_transfers="error")).connect("hello")
        with suppress(BatonError):
            async with session:
                await session.send_text("go")
                await rest()
        return session

    result = without_a_clock(run_session()).result
    assert isinstance(result.error, TransferError)
    assert [type(each) for each in result.messages[-3:]] == [AssistantMessage, ToolMessage, ToolMessage]
    assert list(result.messages) == [entry.message for entry in history_from_log(result.events)]


def test_a_connection_lost_while_sending_is_reopened() -> None:
    """Closing a lost connection ends its signals normally, but the session must still reconnect."""

    @tool
    async def look_up() -> str:
        """Look something up."""
        return "seen"

    async def run_session() -> tuple[RealtimeSession, ScriptedRealtimeModel]:
        model = ScriptedRealtimeModel([call("look_up"), "I have seen it."])
        async with _make_runner(model, look_up).connect() as session:
            await session.send_text("look")
            model.cut_at(AddItem)
            await session.wait_until_idle()
            assert session.active_agent == "A"
        return session, model

    session, model = without_a_clock(run_session())
    assert len(model.connections) == 2
    assert _response_texts(session.result.events)[-1] == ("A", "I have seen it.")
    assert not model.complaints


def test_a_response_during_a_requested_transfer_belongs_to_the_earlier_agent() -> None:
    """The provider has ended the response, but the active agent has not processed its end yet."""

    async def run_session() -> RealtimeSession:
        model = ScriptedRealtimeModel({"B": ["I am B."]})
        async with _make_runner(model).connect() as session:
            connection = await model.connection()
            connection.emit(ResponseStarted("of A"))
            await rest()
            transfer = asyncio.create_task(session.handoff_to("B"))
            connection.emit(ResponseEnded("of A", "completed", AssistantMessage("I am A.")))
            await transfer
            await session.wait_until_idle()
        return session

    events = without_a_clock(run_session()).result.events
    assert _response_texts(events) == [("A", "I am A."), ("B", "I am B.")]


def test_the_log_records_whether_an_exit_or_a_transfer_was_followed() -> None:
    """The second response exits while a tool of the first still runs; the first then asks for a transfer."""
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    first = [call("wait"), call("transfer_to_b")]

    async def run_session() -> tuple[RealtimeSession, RealtimeRunner[Any]]:
        model = ScriptedRealtimeModel([first, call("exit", final_result="the end")])
        runner = _make_runner(model, wait, has_exit=True)
        session = runner.connect()
        with suppress(BatonError):
            async with session:
                await session.send_text("wait")
                await rest()
                await session.send_text("do not wait")
                await rest()
                gate.set()
                await rest()
        return session, runner

    session, runner = without_a_clock(run_session())
    result = session.result
    assert (result.status, result.output) == ("completed", "the end")
    replayed = without_a_clock(runner.text_runner.runs.replay(result.events))
    assert (replayed.status, replayed.output, replayed.messages) == ("completed", "the end", result.messages)


def test_the_chosen_transfer_stays_the_same_after_a_crash() -> None:
    """Of two responses that ask for a transfer one was chosen; after a crash it must not be the other one."""
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    slow = [call("wait"), call("transfer_to_b")]

    async def run_session() -> tuple[Event, ...]:
        model = ScriptedRealtimeModel([slow, call("transfer_to_b"), "I am B."])
        async with _make_runner(model, wait).connect(run_id="r") as session:
            await session.send_text("wait")
            await rest()
            await session.send_text("go now")
            await rest()
            return tuple(session.log.events)

    async def resume_session(events: tuple[Event, ...]) -> RealtimeSession:
        gate.set()
        model = ScriptedRealtimeModel(["I am B."])
        runner = _make_runner(model, wait)
        async with runner.resume(await runner.text_runner.runs.load(events)) as session:
            await session.wait_until_idle()
        return session

    result = without_a_clock(resume_session(without_a_clock(run_session()))).result
    results = [each for each in result.messages if isinstance(each, ToolMessage) and each.name == "transfer_to_b"]
    assert [each.is_error for each in results] == [True, False]
    assert sum(isinstance(each, ControlTransferred) for each in result.events) == 1


def test_messages_recorded_before_an_error_survive_a_resume() -> None:
    """A resumed failed run fails again; its history must still agree with its log."""

    async def run_session() -> tuple[Event, ...]:
        model = ScriptedRealtimeModel([[call("transfer_to_b"), call("transfer_to_b")]])
        session = _make_runner(model, handoff_rules=HandoffRules(multiple_transfers="error")).connect(run_id="r")
        with suppress(BatonError):
            async with session:
                await session.send_text("go")
                await rest()
        return session.result.events

    async def resume_session(events: tuple[Event, ...]) -> RealtimeSession:
        runner = _make_runner(ScriptedRealtimeModel([]), handoff_rules=HandoffRules(multiple_transfers="error"))
        session = runner.resume(await runner.text_runner.runs.load(events))
        with suppress(BatonError):
            async with session:
                pass
        return session

    *before, failed = without_a_clock(run_session())
    response = next(each for each in before if isinstance(each, AgentResponded))
    appended = replace(response, key="1/i9", message=AssistantMessage("appended."))
    result = without_a_clock(resume_session((*before, appended, failed))).result
    assert result.status == "failed"
    assert list(result.messages) == [entry.message for entry in history_from_log(result.events)]
    assert result.messages[-1] == AssistantMessage("appended.")


def test_unfinished_calls_beside_an_error_are_in_the_history_after_a_resume() -> None:
    """A replay that fails at one response shows the unfinished calls of another as the log does."""

    async def run_session() -> tuple[Event, ...]:
        model = ScriptedRealtimeModel([[call("transfer_to_b"), call("transfer_to_b")]])
        session = _make_runner(model, handoff_rules=HandoffRules(multiple_transfers="error")).connect("hello")
        with suppress(BatonError):
            async with session:
                await session.send_text("go")
                await rest()
        return session.result.events

    async def resume_session(events: tuple[Event, ...]) -> RealtimeSession:
        runner = _make_runner(ScriptedRealtimeModel([]), handoff_rules=HandoffRules(multiple_transfers="error"))
        session = runner.resume(await runner.text_runner.runs.load(events))
        with suppress(BatonError):
            async with session:
                await rest()
        return session

    *before, failed = without_a_clock(run_session())
    responded = next(each for each in before if isinstance(each, AgentResponded))
    message = AssistantMessage(tool_calls=(ToolCall("unfinished", "look_up", "{}"),))
    unfinished = replace(responded, key="1/i9", message=message)
    result = without_a_clock(resume_session((*before, unfinished, failed))).result
    assert isinstance(result.error, TransferError)
    assert list(result.messages) == [entry.message for entry in history_from_log(result.events)]
    assert result.messages[-2] == message
